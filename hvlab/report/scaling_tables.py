"""The lab sheet's tables of speed-up: inside one server, and across servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hvlab.report import labels, spread
from hvlab.report.blocks import (
    Block,
    Column,
    Paragraph,
    Say,
    Section,
    Table,
    Terms,
    Value,
)
from hvlab.report.data import ReportData
from hvlab.report.study import Study, StudyRow

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


def definitions() -> Terms:
    """Return what the words of the tables mean."""
    names = ("step", "throughput", "speedup", "efficiency", "weak", "strong", "spread", "repeats")
    return Terms(tuple((Say(f"define.{name}"), Say(f"meaning.{name}")) for name in names))


def inside(data: ReportData, studies: Sequence[Study]) -> Section:
    """Return the part on ranks that share one server."""
    blocks = _tables(studies, "inside", lambda row: row.configuration.inside)
    notes: list[Block] = [] if data.on_gpus else [Paragraph(Say("scaling.slots_are_processes"), "note")]
    return Section("inside", Say("scaling.inside"), (*notes, *(blocks or _missing("inside"))))


def across(studies: Sequence[Study]) -> Section:
    """Return the part on servers with one rank each, and on those with several."""
    blocks = [
        *_tables(studies, "across", lambda row: row.configuration.across),
        *_tables(studies, "both", lambda row: not row.configuration.inside and not row.configuration.across),
    ]
    return Section("across", Say("scaling.across"), tuple(blocks or _missing("across")))


def table(rows: Sequence[StudyRow], key: str, caption: Value) -> Table:
    """Return a table of the lab sheet with these rows; efficiency, spread and repeats stand at its right."""
    within = any(row.step is not None and row.step.within for row in rows)
    faint = frozenset(number for number, row in enumerate(rows) if row.step is None)
    note = Say("scaling.within") if within else None
    return Table(key, caption, _COLUMNS, tuple(map(_row, rows)), note=note, faint=faint)


def _tables(studies: Sequence[Study], kind: str, chosen: Callable[[StudyRow], bool]) -> list[Block]:
    """Return a table for each study that has several ranks there."""
    names = labels.Labels((study.workload, study.params) for study in studies)
    blocks: list[Block] = []
    for number, study in enumerate(studies, 1):
        rows = [row for row in study.rows if chosen(row) and not row.named]
        if any(row.ranks > 1 for row in rows):
            values = {
                "name": names.name(study.workload, study.params),
                "scaling": labels.scaling(study.scaling),
            }
            blocks.append(table(rows, f"{kind}-{number}", Say(f"scaling.caption_{kind}", values)))
            if any(row.step for row in rows) and not any(row.speedup for row in rows):
                blocks.append(Paragraph(Say("scaling.no_base"), "note"))
    return blocks


def _missing(kind: str) -> list[Block]:
    return [Paragraph(Say(f"scaling.no_{kind}"), "note")]


def _row(row: StudyRow) -> tuple[Value, ...]:
    return (
        labels.variant(row.configuration),
        len(row.configuration.hosts),
        row.configuration.slots,
        spread.number(row.step, "s"),
        spread.number(row.throughput, "samples/s"),
        spread.number(row.speedup, "x"),
        spread.number(row.efficiency, "ratio"),
        spread.span(row.step, "s"),
        spread.span(row.speedup, "x"),
        spread.count(row.repeats),
    )
