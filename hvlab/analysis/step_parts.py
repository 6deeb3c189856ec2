"""Where the time of a step of somebody's training goes, and which rank the others wait for. Pure.

A collective ends on all ranks at about the same time, so the rank that comes last waits least in it: what it
waits is the transfer, and what the others wait beyond that is the wait for it. No clocks are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from hvlab.results.configurations import Configuration, Repeats
from hvlab.workloads.command import PARTS

# A smaller share of a step is not worth a word.
_SHOWN = 0.005
# Others wait for a rank whose own time is this multiple of theirs.
_SLOWER = 1.1
_WORDS = {
    "compute": "compute",
    "communication": "communication",
    "waiting": "waiting for {slowest}",
    "data": "waiting for data",
    "host": "Python and other host code",
}
_REASONS = {
    "compute": "computes longer",
    "data": "waits longer for data",
    "host": "spends longer in host code",
}


@dataclass(frozen=True)
class ExplainedStep:
    """The parts of a step in seconds, as the rank that waits most for the others has them.

    Ranks have the names of their hosts if each has one for itself. ``slowest`` is the rank that others wait
    for, if any, and ``reason`` the part in which it takes longer.
    ``overhead`` is how many times as long a step takes while it is recorded.
    """

    configuration: Configuration
    rank: str
    parts: Mapping[str, float]
    slowest: str
    reason: str
    overhead: float

    @property
    def seconds(self) -> float:
        """Return the length of a step in seconds."""
        return sum(self.parts.values())

    def share(self, part: str) -> float:
        """Return a part as a share of the step."""
        return self.parts[part] / self.seconds

    @property
    def largest(self) -> str:
        """Return the name of the largest part."""
        return max(self.parts, key=lambda part: self.parts[part])

    @property
    def sentence(self) -> str:
        """Return all of it in a line."""
        one = self.configuration
        shares = sorted(self.parts.items(), key=lambda item: -item[1])
        words = ", ".join(
            f"{_WORDS[part].format(slowest=self.slowest or 'other ranks')} {self.share(part):.0%}"
            for part, _ in shares
            if self.share(part) >= _SHOWN
        )
        slow = f"; {self.slowest} {_REASONS[self.reason]}" if self.slowest else ""
        overhead = f"recording made a step {self.overhead:.2f} times as long"
        where = f"over {one.backend} on {len(one.hosts)}x{one.slots}, {self.rank}"
        length = float(f"{1000 * self.seconds:.3g}")
        return f"{where}: of {length:g} ms, {words}{slow} ({overhead})"


def explain(gathered: Mapping[Configuration, Repeats]) -> Iterator[ExplainedStep]:
    """Yield the explanation of each configuration whose steps were recorded."""
    for configuration, repeats in gathered.items():
        ranks = {
            name: {part: median(metrics[f"step_{part}"].values()) for part in PARTS}
            for name, metrics in repeats.hosts.items()
            if "step_exposed" in metrics
        }
        if ranks:
            overhead = median(repeats.of("recorded_step") or (1.0,))
            yield _explain(configuration, ranks, overhead)


def _explain(
    configuration: Configuration, ranks: Mapping[str, Mapping[str, float]], overhead: float
) -> ExplainedStep:
    last = min(ranks, key=lambda name: ranks[name]["exposed"])
    waits = max(ranks, key=lambda name: ranks[name]["exposed"])
    transfer = ranks[last]["exposed"]
    parts = {
        "compute": ranks[waits]["compute"],
        "communication": transfer,
        "waiting": ranks[waits]["exposed"] - transfer,
        "data": ranks[waits]["data"],
        "host": ranks[waits]["host"],
    }
    more = {part: ranks[last][part] - ranks[waits][part] for part in _REASONS}
    own = {name: sum(ranks[name][part] for part in _REASONS) for name in (last, waits)}
    is_slow = own[last] > _SLOWER * own[waits]
    reason = max(more, key=lambda part: more[part]) if is_slow else ""
    return ExplainedStep(configuration, waits, parts, last if is_slow else "", reason, overhead)
