"""The price of leaving Horovod: a step without it against one with it, over the same data plane of a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hvlab.analysis.compare.comparison import figures
from hvlab.analysis.compare.decisions import deciding, questions
from hvlab.lab.backends import BACKENDS, DDP, HOROVOD, SHIM
from hvlab.report.answer import geometric_means
from hvlab.report.words import Words
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics.sequential import NARROW, holds, repeats_to_decide
from hvlab.statistics.verdict import Pair, Verdict
from hvlab.workloads.metrics import METRICS
from hvlab.workloads.operations import COLLECTIVES

# The steps of an owner of scripts: as they are, on torch, rewritten.
_STEPS = (HOROVOD, SHIM, DDP)


@dataclass(frozen=True)
class _Asked:
    """Two libraries over one data plane; ``pair`` has the time of the later one first."""

    before: str
    after: str
    across: bool
    cells: int
    collective: bool
    pair: Pair


@dataclass(frozen=True)
class Leaving(_Asked):
    """The verdict on two libraries; its ratio is the time with ``after`` over the time with ``before``.

    ``cells`` counts the trainings, or sizes of collectives, in the geometric mean of each repeat.
    """

    verdict: Verdict
    needed: int | None

    @property
    def kind(self) -> str:
        """The answer: faster, within (at most 5 % slower), slower, or open."""
        ratio = self.verdict.ratio
        if holds(self.verdict):
            return self.verdict.kind
        if ratio and self.verdict.kind != "too_few" and ratio.high <= 1 + NARROW:
            return "within"
        return "open"

    def as_json(self) -> dict[str, Any]:
        """Return the answer, JSON-ready."""
        return {
            "before": self.before,
            "after": self.after,
            "across_hosts": self.across,
            "of": "collectives" if self.collective else "trainings",
            "kind": self.kind,
            "verdict": asdict(self.verdict),
            "needed": self.needed,
        }

    def card(self, words: Words) -> tuple[str, str, str]:
        """Return the answer as a tile: the question, the cost, and how surely."""
        return words.say(f"leaving.card_{self._after}"), self._cost(words), self._say("leaving.tile", words)

    def sentence(self, words: Words) -> str:
        """Return the answer as a sentence."""
        return self._say("leaving.sentence", words)

    @property
    def _after(self) -> str:
        return "shim" if BACKENDS[self.after].framework == SHIM else "ddp"

    def _cost(self, words: Words) -> str:
        ratio, needed = self.verdict.ratio, self.verdict.needed or self.needed
        return words.say(
            f"leaving.{self.kind}",
            most=words.number(max(ratio.high - 1, 0) if ratio else None, "share"),
            cost=words.number(ratio.mid - 1 if ratio else None, "share"),
            needed=words.say("answer.needed", count=needed) if needed else words.say("answer.needed_unknown"),
        )

    def _say(self, key: str, words: Words) -> str:
        over = ("one_size", "sizes") if self.collective else ("one_training", "trainings")
        return words.say(
            key,
            what=words.say(f"leaving.{self._after}", before=words.backend(self.before)),
            before=words.backend(self.before),
            after=words.backend(self.after),
            where=words.place("across" if self.across else "inside"),
            cost=self._cost(words),
            ratio=words.both(self.verdict.ratio, "times"),
            over=words.say(f"answer.{over[self.cells > 1]}", count=self.cells),
            repeats=min(len(self.pair.a), len(self.pair.b)),
        )


def leavings(
    measured: Mapping[Configuration, Repeats], compare: Callable[[Sequence[Pair]], list[Verdict]]
) -> list[Leaving]:
    """Return the price of each step away from Horovod that the run measured; ``compare`` judges them all.

    They are a family of tests of their own, so that a run with many backends answers as surely. They rest on
    trainings if there are any, and on several hosts if those took part. None without hvlab_horovod: two
    libraries alone are compared as backends are.
    """
    asked = [*_ask(measured)]
    verdicts = compare([one.pair for one in asked])
    return [
        Leaving(
            **vars(one),
            verdict=verdict,
            needed=repeats_to_decide(one.pair, family=len(asked), matters=NARROW),
        )
        for one, verdict in zip(asked, verdicts, strict=True)
    ]


def _ask(measured: Mapping[Configuration, Repeats]) -> Iterator[_Asked]:
    own = [one for one, repeats in measured.items() if repeats.ok and _step(one.backend) >= 0]
    if not any(BACKENDS[one.backend].framework == SHIM for one in own):
        return
    cells: dict[tuple[str, str], list[tuple[Configuration, Pair]]] = {}
    for sides in questions(one for one in own if one.ranks > 1):
        before, after = sorted(sides, key=lambda one: _step(one.backend))
        if _plane(before) == _plane(after) and before.backend != after.backend:
            metric = deciding(before, after, measured)
            pair = Pair(_times(measured[after], metric), _times(measured[before], metric))
            cells.setdefault((before.backend, after.backend), []).append((after, pair))
    for (before_name, after_name), pairs in cells.items():
        # Not from Horovod to DDP at once where hvlab_horovod lies between.
        firsts = {other for name, other in cells if name == before_name}
        if not firsts & {name for name, other in cells if other == after_name}:
            yield from _pool(before_name, after_name, pairs)


def _pool(before: str, after: str, cells: Sequence[tuple[Configuration, Pair]]) -> Iterator[_Asked]:
    for trainings, across in itertools.product((True, False), (True, False)):
        kept = [
            pair
            for one, pair in cells
            if (one.workload not in COLLECTIVES, one.across) == (trainings, across) and pair.a and pair.b
        ]
        a = geometric_means([pair.a for pair in kept]) if kept else {}
        b = geometric_means([pair.b for pair in kept]) if kept else {}
        if a and b:
            pair = Pair(a, b, launches=(after, before))
            yield _Asked(before, after, across, len(kept), not trainings, pair)
            return


def _step(backend: str) -> int:
    framework = BACKENDS[backend].framework if backend in BACKENDS else ""
    return _STEPS.index(framework) if framework in _STEPS else -1


def _plane(one: Configuration) -> str:
    return BACKENDS[one.backend].counterpart or one.backend


def _times(repeats: Repeats, metric: str) -> dict[int, float]:
    values = {repeat: value for repeat, value in figures(repeats, metric).items() if value > 0}
    inverse = METRICS[metric].better == "high"
    return {repeat: 1 / value if inverse else value for repeat, value in values.items()}
