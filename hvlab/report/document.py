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
from hvlab.scaling import check_hosts


def document(data: ReportData, *, attached: bool = True) -> Document:
    """Return the whole report; ``attached`` says that the page will hold the records."""
    studied = studies(data)
    fitted = fits(data.configurations, virtual=data.virtual)
    predicted = predictions(data.configurations, fitted, virtual=data.virtual)
    explained = explain(data.configurations, fitted)
    good = [one for one in fitted if isinstance(one, Fit)]
    parted = terms.blocks(terms.of_steps(trainings(data.configurations), good), terms.of_collectives(good))
    swept = sweeps.groups(data)
    checks = check_hosts(data.configurations)
    judged = verdicts.judge(studied, swept, imported=data.imported)
    parts: list[Section | None] = [_environment(data)]
    if studied:
        parts += [
            scaling_tables.inside(data, studied),
            scaling_tables.across(studied),
            curves.section(studied),
        ]
    parts += [
        comparison.section(data, judged, explained, parted) if data.records else None,
        split.section(data, studied, checks),
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
        cards=tuple(opening.cards(data, studied, swept)),
        findings=tuple(opening.findings(data, studied, judged, checks)),
        sections=tuple(part for part in parts if part),
    )


def _environment(data: ReportData) -> Section:
    blocks: list[Block] = [conditions.sheet(data), conditions.software(data)]
    if data.virtual:
        blocks.append(Paragraph(Say("environment.virtual"), "warning"))
    blocks += [Paragraph(text, "warning") for text in conditions.cores(data)]
    if data.configurations:
        blocks.append(conditions.workloads(data))
    blocks += [Heading(Say("define.title")), scaling_tables.definitions()]
    return Section("environment", Say("environment.title"), tuple(blocks))
