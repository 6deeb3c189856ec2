"""The faster backend: verdicts on all pairs of a run, as one family of tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hvlab.analysis.compare.comparison import figures, without_size
from hvlab.analysis.compare.decisions import deciding, questions
from hvlab.base.groups import grouped
from hvlab.report import labels
from hvlab.report.collectives import Layout, SweepGroup
from hvlab.report.data import ReportData
from hvlab.report.labels import Value
from hvlab.report.plots import Axis, Plot, Series
from hvlab.report.trainings import Study, StudyRow
from hvlab.report.words import Words
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics.interval import Interval
from hvlab.statistics.sequential import holds, is_decided
from hvlab.statistics.verdict import Pair, Verdict
from hvlab.workloads.metrics import METRICS
from hvlab.workloads.operations import COLLECTIVES

# Ratios below this have finer labels; those from 100 on have no places.
_NEAR, _MANY = 1.4, 100


@dataclass(frozen=True)
class BackendPair:
    """Two backends under equal conditions: a training, or a ``size`` of a collective, at a layout."""

    name: Value
    layout: Layout
    one: str
    other: str
    pair: Pair
    collective: bool = False
    scaling: str = ""
    size: int | None = None

    def what(self, words: Words) -> Value:
        """Return the name of the measurement."""
        if self.size is None:
            return words.study(self.name, self.scaling)
        return words.say("comparison.sized", name=self.name, size=words.number(self.size, "B"))

    def names(self, words: Words) -> dict[str, str]:
        """Return the names of both."""
        return {"one": words.backend(self.one), "other": words.backend(self.other)}


@dataclass(frozen=True)
class BackendVerdict:
    """The verdict on two backends."""

    backends: BackendPair
    verdict: Verdict

    @property
    def significant(self) -> bool:
        """One of them is faster."""
        return self.verdict.kind in ("faster", "slower")

    @property
    def ratio(self) -> Interval | None:
        """Ratio of their times."""
        return self.verdict.ratio

    @property
    def winner(self) -> str:
        """The faster one, if significant."""
        return self.backends.one if self.verdict.kind == "faster" else self.backends.other

    @property
    def apart(self) -> float:
        """Absolute logarithm of their ratio."""
        return abs(math.log(self.verdict.ratio.mid)) if self.verdict.ratio else 0.0


def judge(data: ReportData, studies: Sequence[Study], sweeps: Sequence[SweepGroup]) -> list[BackendVerdict]:
    """Return the verdict on every two backends: step times of trainings, and all sizes of sweeps.

    A run of two sides has its own question: A against B, in everything that both measured. An early decision
    that all repeats contradict counts as not distinguishable here.
    """
    pairs = [*_sides(data)] if data.sides else [*_trainings(studies), *_collectives(sweeps)]
    verdicts = data.compare([each.pair for each in pairs])
    shown = [
        replace(one, kind="unclear") if is_decided(one) and not holds(one, pair.pair.better) else one
        for pair, one in zip(pairs, verdicts, strict=True)
    ]
    return [BackendVerdict(each, verdict) for each, verdict in zip(pairs, shown, strict=True)]


def sentence(judged: BackendVerdict, words: Words) -> str:
    """Return the speed ratio of the faster one; unless significant, also the verdict."""
    pair, ratio = judged.backends, judged.ratio
    if ratio is None:
        return format_verdict(judged, words)
    first = ratio.mid <= 1
    shown = times(judged.verdict.ratio) if first else ratio
    faster, slower = (pair.one, pair.other) if first else (pair.other, pair.one)
    return words.say(
        "comparison.claim" if judged.significant else "comparison.no_claim", name=pair.what(words),
        layout=words.layout(*pair.layout), faster=words.backend(faster), slower=words.backend(slower),
        ratio=words.middle(shown, "times"), span=words.ends(shown, "times"),
        repeats=min(len(pair.pair.a), len(pair.pair.b)), verdict=format_verdict(judged, words),
    )  # fmt: skip


def card(judged: BackendVerdict, words: Words) -> tuple[str, str, str]:
    """Return a significant verdict as a tile: what was measured, the faster one, and by how much."""
    pair, first = judged.backends, judged.verdict.kind == "faster"
    return (
        words.say("card.faster", name=pair.what(words)),
        words.backend(judged.winner),
        words.say(
            "card.by", ratio=words.both(times(judged.ratio) if first else judged.ratio, "times"),
            other=words.backend(pair.other if first else pair.one), layout=words.layout(*pair.layout),
        ),
    )  # fmt: skip


def times(ratio: Interval | None) -> Interval | None:
    """Return the first one's speed over the other's: the inverse of a verdict's ratio of times."""
    return Interval(1 / ratio.high, 1 / ratio.mid, 1 / ratio.low) if ratio else None


def format_verdict(judged: BackendVerdict, words: Words) -> str:
    """Return a verdict in a few words."""
    verdict = judged.verdict
    return words.say(f"comparison.{verdict.kind}", **judged.backends.names(words), needed=verdict.needed)


