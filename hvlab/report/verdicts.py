"""Which backend is faster: verdicts on all pairs of a run, as one family of tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hvlab.analysis.compare.comparison import figures
from hvlab.analysis.compare.decisions import deciding, questions
from hvlab.analysis.compare.measurements import whole
from hvlab.analysis.model.costs import COLLECTIVES
from hvlab.report import labels, spread
from hvlab.report.blocks import Axis, Column, Number, Plot, Range, Say, Series, Several, Table, Value
from hvlab.report.data import ReportData
from hvlab.report.study import Study, StudyRow
from hvlab.report.sweeps import Layout, SweepGroup
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics.sequential import decided, holds
from hvlab.statistics.verdict import Pair, Verdict
from hvlab.workloads.metrics import METRICS

# Ratios below this have finer labels; those from 100 on have no places.
_NEAR, _MANY = 1.4, 100


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


def judge(data: ReportData, studies: Sequence[Study], sweeps: Sequence[SweepGroup]) -> list[BackendVerdict]:
    """Return the verdict on every two backends: step times of trainings, and all sizes of sweeps.

    A run of two sides has its own question: A against B, in all that both measured. What an early look
    decided and all repeats do not show is not distinguishable here.
    """
    pairs = [*_sides(data)] if data.sides else [*_trainings(studies), *_collectives(sweeps)]
    verdicts = data.compare([each.pair for each in pairs])
    shown = [
        replace(one, kind="unclear") if decided(one) and not holds(one, pair.pair.better) else one
        for pair, one in zip(pairs, verdicts, strict=True)
    ]
    return [BackendVerdict(each, verdict) for each, verdict in zip(pairs, shown, strict=True)]


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
    return Table(
        "verdicts", Say("comparison.verdicts"), columns, rows, merged=1, note=note, faint=faint,
        folded=Say("comparison.as_table"),
    )  # fmt: skip


def forest(verdicts: Sequence[BackendVerdict]) -> Plot | None:
    """Return the ratio of the times of every two backends with its interval; None where there is none.

    A mark has the colour of the faster backend where the verdict is significant, and is hollow elsewhere.
    """
    shown = [(one, one.verdict.ratio) for one in verdicts if one.verdict.ratio]
    if not shown:
        return None
    pairs = {(one.backends.one, one.backends.other) for one, _ in shown}
    groups: dict[str, list[int]] = {}
    for place, (one, _) in enumerate(shown):
        groups.setdefault(labels.tone(one.winner) if one.significant else one.verdict.kind, []).append(place)
    series = []
    for tone, places in groups.items():
        first, ratios = shown[places[0]][0], [shown[place][1] for place in places]
        series.append(Series(
            Say(f"comparison.{first.verdict.kind}", {**_names(first), "needed": first.verdict.needed}), tone,
            x=tuple(ratio.mid for ratio in ratios), y=tuple(map(float, places)),
            low=tuple(ratio.low for ratio in ratios), high=tuple(ratio.high for ratio in ratios), line="none",
        ))  # fmt: skip
    ends = [end for _, ratio in shown for end in (ratio.low, ratio.high)]
    title = Say("axis.ratio_of" if len(pairs) == 1 else "axis.ratio", _names(shown[0][0]))
    ticks = tuple((tick, f"{tick:.2g}" if tick < _MANY else f"{tick:.0f}") for tick in _ticks(ends))
    categories = tuple(_category(one, several=len(pairs) > 1) for one, _ in shown)
    return Plot(
        "ratios", Say("comparison.forest"), Axis(title, log=True, ticks=ticks, lines=(1.0,)), Axis(""),
        series=tuple(series), categories=categories,
    )  # fmt: skip


def _category(one: BackendVerdict, *, several: bool) -> Value:
    pair: tuple[Value, ...] = (Say("comparison.against", _names(one)),) if several else ()
    return Several((one.backends.what, labels.short(*one.backends.layout), *pair))


def _ticks(ends: Sequence[float]) -> list[float]:
    """Return round ratios on both sides of 1, as far as the intervals reach."""
    low, high = min(ends), max(ends)
    steps = (1.1, 1.2, 1.5) if max(high, 1 / low) < _NEAR else (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
    below = [1 / step for step in steps if 1 / step >= low]
    return [*reversed(below), 1.0, *(step for step in steps if step <= high)]


def _names(judged: BackendVerdict) -> dict[str, Value]:
    return {"one": labels.backend(judged.backends.one), "other": labels.backend(judged.backends.other)}


def _trainings(studies: Sequence[Study]) -> Iterator[BackendPair]:
    names = labels.Labels((study.workload, study.params) for study in studies)
    for study in studies:
        name = labels.study(names.name(study.workload, study.params), study.scaling)
        for place in ("inside", "across"):
            rows = [row for row in study.rows if getattr(row.configuration, place) and _usual(row)]
            for one, other in itertools.combinations(_most(rows), 2):
                # A command may have printed its throughput over one of them only.
                metric = one.repeats.timed if one.repeats.timed == other.repeats.timed else "real"
                times = one.repeats.times(metric), other.repeats.times(metric)
                if not all(times):
                    continue
                pair = Pair(*times, launches=(one.configuration, other.configuration))
                yield BackendPair(
                    name, one.layout, labels.plane(one.configuration), labels.plane(other.configuration), pair
                )


def _most(rows: Sequence[StudyRow]) -> list[StudyRow]:
    """Return the rows of the layout with the most ranks that several have; of as many, on the most hosts."""
    layouts: dict[Layout, list[StudyRow]] = {}
    for row in rows:
        layouts.setdefault(row.layout, []).append(row)
    several = [layout for layout, own in layouts.items() if len(own) > 1]
    return layouts[max(several, key=lambda layout: (math.prod(layout), layout))] if several else []


def _sides(data: ReportData) -> Iterator[BackendPair]:
    every = list(questions(data.configurations, data.sides))
    # One rank is there for the speed-up, unless there is nothing else.
    asked = [(a, b) for a, b in every if a.ranks > 1] or every
    names = labels.Labels((a.workload, _common(a, data)) for a, _ in asked)
    for a, b in asked:
        metric = deciding(a, b, data.configurations)
        times = [_times(data.configurations[side], metric) for side in (a, b)]
        if all(times):
            size, name = a.get("size_bytes"), names.name(a.workload, _common(a, data))
            what = Say("comparison.sized", {"name": name, "size": Number(size, "B")}) if size else name
            pair = Pair(times[0], times[1], launches=(whole(a), whole(b)))
            layout = len(a.hosts), a.slots
            yield BackendPair(what, layout, "A", "B", pair, collective=a.workload in COLLECTIVES)


def _times(repeats: Repeats, metric: str) -> dict[int, float]:
    """Return what each repeat took; where throughput decides, for a sample: ratios are of times."""
    values = figures(repeats, metric)
    if METRICS[metric].better != "high":
        return values
    return {repeat: 1 / rate for repeat, rate in values.items() if rate > 0}


def _common(configuration: Configuration, data: ReportData) -> labels.Params:
    switched = {name for settings in data.sides.values() for name in settings}
    return configuration.without("size_bytes", "side", *switched)


def _usual(row: StudyRow) -> bool:
    times = row.repeats.times()
    return bool(times) and row.ranks > 1 and not row.named and row.compression == "none"


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
