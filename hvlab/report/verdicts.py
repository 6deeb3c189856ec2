"""Which backend is quicker: what the repeats carry, all pairs of the run being one comparison."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hvlab.report import labels, spread
from hvlab.report.blocks import Column, Number, Range, Say, Table, Value
from hvlab.report.study import Row, Study
from hvlab.report.sweeps import Group, Layout
from hvlab.statistics.verdict import Pair, Verdict, compare_all


@dataclass(frozen=True)
class Rivals:
    """Two backends measured alike. ``what`` names the training or the size, ``layout`` servers and slots."""

    what: Value
    layout: Layout
    one: str
    other: str
    pair: Pair
    collective: bool = False


@dataclass(frozen=True)
class Told:
    """What came of two rivals."""

    rivals: Rivals
    verdict: Verdict

    @property
    def sure(self) -> bool:
        """Return whether one is quicker."""
        return self.verdict.kind in ("faster", "slower")

    @property
    def winner(self) -> str:
        """Return the one that is quicker, if it is sure that one is."""
        return self.rivals.one if self.verdict.kind == "faster" else self.rivals.other

    @property
    def apart(self) -> float:
        """Return how far apart both are: the logarithm of their ratio, without its sign."""
        return abs(math.log(self.verdict.ratio.mid)) if self.verdict.ratio else 0.0


def judge(found: Sequence[Study], sweeps: Sequence[Group]) -> list[Told]:
    """Return the verdict on every two backends: step times of trainings, and two sizes of each sweep."""
    rivals = [*_trainings(found), *_collectives(sweeps)]
    verdicts = compare_all([each.pair for each in rivals])
    return [Told(each, verdict) for each, verdict in zip(rivals, verdicts, strict=True)]


def sentence(told: Told) -> Say:
    """Return a verdict that is sure as a sentence."""
    ratio = told.verdict.ratio
    if ratio is None or not told.sure:
        raise ValueError("only what is sure is said")
    rivals, first = told.rivals, told.verdict.kind == "faster"
    names = (labels.backend(rivals.one), labels.backend(rivals.other))
    # The ratio is of times: turned over, it is how many times as fast the first is.
    ends = (ratio.low, ratio.mid, ratio.high)
    low, mid, high = sorted(1 / end for end in ends) if first else ends
    values: dict[str, Value] = {
        "name": rivals.what,
        "layout": labels.layout(*rivals.layout),
        "faster": names[0 if first else 1],
        "slower": names[1 if first else 0],
        "ratio": Number(mid, "times"),
        "span": Range(low, high, "times"),
    }
    return Say("comparison.quicker", values)


def table(found: Sequence[Told]) -> Table:
    """Return every two backends with the ratio of their times and what the repeats carry."""
    columns = (
        Column(Say("comparison.what"), text=True),
        Column(Say("workloads.shapes")),
        Column(Say("comparison.pair")),
        Column(Say("comparison.ratio"), numeric=True),
        Column(Say("comparison.verdict")),
    )
    rows = tuple(
        (
            told.rivals.what,
            labels.short(*told.rivals.layout),
            Say("comparison.against", _names(told)),
            spread.both(spread.from_interval(told.verdict.ratio), "times"),
            Say(f"comparison.{told.verdict.kind}", {**_names(told), "needed": told.verdict.needed}),
        )
        for told in found
    )
    faint = frozenset(row for row, told in enumerate(found) if not told.sure)
    note = Say("comparison.ratio_note")
    return Table("verdicts", Say("comparison.verdicts"), columns, rows, merged=1, note=note, faint=faint)


def _names(told: Told) -> dict[str, Value]:
    return {"one": labels.backend(told.rivals.one), "other": labels.backend(told.rivals.other)}


def _trainings(found: Sequence[Study]) -> Iterator[Rivals]:
    names = labels.Labels((study.workload, study.params) for study in found)
    for study in found:
        name = labels.study(names.name(study.workload, study.params), study.scaling)
        for wanted in ("inside", "across"):
            rows = [row for row in study.rows if getattr(row.cell, wanted) and row.step and _usual(row)]
            most = max((row.ranks for row in rows), default=0)
            for one, other in itertools.combinations([row for row in rows if row.ranks == most], 2):
                pair = Pair(one.measured.values["step_time"], other.measured.values["step_time"])
                yield Rivals(name, one.layout, labels.plane(one.cell), labels.plane(other.cell), pair)


def _usual(row: Row) -> bool:
    return row.ranks > 1 and not row.named and row.compression == "none"


def _collectives(sweeps: Sequence[Group]) -> Iterator[Rivals]:
    names = labels.Labels((group.workload, group.params) for group in sweeps)
    for group in sweeps:
        name = names.name(group.workload, group.params)
        pairs = itertools.combinations(group.backends, 2)
        for layout, (one, other) in itertools.product(sorted(group.telling), pairs):
            ours, theirs = (group.lines.get((backend, layout), {}) for backend in (one, other))
            sizes = sorted(ours.keys() & theirs.keys())
            for size in dict.fromkeys((*sizes[:1], *sizes[-1:])):
                what = Say("comparison.sized", {"name": name, "size": Number(size, "B")})
                pair = Pair(ours[size].values["time"], theirs[size].values["time"])
                yield Rivals(what, layout, one, other, pair, collective=True)
