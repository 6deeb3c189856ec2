"""The report of a run put together: its sections in the order of the lab sheet, what sums it up first."""

from __future__ import annotations

from hvlab.model.dominant import explain
from hvlab.model.fit import Fit, fits
from hvlab.model.predict import predictions
from hvlab.model.training import trainings
from hvlab.report import (
    commands,
    comparison,
    compression,
    conditions,
    curves,
    failures,
    forecast,
    models,
    opening,
    scaling_tables,
    split,
    sweeps,
    terms,
    verdicts,
)
from hvlab.report.blocks import Block, Document, Heading, Paragraph, Say, Section
from hvlab.report.data import ReportData
from hvlab.report.study import studies
from hvlab.scaling import slow_hosts


def document(data: ReportData, *, attached: bool = True) -> Document:
    """Return the whole report; ``attached`` tells that the records will be in the page."""
    found = studies(data)
    fitted = fits(data.cells, virtual=data.virtual)
    predicted = predictions(data.cells, fitted, virtual=data.virtual)
    explained = explain(data.cells, fitted)
    good = [one for one in fitted if isinstance(one, Fit)]
    parted = terms.blocks(terms.of_steps(trainings(data.cells), good), terms.of_collectives(good))
    swept = sweeps.groups(data)
    checks = slow_hosts(data.cells)
    told = verdicts.judge(found, swept)
    parts: list[Section | None] = [_environment(data)]
    if found:
        parts += [
            scaling_tables.inside(data, found),
            scaling_tables.across(found),
            curves.section(found),
        ]
    parts += [
        comparison.section(data, told, explained, parted) if data.records else None,
        split.section(data, found, checks),
        sweeps.section(data),
        models.section(data, explained),
        compression.section(data),
        forecast.section(fitted, predicted),
        failures.section(data),
        commands.section(data, attached=attached),
    ]
    return Document(
        title=Say("title"),
        head=tuple(opening.head(data)),
        cards=tuple(opening.cards(data, found, swept)),
        findings=tuple(opening.findings(data, found, told, checks)),
        sections=tuple(part for part in parts if part),
    )


def _environment(data: ReportData) -> Section:
    blocks: list[Block] = [conditions.sheet(data), conditions.software(data)]
    if data.virtual:
        blocks.append(Paragraph(Say("environment.virtual"), "warning"))
    if data.cells:
        blocks.append(conditions.workloads(data))
    blocks += [Heading(Say("define.title")), scaling_tables.definitions()]
    return Section("environment", Say("environment.title"), tuple(blocks))
