"""Speed-up inside one server and across servers: curves and tables of the trainings, and the stragglers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hvlab.analysis.model.sweep import Topology, topologies
from hvlab.analysis.scaling import Curve, HostCheck, Slowdown, slowdowns
from hvlab.report import hosts, iterations, labels, spread
from hvlab.report.blocks import (
    Axis,
    Block,
    Column,
    Heading,
    Line,
    Number,
    Paragraph,
    Plot,
    Points,
    Say,
    Section,
    Series,
    Table,
    Terms,
    Value,
)
from hvlab.report.data import ReportData
from hvlab.report.spread import Spread
from hvlab.report.study import Study, StudyRow, relative
from hvlab.results.configurations import Configuration
from hvlab.statistics import ratio

_COLUMNS = (
    Column(Say("scaling.backend")),
    Column(Say("scaling.servers"), numeric=True),
    Column(Say("scaling.slots"), numeric=True),
    Column(Say("scaling.step"), numeric=True),
    Column(Say("scaling.throughput"), numeric=True),
    Column(Say("scaling.speedup"), numeric=True),
    Column(Say("scaling.efficiency"), numeric=True),
    Column(Say("scaling.step_spread"), numeric=True),
    Column(Say("scaling.speedup_spread"), numeric=True),
    Column(Say("scaling.repeats"), numeric=True),
)
# The columns that a command has other figures in.
_STEP, _STEP_SPREAD = 3, 7
_LINES: Mapping[Topology, Line] = {"across": "solid", "inside": "dot", "both": "dashdot"}


def section(data: ReportData, studies: Sequence[Study], checks: Sequence[HostCheck]) -> Section:
    """Return the part of the report on speed-up; ``checks`` are the checks for stragglers."""
    names = labels.Labels((study.workload, study.params) for study in studies)
    plots: list[Block] = []
    tables: list[Block] = []
    remarks: list[Value] = []
    for number, study in enumerate(studies, 1):
        name = names.name(study.workload, study.params)
        whole = labels.study(name, study.scaling)
        plots += filter(None, [curve(data, study, whole, number)])
        tables += _tables(study, whole, number)
        remarks += _remarks(data, study, name)
    notes: list[Block] = [] if data.on_gpus else [Paragraph(Say("scaling.slots_are_processes"), "note")]
    if not plots:
        notes.append(Paragraph(Say("scaling.no_curves"), "note"))
    points: list[Block] = [Points(tuple(remarks))] if remarks else []
    rows = [row.configuration for study in studies for row in study.rows if not row.named]
    single = filter(None, [iterations.table(data, rows, "steps")])
    stragglers = [Heading(Say("hosts.title")), *hosts.blocks(checks)]
    return Section("speedup", Say("scaling.title"), (*notes, *plots, *tables, *single, *points, *stragglers))


def definitions() -> Terms:
    """Return what the words of the tables mean."""
    names = ("step", "throughput", "speedup", "efficiency", "weak", "strong", "spread", "repeats")
    terms = tuple((Say(f"define.{name}"), Say(f"meaning.{name}")) for name in names)
    return Terms(terms, folded=Say("define.title"))


def curve(data: ReportData, study: Study, name: Value, number: int) -> Plot | None:
    """Return the speed-up of a training over ranks with the ideal line; None at one number of ranks."""
    lines = list(_lines(data, study))
    if not lines:
        return None
    ranks = sorted({value for line in lines for value in line.x})
    over = Axis(Say("axis.ranks"), ticks=tuple((value, f"{value:g}") for value in ranks))
    ends = (1.0, ranks[-1])
    ideal = Series(Say("scaling.ideal"), "ideal", ends, ends, line="dash", marks=False)
    title, scale = Say("scaling.plot", {"name": name}), Axis(Say("axis.speedup"), zero=True)
    return Plot(f"speedup-{number}", title, over, scale, (ideal, *lines))


def _tables(study: Study, name: Value, number: int) -> list[Block]:
    """Return the lab sheet's table, inside one server and across servers together.

    Of a command without a throughput only the time of a launch is known.
    """
    rows = [row for row in study.rows if not row.named]
    within = any(row.step is not None and row.step.within for row in rows)
    faint = frozenset(place for place, row in enumerate(rows) if row.step is None)
    note = Say("scaling.within") if within else None
    columns, cells = [*_COLUMNS], [[*_row(row)] for row in rows]
    if not any(row.step for row in rows) and any(row.repeats.of("real") for row in rows):
        columns[_STEP] = Column(Say("scaling.launch"), numeric=True)
        columns[_STEP_SPREAD] = Column(Say("scaling.launch_spread"), numeric=True)
        faint = frozenset(place for place, row in enumerate(rows) if not row.repeats.ok)
        for own, row in zip(cells, rows, strict=True):
            launch = spread.of(row.repeats, "real")
            own[_STEP], own[_STEP_SPREAD] = spread.number(launch, "s"), spread.span(launch, "s")
    blocks: list[Block] = [
        Table(
            f"speedup-table-{number}", name, tuple(columns), tuple(map(tuple, cells)), note=note, faint=faint
        )
    ]
    if any(row.step for row in rows) and not any(row.speedup for row in rows):
        blocks.append(Paragraph(Say("scaling.no_base"), "note"))
    return blocks


def _row(row: StudyRow) -> tuple[Value, ...]:
    return (
        labels.variant(row.configuration),
        len(row.configuration.hosts),
        row.configuration.slots,
        spread.number(row.step, "s"),
        spread.number(row.throughput, row.configuration.unit("throughput")),
        spread.number(row.speedup, "x"),
        spread.number(row.efficiency, "ratio"),
        spread.span(row.step, "s"),
        spread.span(row.speedup, "x"),
        spread.count(row.repeats),
    )


def _lines(data: ReportData, study: Study) -> Iterator[Series]:
    rows = {row.configuration: row for row in study.rows if row.speedup and not row.named}
    for one in study.curves:
        own = [rows[point.configuration] for point in one.points if point.configuration in rows]
        for kind, slots in _places(own):
            there = [row for row in own if _stands(row.configuration, kind, slots)]
            points = _points(data, one, there)
            if len(points) > 1:
                backend = labels.variant(there[0].configuration)
                name = Say(f"scaling.line_{kind}", {"backend": backend, "slots": slots})
                yield _line(points, name, there[0], _LINES[kind])


def _places(rows: Sequence[StudyRow]) -> list[tuple[Topology, int]]:
    """Return what has a line of its own; servers with several ranks each have one for each such number."""
    several = sorted({row.configuration.slots for row in rows if "both" in topologies(row.configuration)})
    return [("across", 1), ("inside", 0), *(("both", slots) for slots in several)]


def _stands(configuration: Configuration, kind: Topology, slots: int) -> bool:
    """Return whether a configuration is on a line; one server is the first of several with as many ranks."""
    return configuration.slots == slots if kind == "both" else kind in topologies(configuration)


def _points(data: ReportData, one: Curve, rows: Sequence[StudyRow]) -> list[tuple[int, Spread]]:
    """Return speed-up over ranks; at one rank it is 1, with the interval of whatever that was measured on."""
    points = sorted(((row.ranks, row.speedup) for row in rows if row.speedup), key=lambda point: point[0])
    if points and points[0][0] > 1 and one.base is not None:
        start = relative(spread.of(data.configurations[one.base], "throughput"))
        return [*([(1, start)] if start else []), *points]
    return points


def _line(points: Sequence[tuple[int, Spread]], name: Say, row: StudyRow, style: Line) -> Series:
    return Series(
        name,
        row.configuration.backend if row.compression == "none" else row.compression,
        tuple(float(ranks) for ranks, _ in points),
        tuple(each.mid for _, each in points),
        tuple(each.low for _, each in points),
        tuple(each.high for _, each in points),
        line=style,
    )


def _remarks(data: ReportData, study: Study, name: Value) -> Iterator[Value]:
    """Yield where a step slows down more, inside one server or across servers, with enough repeats."""
    # In strong scaling each rank has less to do: the same split would say little new.
    if study.scaling == "weak":
        for one in study.curves:
            for slowdown in slowdowns(one, data.configurations):
                yield from _remark(slowdown, name, labels.variant(one.points[0].configuration))


def _remark(slowdown: Slowdown, name: Value, backend: Value) -> Iterator[Value]:
    inside, between = slowdown.inside, slowdown.between
    if slowdown.repeats < ratio.ENOUGH or not inside or not between:
        return
    if inside.low > between.high or between.low > inside.high:
        larger = "inside" if inside.mid > between.mid else "between"
        yield Say(f"split.larger_{larger}", {
            "name": name, "backend": backend, "ranks": slowdown.ranks,
            "inside": Number(inside.mid, "times"), "between": Number(between.mid, "times"),
        })  # fmt: skip
