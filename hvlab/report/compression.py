"""Serial training, Horovod, and Horovod with compressed gradients: the table of the second lab sheet."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hvlab.report import labels
from hvlab.report.blocks import (
    NOTHING,
    Block,
    Code,
    Column,
    Heading,
    Number,
    Paragraph,
    Points,
    Range,
    Say,
    Section,
    Several,
    Table,
    Value,
)
from hvlab.report.data import ReportData
from hvlab.report.words import clock
from hvlab.results.configurations import Cell, Measured
from hvlab.statistics.interval import Interval, median
from hvlab.statistics.student import mean

ORDER = ("none", "naive8", "8bit", "fp16", "bf16")
_TIMES = ("real", "user", "sys")
# Cells that differ in nothing else belong into one table.
_APART = ("compression", "scaling", "batch")
Cells = Mapping[Cell, Measured]


@dataclass(frozen=True)
class Comparison:
    """One workload with and without compression. ``rows`` are sorted as the lab sheet has them."""

    workload: str
    params: labels.Params
    rows: tuple[tuple[Cell, Measured], ...]

    @property
    def epochs(self) -> object:
        """Return how many epochs every row trained; None where that differs."""
        found = {cell.get("epochs") for cell, _ in self.rows}
        return found.pop() if len(found) == 1 else None


def comparisons(data: ReportData) -> list[Comparison]:
    """Return every group of trainings in which more than one compression was tried."""
    groups: dict[tuple[str, labels.Params], dict[Cell, Measured]] = {}
    for cell, measured in data.training.items():
        groups.setdefault((cell.workload, cell.without(*_APART)), {})[cell] = measured
    made = []
    for (workload, params), cells in groups.items():
        if len({cell.get("compression", "none") for cell in cells}) > 1:
            made.append(Comparison(workload, params, tuple(sorted(cells.items(), key=_sorted))))
    return made


def section(data: ReportData) -> Section | None:
    """Return the part of the report on compression; None where nothing was compressed."""
    found = comparisons(data)
    if not found:
        return None
    names = labels.Labels((one.workload, one.params) for one in found)
    blocks: list[Block] = [Paragraph(Say("compression.intro"))]
    for number, one in enumerate(found, 1):
        if len(found) > 1:
            blocks.append(Heading(names.name(one.workload, one.params)))
        said = list(remarks(one))
        blocks += [
            sheet(one, number),
            *(Paragraph(text, "warning") for verdict, text in said if verdict == "lost"),
        ]
        rest = tuple(text for verdict, text in said if verdict != "lost")
        blocks += [*([Points(rest)] if rest else []), details(one, number)]
    return Section("compression", Say("compression.title"), tuple(blocks))


def sheet(one: Comparison, number: int = 1) -> Table:
    """Return the table of the lab sheet: algorithm, devices, time as the shell tells it, accuracy."""
    columns = (
        Column(Say("compression.algorithm")),
        Column(""),
        Column(Say("compression.time")),
        Column(Say("compression.accuracy"), numeric=True),
        Column(Say("scaling.repeats"), numeric=True),
    )
    rows = tuple(
        (algorithm(cell), _devices(cell, one), _times(measured), _accuracy(measured), count(measured))
        for cell, measured in one.rows
    )
    caption = Say("compression.caption", {"epochs": str(one.epochs) if one.epochs else NOTHING})
    faint = frozenset(row for row, (_, measured) in enumerate(one.rows) if not measured.ok)
    return Table(f"compression-{number}", caption, columns, rows, merged=1, faint=faint)


def details(one: Comparison, number: int = 1) -> Table:
    """Return what compression changes: bytes, step time and accuracy with their spread."""
    columns = (
        Column(Say("compression.algorithm")),
        Column(Say("compression.layout")),
        Column(Say("compression.sent"), numeric=True),
        Column(Say("scaling.step"), numeric=True),
        Column(Say("compression.step_spread"), numeric=True),
        Column(Say("compression.accuracy_spread"), numeric=True),
        Column(Say("compression.points"), numeric=True),
    )
    rows = tuple(_detail(cell, measured, one) for cell, measured in one.rows)
    faint = frozenset(row for row, (_, measured) in enumerate(one.rows) if not measured.ok)
    caption, note = Say("compression.details"), Say("compression.details_note")
    return Table(f"compression-details-{number}", caption, columns, rows, merged=1, note=note, faint=faint)


def remarks(one: Comparison) -> Iterator[tuple[str, Value]]:
    """Yield what the accuracies say of each compression beside none: kept, lost, gained or open."""
    found: dict[tuple[str, str], list[tuple[Cell, Interval]]] = {}
    for cell, measured in one.rows:
        change = _change(cell, measured, one)
        if change is not None:
            found.setdefault((_verdict(change), str(cell.get("compression"))), []).append((cell, change))
    for (verdict, _), cells in found.items():
        points = tuple(
            Say(
                "compression.at",
                {"points": _signed(change.mid), "span": _between(change), "devices": cell.ranks},
            )
            for cell, change in cells
        )
        values: dict[str, Value] = {"algorithm": algorithm(cells[0][0]), "points": Several(points)}
        yield verdict, Say(f"compression.{verdict}", values)


_HALF_A_POINT = 0.5


def _verdict(change: Interval) -> str:
    """Return lost or gained only where the repeats leave no doubt of it."""
    if abs(change.mid) <= _HALF_A_POINT:
        return "kept"
    return "lost" if change.high < 0 else "gained" if change.low > 0 else "open"


def _between(change: Interval) -> Value:
    """Return the bounds of a change; those of one repeat are not known."""
    known = math.isfinite(change.low)
    return (
        Say("compression.span", {"low": _signed(change.low), "high": _signed(change.high)})
        if known
        else NOTHING
    )


def _signed(points: float) -> Value:
    return Say("signed.minus" if points < 0 else "signed.plus", {"value": Number(abs(points), "", 2)})


def algorithm(cell: Cell) -> Value:
    """Return the name of a row of the table."""
    if cell.backend == "serial":
        return Say("compression.serial")
    return Say(f"compression.{cell.get('compression') or 'none'}")


def count(measured: Measured) -> Value:
    """Return how many repeats went well, of how many."""
    return Say("scaling.of", {"ok": len(measured.ok), "all": measured.repeats})


def _sorted(item: tuple[Cell, Measured]) -> tuple[bool, int, int, tuple[int, str], str]:
    cell = item[0]
    known = cell.get("compression") or "none"
    place = ORDER.index(known) if known in ORDER else len(ORDER)
    return (cell.backend != "serial", place, cell.ranks, labels.order(cell.backend), str(cell))


def _devices(cell: Cell, one: Comparison) -> Value:
    if cell.backend == "serial":
        return ""
    several = {other.backend for other, _ in one.rows if other.backend != "serial"}
    alike = {(len(other.hosts), other.slots) for other, _ in one.rows if other.ranks == cell.ranks}
    said: list[Value] = [Say("compression.devices", {"count": cell.ranks})]
    if len(alike) > 1:
        said.append(labels.short(len(cell.hosts), cell.slots))
    if len(several) > 1:
        said.append(labels.backend(cell.backend))
    return Several(tuple(said))


def _times(measured: Measured) -> Value:
    told = []
    for name in _TIMES:
        values = measured.of(name)
        if values:
            told.append(Code(f"{name} {clock(statistics.median(values))}"))
    return Several(tuple(told), "list.line") if told else NOTHING


def _accuracy(measured: Measured) -> Value:
    values = measured.of("accuracy")
    return Number(statistics.median(values), "%") if values else NOTHING


def _detail(cell: Cell, measured: Measured, one: Comparison) -> tuple[Value, ...]:
    steps, accuracies, sent = (measured.of(name) for name in ("step_time", "accuracy", "sent_bytes"))
    change = _change(cell, measured, one)
    return (
        algorithm(cell),
        Several((labels.backend(cell.backend), labels.short(len(cell.hosts), cell.slots))),
        Number(statistics.median(sent), "B") if sent else NOTHING,
        Number(statistics.median(steps), "s") if steps else NOTHING,
        _range(steps, "s"),
        _range(accuracies, "%"),
        _signed(change.mid) if change else NOTHING,
    )


def _range(values: Iterable[float], unit: str, digits: int = 3) -> Value:
    found = tuple(values)
    if len(found) < _TWO:
        return NOTHING
    spread = median(found)
    return Range(spread.low, spread.high, unit, digits)


_TWO = 2


def _change(cell: Cell, measured: Measured, one: Comparison) -> Interval | None:
    """Return the accuracy against the same training without compression, in points of percent.

    A repeat is held against that of the same number, which had the same seed.
    """
    if cell.backend == "serial" or (cell.get("compression") or "none") == "none":
        return None
    whole = next(
        (
            other.values.get("accuracy", {})
            for base, other in one.rows
            if base.backend == cell.backend and base.hosts == cell.hosts and base.slots == cell.slots
            and (base.get("compression") or "none") == "none"
        ),
        {},
    )  # fmt: skip
    values = measured.values.get("accuracy", {})
    changes = [values[repeat] - whole[repeat] for repeat in sorted(values.keys() & whole.keys())]
    return mean(changes) if changes else None
