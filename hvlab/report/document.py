"""The report of a run put together: what it answers first, then figures, then conditions and commands."""

from __future__ import annotations

from hvlab.analysis.model.dominant import explain
from hvlab.analysis.model.fit import Fit, fits
from hvlab.analysis.model.predict import predictions
from hvlab.analysis.model.training import trainings
from hvlab.analysis.scaling import check_hosts
from hvlab.report import (
    answer,
    commands,
    comparison,
    compression,
    conditions,
    failures,
    forecast,
    models,
    opening,
    others,
    speedup,
    sweeps,
    terms,
    tuning,
    verdicts,
)
from hvlab.report.blocks import Block, Document, Paragraph, Say, Section
from hvlab.report.data import ReportData
from hvlab.report.study import studies


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
    judged = verdicts.judge(data, studied, swept)
    answered = answer.answers(data, judged)
    parts: list[Section | None] = [
        comparison.section(data, judged, explained, parted) if data.records else None,
        tuning.section(data.tuning),
        speedup.section(data, studied, checks) if studied else None,
        compression.section(data),
        sweeps.section(data),
        others.section(data),
        models.section(data, explained),
        forecast.section(studied, fitted, predicted),
        _environment(data),
        failures.section(data),
        commands.section(data, attached=attached),
    ]
    return Document(
        title=Say("title"),
        head=tuple(opening.head(data)),
        cards=tuple(opening.cards(data, answered, studied, swept)),
        findings=tuple(opening.findings(data, answered, studied, judged, checks)),
        warnings=tuple(conditions.warnings(data)),
        sections=tuple(part for part in parts if part),
    )


def _environment(data: ReportData) -> Section:
    blocks: list[Block] = [conditions.sheet(data), conditions.software(data)]
    blocks += [Paragraph(text, "note") for text in conditions.notes(data)]
    if data.configurations:
        blocks.append(conditions.workloads(data))
    blocks.append(speedup.definitions())
    return Section("environment", Say("environment.title"), tuple(blocks))
