"""Which backend is faster: verdicts on all pairs of a run, as one family of tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hvlab.report import labels, spread
from hvlab.report.blocks import Column, Number, Range, Say, Table, Value
from hvlab.report.study import Study, StudyRow
from hvlab.report.sweeps import Layout, SweepGroup
from hvlab.statistics.two_runs import compare_two_runs
from hvlab.statistics.verdict import Pair, Verdict, compare_all


@dataclass(frozen=True)
class BackendPair:
    """Two backends under equal conditions; ``what`` names the training or the size, ``layout`` where."""

    what: Value
    layout: Layout
    one: str
    other: str
    pair: Pair
    collective: bool = False


@dataclass(frozen=True)
class BackendVerdict:
    """The verdict on two backends."""

    backends: BackendPair
    verdict: Verdict

    @property
    def significant(self) -> bool:
        """Return whether one of them is faster."""
        return self.verdict.kind in ("faster", "slower")

    @property
    def winner(self) -> str:
        """Return the faster one, where the verdict is significant."""
        return self.backends.one if self.verdict.kind == "faster" else self.backends.other

    @property
    def apart(self) -> float:
        """Return how far apart they are: the absolute logarithm of their ratio."""
        return abs(math.log(self.verdict.ratio.mid)) if self.verdict.ratio else 0.0


def judge(studies: Sequence[Study], sweeps: Sequence[SweepGroup], *, imported: bool) -> list[BackendVerdict]:
    """Return the verdict on every two backends: step times of trainings, and all sizes of sweeps.

    The figures of an ``imported`` run were measured at different times: they differ, and none is faster.
    """
    pairs = [*_trainings(studies), *_collectives(sweeps)]
    verdicts = (compare_two_runs if imported else compare_all)([each.pair for each in pairs])
    return [BackendVerdict(each, verdict) for each, verdict in zip(pairs, verdicts, strict=True)]


def sentence(judged: BackendVerdict) -> Say:
    """Return a significant verdict as a sentence."""
    ratio = judged.verdict.ratio
    if ratio is None or not judged.significant:
        raise ValueError("only a significant verdict makes a sentence")
    backends, first = judged.backends, judged.verdict.kind == "faster"
    names = (labels.backend(backends.one), labels.backend(backends.other))
    # The ratio is of times; its inverse is how many times as fast the first is.
    ends = (ratio.low, ratio.mid, ratio.high)
    low, mid, high = sorted(1 / end for end in ends) if first else ends
    values: dict[str, Value] = {
        "name": backends.what,
        "layout": labels.layout(*backends.layout),
        "faster": names[0 if first else 1],
        "slower": names[1 if first else 0],
        "ratio": Number(mid, "times"),
        "span": Range(low, high, "times"),
    }
    return Say("comparison.claim", values)


def table(verdicts: Sequence[BackendVerdict], *, imported: bool) -> Table:
    """Return every two backends with the ratio of their times and the verdict."""
    columns = (
        Column(Say("comparison.what"), text=True),
        Column(Say("workloads.shapes")),
        Column(Say("comparison.pair")),
        Column(Say("comparison.ratio"), numeric=True),
        Column(Say("comparison.verdict")),
    )
    rows = tuple(
        (
            one.backends.what,
            labels.short(*one.backends.layout),
            Say("comparison.against", _names(one)),
            spread.both(spread.from_interval(one.verdict.ratio), "times"),
            Say(f"comparison.{one.verdict.kind}", {**_names(one), "needed": one.verdict.needed}),
        )
        for one in verdicts
    )
    faint = frozenset(row for row, one in enumerate(verdicts) if not one.significant)
    note = Say("comparison.imported_note" if imported else "comparison.ratio_note")
    return Table("verdicts", Say("comparison.verdicts"), columns, rows, merged=1, note=note, faint=faint)


def _names(judged: BackendVerdict) -> dict[str, Value]:
    return {"one": labels.backend(judged.backends.one), "other": labels.backend(judged.backends.other)}


def _trainings(studies: Sequence[Study]) -> Iterator[BackendPair]:
    names = labels.Labels((study.workload, study.params) for study in studies)
    for study in studies:
        name = labels.study(names.name(study.workload, study.params), study.scaling)
        for place in ("inside", "across"):
            rows = [
                row
                for row in study.rows
                if getattr(row.configuration, place) and row.repeats.times() and _usual(row)
            ]
            most = max((row.ranks for row in rows), default=0)
            for one, other in itertools.combinations([row for row in rows if row.ranks == most], 2):
                figures = one.repeats.times(), other.repeats.times()
                pair = Pair(*figures, launches=(one.configuration, other.configuration))
                yield BackendPair(
                    name, one.layout, labels.plane(one.configuration), labels.plane(other.configuration), pair
                )


def _usual(row: StudyRow) -> bool:
    return row.ranks > 1 and not row.named and row.compression == "none"


def _collectives(sweeps: Sequence[SweepGroup]) -> Iterator[BackendPair]:
    names = labels.Labels((group.workload, group.params) for group in sweeps)
    for group in sweeps:
        name = names.name(group.workload, group.params)
        pairs = itertools.combinations(group.backends, 2)
        case = (group.workload, group.params)
        for layout, (one, other) in itertools.product(sorted(group.telling), pairs):
            ours, theirs = (group.lines.get((backend, layout), {}) for backend in (one, other))
            for size in sorted(ours.keys() & theirs.keys()):
                what = Say("comparison.sized", {"name": name, "size": Number(size, "B")})
                launches = ((*case, one, layout), (*case, other, layout))
                pair = Pair(ours[size].values["time"], theirs[size].values["time"], launches=launches)
                yield BackendPair(what, layout, one, other, pair, collective=True)