def forest(verdicts: Sequence[BackendVerdict], words: Words, *, imported: bool) -> list[Plot]:
    """Return the ratio of the times of every two backends with its interval, as one plot, if there is any.

    A significant mark has the colour of the faster backend; others are hollow.
    """
    shown = [(one, ratio) for one in verdicts if (ratio := one.ratio)]
    if not shown:
        return []
    pairs = {(one.backends.one, one.backends.other) for one, _ in shown}
    groups = grouped(
        (labels.tone(one.winner) if one.significant else one.verdict.kind, place)
        for place, (one, _) in enumerate(shown)
    )
    lines = []
    for tone, places in groups.items():
        ratios = [shown[place][1] for place in places]
        lines.append(Series(
            format_verdict(shown[places[0]][0], words), tone,
            x=tuple(ratio.mid for ratio in ratios), y=tuple(map(float, places)),
            low=tuple(ratio.low for ratio in ratios), high=tuple(ratio.high for ratio in ratios), line="none",
        ))  # fmt: skip
    title = words.say(
        "axis.ratio_of" if len(pairs) == 1 else "axis.ratio", **shown[0][0].backends.names(words)
    )
    categories = []
    for one, _ in shown:
        pair = one.backends
        against = [words.say("comparison.against", **pair.names(words))] if len(pairs) > 1 else []
        categories.append(words.join((pair.what(words), words.short(*pair.layout), *against)))
    ends = [end for _, ratio in shown for end in (ratio.low, ratio.high)]
    ticks = tuple((tick, f"{tick:.2g}" if tick < _MANY else f"{tick:.0f}") for tick in _ticks(ends))
    return [Plot(
        "ratios", words.say("comparison.forest"), Axis(title, log=True, ticks=ticks, lines=(1.0,)), Axis(""),
        series=tuple(lines), categories=tuple(categories),
        note=words.say("comparison.forest_imported" if imported else "comparison.forest_note"),
    )]  # fmt: skip


def _ticks(ends: Sequence[float]) -> list[float]:
    low, high = min(ends), max(ends)
    steps = (1.1, 1.2, 1.5) if max(high, 1 / low) < _NEAR else (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
    below = [1 / step for step in steps if 1 / step >= low]
    return [*reversed(below), 1.0, *(step for step in steps if step <= high)]


def _trainings(studies: Sequence[Study]) -> Iterator[BackendPair]:
    for study in studies:
        for place in ("inside", "across"):
            rows = [row for row in study.rows if getattr(row.configuration, place) and _is_usual(row)]
            for one, other in itertools.combinations(_find_largest(rows), 2):
                # A command may have printed its throughput over one of them only.
                metric = one.repeats.timed if one.repeats.timed == other.repeats.timed else "real"
                times = one.repeats.times(metric), other.repeats.times(metric)
                if not all(times):
                    continue
                pair = Pair(*times, launches=(one.configuration, other.configuration))
                planes = labels.plane(one.configuration), labels.plane(other.configuration)
                yield BackendPair(study.name, one.layout, *planes, pair, scaling=study.scaling)


def _find_largest(rows: Sequence[StudyRow]) -> list[StudyRow]:
    """Return the rows of the layout with the most ranks (then hosts) that several have."""
    layouts = grouped((row.layout, row) for row in rows)
    several = [layout for layout, own in layouts.items() if len(own) > 1]
    return layouts[max(several, key=lambda layout: (math.prod(layout), layout))] if several else []


def _sides(data: ReportData) -> Iterator[BackendPair]:
    every = list(questions(data.configurations, data.sides))
    # Cases of one rank serve the speed-up; they are compared only if there are no others.
    asked = [(a, b) for a, b in every if a.ranks > 1] or every
    names = labels.Names((a.workload, _common(a, data)) for a, _ in asked)
    for a, b in asked:
        metric = deciding(a, b, data.configurations)
        times = [_side(data.configurations[side], metric) for side in (a, b)]
        if all(times):
            name, size = names.name(a.workload, _common(a, data)), a.get("size_bytes")
            pair = Pair(times[0], times[1], launches=(without_size(a), without_size(b)))
            yield BackendPair(
                name, (len(a.hosts), a.slots), "A", "B", pair, collective=a.workload in COLLECTIVES,
                size=size if isinstance(size, int) else None,
            )  # fmt: skip


def _side(repeats: Repeats, metric: str) -> dict[int, float]:
    """Return the time of each repeat, or of a sample if throughput decides."""
    values = figures(repeats, metric)
    if METRICS[metric].better != "high":
        return values
    return {repeat: 1 / rate for repeat, rate in values.items() if rate > 0}


def _common(configuration: Configuration, data: ReportData) -> labels.Params:
    switched = {name for settings in data.sides.values() for name in settings}
    return configuration.without("size_bytes", "side", *switched)


def _is_usual(row: StudyRow) -> bool:
    times = row.repeats.times()
    return bool(times) and row.ranks > 1 and not row.named and row.compression == "none"


def _collectives(sweeps: Sequence[SweepGroup]) -> Iterator[BackendPair]:
    for group in sweeps:
        pairs = itertools.combinations(group.backends, 2)
        case = (group.workload, group.params)
        for layout, (one, other) in itertools.product(sorted(group.telling), pairs):
            ours, theirs = (group.lines.get((backend, layout), {}) for backend in (one, other))
            for size in sorted(ours.keys() & theirs.keys()):
                launches = ((*case, one, layout), (*case, other, layout))
                pair = Pair(ours[size].values["time"], theirs[size].values["time"], launches=launches)
                yield BackendPair(group.name, layout, one, other, pair, collective=True, size=size)
