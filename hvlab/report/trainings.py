"""Trainings: all backends of one workload together, their curves of speed-up, and their hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hvlab.analysis import scaling
from hvlab.analysis.model.training import Topology, topologies
from hvlab.analysis.scaling import Curve, CurvePoint, HostCheck, slowdowns
from hvlab.report import labels
from hvlab.report.data import ReportData
from hvlab.report.labels import Value
from hvlab.report.plots import Axis, Line, Plot, Series, spread_of
from hvlab.report.words import Words
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics import interval
from hvlab.statistics.interval import Interval
from hvlab.statistics.straggler import Straggler

_LINES: Mapping[Topology, Line] = {"across": "solid", "inside": "dot", "both": "dashdot"}
_Place = tuple[tuple[int, str], bool, str, int, int]


@dataclass(frozen=True)
class StudyRow:
    """A backend on some hosts. Step time is in seconds; ``speedup`` is None without a base.

    ``named``: another row has the same shape on other hosts, as in a search for stragglers.
    """

    configuration: Configuration
    repeats: Repeats
    step: Interval | None
    throughput: Interval | None
    speedup: Interval | None
    efficiency: Interval | None
    named: bool = False

    @property
    def launch(self) -> Interval | None:
        """Time of a launch."""
        return spread_of(self.repeats, "real")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.configuration.ranks

    @property
    def compression(self) -> str:
        """Compression of gradients, or none."""
        return str(self.configuration.get("compression") or "none")

    @property
    def layout(self) -> tuple[int, int]:
        """Number of servers and of ranks on each."""
        return len(self.configuration.hosts), self.configuration.slots


@dataclass(frozen=True)
class Study:
    """One workload with its parameters, weak or strong; ``params`` are without scaling and compression.

    ``name`` identifies it. ``curves`` has one for each backend, launcher and compression, ``rows`` all their
    points.
    """

    workload: str
    scaling: str
    params: labels.Params
    name: Value
    curves: tuple[Curve, ...]
    rows: tuple[StudyRow, ...]

    @property
    def shown(self) -> list[StudyRow]:
        """Rows of the table."""
        return [row for row in self.rows if not row.named]

    @property
    def launched(self) -> bool:
        """Only the time of a launch is known, as of a user's command."""
        return not any(row.step for row in self.shown) and any(row.launch for row in self.shown)


def studies(data: ReportData) -> list[Study]:
    """Return every training of the run, strong scaling after weak of the same workload."""
    groups: dict[tuple[str, labels.Params, str], list[Curve]] = {}
    for curve in scaling.curves(data.training):
        params = tuple(item for item in curve.params if item[0] != "compression")
        groups.setdefault((curve.workload, params, curve.scaling), []).append(curve)
    names = labels.Names((workload, params) for workload, params, _ in groups)
    unsorted = [
        Study(
            workload, kind, params, names.name(workload, params),
            tuple(sorted(curves, key=lambda curve: _place(curve.points[0].configuration))),
            _rows(curves, data),
        )
        for (workload, params, kind), curves in groups.items()
    ]  # fmt: skip
    return sorted(unsorted, key=lambda study: (study.workload, str(study.params), study.scaling != "weak"))


def _rows(curves: list[Curve], data: ReportData) -> tuple[StudyRow, ...]:
    """Return the rows of all curves; the first of equal shapes is the usual one."""
    points = [(point, curve.base) for curve in curves for point in curve.points]
    points.sort(key=lambda item: _place(item[0].configuration))
    shapes: set[tuple[object, ...]] = set()
    rows = []
    for point, base in points:
        one = point.configuration
        shape = one.backend, one.launcher, str(one.get("compression")), len(one.hosts), one.slots
        rows.append(_row(point, base, data.configurations[one], named=shape in shapes))
        shapes.add(shape)
    return tuple(rows)


def _place(configuration: Configuration) -> _Place:
    compression = str(configuration.get("compression") or "none")
    order = labels.order(configuration.backend), compression != "none", compression
    return *order, len(configuration.hosts), configuration.slots


def _row(point: CurvePoint, base: Configuration | None, repeats: Repeats, *, named: bool) -> StudyRow:
    throughput = spread_of(repeats, "throughput")
    own = _relative(throughput) if point.configuration == base else None
    return StudyRow(
        point.configuration,
        repeats,
        step=spread_of(repeats, "step_time"),
        throughput=throughput,
        speedup=own or point.speedup,
        efficiency=own or point.efficiency,
        named=named,
    )


def _relative(figure: Interval | None) -> Interval | None:
    """Return a figure over its own median: 1, with its interval, which the base otherwise lacks."""
    return figure.times(1 / figure.mid) if figure and figure.mid > 0 else None


def find_best(studied: Sequence[Study], place: str) -> tuple[Study, StudyRow] | None:
    """Return the highest speed-up on several ranks, without compression, inside one server or across."""
    rows = [
        (row.speedup.mid, study, row)
        for study in studied
        for row in study.rows
        if row.speedup and row.ranks > 1 and getattr(row.configuration, place) and row.compression == "none"
    ]
    return max(rows, key=lambda item: item[0])[1:] if rows else None


