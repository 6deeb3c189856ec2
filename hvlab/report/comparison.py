"""Backends compared: which is faster, why, and which one carried the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hvlab.analysis.model.explanation import Explanation
from hvlab.lab.backends import SERIAL
from hvlab.report import labels, verdicts
from hvlab.report.blocks import Block, Column, Heading, Paragraph, Points, Say, Section, Table, Value
from hvlab.report.data import ReportData
from hvlab.report.reasons import about, of_kind, reason
from hvlab.report.verdicts import BackendVerdict


def section(
    data: ReportData,
    judged: Sequence[BackendVerdict],
    explanations: Sequence[Explanation],
    terms: Sequence[Block],
) -> Section:
    """Return the part of the report that compares backends.

    ``judged`` are the verdicts, ``explanations`` come from the model, ``terms`` say where the time goes.
    """
    blocks: list[Block] = [] if judged else [*_missing(data)]
    if plot := verdicts.forest(judged):
        key = "comparison.forest_imported" if data.imported else "comparison.forest_note"
        blocks += [replace(plot, note=Say(key))]
    if judged:
        blocks.append(verdicts.table(judged, imported=data.imported))
    claims = [] if data.imported else of_kind(explanations, "faster")
    faster = [_supported(one, judged) for one in claims]
    if faster:
        sentences = tuple(
            Say("comparison.line", {"about": about(one), "reason": reason(one)}) for one in faster
        )
        blocks += [Heading(Say("comparison.reasons")), Points(sentences)]
    return Section("comparison", Say("comparison.title"), (*blocks, *terms, *proof(data)))


def _missing(data: ReportData) -> list[Block]:
    """Return why nothing is compared."""
    tried = {configuration.backend for configuration in data.configurations} - {SERIAL}
    measured = {
        configuration.backend for configuration, repeats in data.configurations.items() if repeats.ok
    } - {SERIAL}
    if not data.sides and len(measured) > 1:
        return [Paragraph(Say("comparison.apart"), "note")]
    why = "no_sides" if data.sides else "one_shown" if len(tried) > 1 else "none"
    return [Paragraph(Say(f"comparison.{why}"), "note")]


def _supported(one: Explanation, judged: Sequence[BackendVerdict]) -> Explanation:
    """Return an explanation, or that both are alike where no verdict on a collective supports it."""
    first, second = one.names["faster"], one.names["slower"]
    inside = one.names["topology"] == "inside"
    winners = {
        each.winner
        for each in judged
        if each.significant
        and each.backends.collective
        and {each.backends.one, each.backends.other} == {first, second}
        and (each.backends.layout[0] == 1) is inside
    }
    named = {first, second} if one.key == "faster.crossing" else {first}
    return one if named <= winners else replace(one, key="faster.alike")


def proof(data: ReportData) -> list[Block]:
    """Return what Horovod's timeline showed of every case: a sentence, or a table where any proof lacks."""
    cases_by_proof: dict[tuple[str, str], dict[str, str]] = {}
    for record in data.records:
        if record.status != "skipped":
            cases = cases_by_proof.setdefault((record.backend, record.proved_backend or ""), {})
            cases[record.case_id] = record.status
    columns = (
        Column(Say("comparison.proof_requested")),
        Column(Say("comparison.proof_shown")),
        Column(Say("comparison.proof_cases"), numeric=True),
        Column(Say("comparison.proof_verdict")),
    )
    rows = []
    for requested, shown in sorted(cases_by_proof, key=lambda key: (labels.order(key[0]), key[1])):
        carriers = labels.backends(shown.split("+")) if shown else Say("comparison.unproved")
        rows.append(
            (
                labels.backend(requested),
                carriers,
                len(cases_by_proof[requested, shown]),
                _verdict(requested, shown),
            )
        )
    if not rows:
        return []
    counts = {(requested, shown): len(cases) for (requested, shown), cases in cases_by_proof.items()}
    if all(requested in (shown, SERIAL) for requested, shown in counts):
        parallel = {requested: count for (requested, _), count in counts.items() if requested != SERIAL}
        names: dict[str, Value] = {"backends": labels.backends(sorted(parallel, key=labels.order))}
        proved = Say("comparison.proved", {**names, "count": sum(parallel.values())})
        return [Paragraph(proved)] if parallel else []
    table = Table("proof", Say("comparison.proof_caption"), columns, tuple(rows), merged=1)
    return [Heading(Say("comparison.proof")), table]


def _verdict(requested: str, shown: str) -> Say:
    if requested == SERIAL:
        return Say("comparison.proof_serial")
    if not shown:
        return Say("comparison.proof_missing")
    return Say("comparison.proof_yes" if requested == shown else "comparison.proof_no")
