"""The slowdown of a stack against the good one: both are measured in turn, in one run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hvlab.analysis.compare.comparison import measurements
from hvlab.analysis.compare.decisions import Decisions, decide
from hvlab.base.errors import CheckError
from hvlab.bench import sides
from hvlab.bench.matrix import Spec
from hvlab.bench.measure import measure
from hvlab.bench.schedule import Schedule
from hvlab.bench.sides import A, B, SameSidesError
from hvlab.lab.inventory import Lab
from hvlab.results.store import Record, Store
from hvlab.statistics.interval import Interval
from hvlab.statistics.looks import LOOKS
from hvlab.statistics.verdict import Kind
from hvlab.workloads.metrics import METRICS
from hvlab.workloads.parameters import OWN_STACK, STACK
from hvlab.workloads.sizes import format_size


class StackFailsError(CheckError):
    """A stack that is measured beside the good one does not run."""


@dataclass(frozen=True)
class Effect:
    """The logarithm of a stack's time over the good one's, with its 95 % interval, from the run ``run_id``.

    ``slower``: significantly, with more sizes slower than faster, and the whole interval of the mean above
    zero.
    """

    log: Interval
    slower: bool
    run_id: str

    @property
    def words(self) -> str:
        """The ratio in words, with its interval."""
        low, mid, high = (math.exp(value) for value in (self.log.low, self.log.mid, self.log.high))
        if mid >= _TIMES:
            return f"{mid:.1f} times as long ({low:.1f} to {high:.1f})"
        return f"{100 * (mid - 1):+.1f} % ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %)"

    def clear_of(self, half: float) -> bool:
        """Whether the interval lies on one side of half the difference."""
        return not self.log.low <= half <= self.log.high


# Repeats of each side, increased while a stack is not clearly on one side of half the difference.
REPEATS = (LOOKS[0].repeats, LOOKS[-1].repeats, 40)
# The verdict is that of A, the good stack.
_B_SLOWER: Kind = "faster"
_B_FASTER: Kind = "slower"
# Larger percentages are hard to read.
_TIMES = 2.0
# Two stacks whose settings are merely spelled differently.
SAME = Effect(Interval(0.0, 0.0, 0.0), slower=False, run_id="")


@dataclass(frozen=True)
class InstalledStack:
    """A stack on the hosts, by its name there, and the parameters of its ranks."""

    name: str
    parameters: tuple[tuple[str, str], ...]

    @property
    def side(self) -> dict[str, str]:
        """Settings of one side of a run."""
        return {STACK.name: self.name or OWN_STACK, **dict(self.parameters)}


@dataclass(frozen=True)
class Judge:
    """Measures stacks in turn with the good one, in runs of ``store``; ``spec`` is one configuration."""

    spec: Spec
    lab: Lab
    store: Store
    good: InstalledStack

    def effect(self, other: InstalledStack, half: float | None = None) -> Effect:
        """Return the slowdown of ``other`` against the good one.

        It is measured with more repeats while the interval is not clear of ``half`` the difference (a
        logarithm), or without ``half`` while a verdict is possible. A finished run of the same two counts,
        unless the good one failed. Raises StackFailsError if ``other`` does not run, CheckError if the good
        one does not, and without ``half`` if the verdicts of several sizes contradict their mean.
        """
        chosen = {A: self.good.side, B: other.side}
        try:
            blocks = sides.with_sides(self.spec.blocks, chosen, self.lab)
        except SameSidesError:
            return SAME
        both = replace(self.spec, blocks=blocks, sides=sides.values(chosen, self.spec.blocks))
        if half is None:
            measured = _judge_whole(self._measure(replace(both, auto=True, repeats=LOOKS[-1].repeats)))
            if measured.slower or measured.log.low <= 0:
                return measured
            return _judge_whole(self._measure(replace(both, auto=False, repeats=REPEATS[-1])))
        for repeats in REPEATS:
            measured = _effect(self._measure(replace(both, auto=False, repeats=repeats)))
            if measured.clear_of(half):
                break
        return measured

    def _measure(self, spec: Spec) -> Decisions:
        run_id = self.store.find_finished(spec.key(self.lab))
        # If the good stack failed, something was repaired since.
        if run_id is None or _explain_failure(self.store.records(run_id), A):
            run_id = measure(Schedule.of(spec, self.lab), self.store)
        records = self.store.records(run_id)
        if error := _explain_failure(records, A):
            raise CheckError(f"the good stack does not run: {error}", remedy="run `hvlab doctor`")
        if error := _explain_failure(records, B):
            raise StackFailsError(f"it does not run: {error}")
        _, stored = self.store.spec(run_id)
        return decide(measurements(self.store.run(run_id), records), stored)


def _effect(decisions: Decisions) -> Effect:
    log = _log(decisions)
    more = decisions.count(_B_SLOWER) > decisions.count(_B_FASTER)
    return Effect(log, more and log.low > 0, decisions.run.run_id)


def _judge_whole(decisions: Decisions) -> Effect:
    """Return the effect. Raises CheckError if the verdicts of several sizes contradict their mean."""
    effect = _effect(decisions)
    slower, faster = (_sizes(decisions, kind) for kind in (_B_SLOWER, _B_FASTER))
    if slower and (len(slower) > len(faster)) != (effect.log.low > 0):
        observed = f"slower at {', '.join(slower)}" + (f", faster at {', '.join(faster)}" if faster else "")
        raise CheckError(
            f"the bad stack is {observed}, and over all sizes it takes {effect.words} (run {effect.run_id})",
            remedy=f"name one size, as in --set sizes={slower[0]}",
        )
    return effect


def _sizes(decisions: Decisions, kind: Kind) -> list[str]:
    """Return the sizes with a verdict of a kind, if there are several sizes."""
    sizes = [each.a.get("size_bytes") for each in decisions.rows if each.row.verdict.kind == kind]
    return [format_size(size) for size in sizes if isinstance(size, int) and len(decisions.rows) > 1]


def _explain_failure(records: Sequence[Record], side: str) -> str:
    ended = {record.case_id: record for record in records if record.params.get("side") == side}
    if not ended:
        return "no case of it was launched"
    errors = [record.error or record.status for record in ended.values() if record.status != "ok"]
    return errors[0] if len(errors) * 2 > len(ended) else ""


def _log(decisions: Decisions) -> Interval:
    """Return the logarithm of B's time over A's: of several sizes the mean, with the mean of the limits.

    Raises StackFailsError if there is none.
    """
    logs = []
    for each in decisions.rows:
        ratio = each.row.verdict.ratio
        if ratio is not None and min(ratio.low, ratio.mid, ratio.high) > 0:
            limits = sorted(map(math.log, (ratio.low, ratio.mid, ratio.high)))
            # The ratio is A's figure over B's: the shorter A, the slower B.
            time = METRICS[each.row.metric].better == "low"
            logs.append([-value for value in reversed(limits)] if time else limits)
    if not logs:
        raise StackFailsError("no figure of it can be compared")
    low, mid, high = (statistics.fmean(values) for values in zip(*logs, strict=True))
    return Interval(low, mid, high)