def is_gain(row: StudyRow) -> bool:
    """Whether a row is faster than one rank."""
    return row.speedup is not None and row.speedup.mid > 1


def curves(data: ReportData, studied: Sequence[Study], words: Words) -> list[Plot]:
    """Return the curves of speed-up of all trainings."""
    named = [(study, words.study(study.name, study.scaling)) for study in studied]
    plots = (curve(data, study, name, number, words) for number, (study, name) in enumerate(named, 1))
    return [plot for plot in plots if plot]


def curve(data: ReportData, study: Study, name: Value, number: int, words: Words) -> Plot | None:
    """Return the speed-up of a training over ranks with the ideal line; None at one number of ranks."""
    lines = list(_lines(data, study, words))
    if not lines:
        return None
    ranks = sorted({value for line in lines for value in line.x})
    over = Axis(words.say("axis.ranks"), ticks=tuple((value, f"{value:g}") for value in ranks))
    ends = (1.0, ranks[-1])
    ideal = Series(words.say("scaling.ideal"), "ideal", ends, ends, line="dash", marks=False)
    title, scale = words.say("scaling.plot", name=name), Axis(words.say("axis.speedup"), zero=True)
    return Plot(f"speedup-{number}", title, over, scale, (ideal, *lines))


def _lines(data: ReportData, study: Study, words: Words) -> Iterator[Series]:
    rows = {row.configuration: row for row in study.shown if row.speedup}
    for one in study.curves:
        own = [rows[point.configuration] for point in one.points if point.configuration in rows]
        for kind, slots in _places(own):
            # One server is the first of several with as many ranks each.
            places = ((row, row.configuration) for row in own)
            there = [
                row for row, one in places
                if (one.slots == slots if kind == "both" else kind in topologies(one))
            ]  # fmt: skip
            points = _points(data, one, there)
            if len(points) > 1:
                row = there[0]
                backend = words.variant(row.configuration)
                name = words.say(f"scaling.line_{kind}", backend=backend, slots=slots)
                tone = row.configuration.backend if row.compression == "none" else row.compression
                yield Series.through(name, tone, points, line=_LINES[kind])


def _places(rows: Sequence[StudyRow]) -> list[tuple[Topology, int]]:
    """Return the lines: for servers with several ranks each, one line for each such number."""
    several = sorted({row.configuration.slots for row in rows if "both" in topologies(row.configuration)})
    return [("across", 1), ("inside", 0), *(("both", slots) for slots in several)]


def _points(data: ReportData, one: Curve, rows: Sequence[StudyRow]) -> list[tuple[float, Interval]]:
    """Return speed-up over ranks; at one rank it is 1, with the interval of its measurement."""
    points = sorted(((float(row.ranks), row.speedup) for row in rows if row.speedup), key=lambda one: one[0])
    if points and points[0][0] > 1 and one.base is not None:
        start = _relative(spread_of(data.configurations[one.base], "throughput"))
        return [*([(1.0, start)] if start else []), *points]
    return points


def remarks(data: ReportData, studied: Sequence[Study], words: Words) -> list[str]:
    """Return whether a step slows down more inside one server or across servers, with enough repeats."""
    # In strong scaling each rank has less to do: the same split would say little new.
    found = [
        (study, one, slowdown)
        for study in studied
        if study.scaling == "weak"
        for one in study.curves
        for slowdown in slowdowns(one, data.configurations)
    ]
    texts = []
    for study, one, slowdown in found:
        inside, between = slowdown.inside, slowdown.between
        if slowdown.repeats < interval.ENOUGH or not inside or not between:
            continue
        if inside.low > between.high or between.low > inside.high:
            larger = "inside" if inside.mid > between.mid else "between"
            texts.append(words.say(
                f"split.larger_{larger}", name=study.name, ranks=slowdown.ranks,
                backend=words.variant(one.points[0].configuration),
                inside=words.number(inside.mid, "times"), between=words.number(between.mid, "times"),
            ))  # fmt: skip
    return texts


def stragglers(checks: Sequence[HostCheck], words: Words) -> list[str]:
    """Return a sentence for each straggler, once."""
    named: dict[str, str] = {}
    for check in checks:
        for one in check.stragglers:
            why = words.say(f"hosts.why_{check.source}")
            named.setdefault(
                one.host, words.say("hosts.named", host=one.host, ratio=slower(one, words), why=why)
            )
    return list(named.values())


def slower(straggler: Straggler, words: Words) -> str:
    """Return the time of a host over that of the others."""
    return words.both(straggler.slower, "times")


def outcome(check: HostCheck) -> str:
    """Return the verdict on hosts: slow (there is a straggler), fine, or few (too few launches)."""
    return "few" if not check.decided else "slow" if check.stragglers else "fine"
