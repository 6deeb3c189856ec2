"""Backends compared: which is quicker, which term decides, and what really carried the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hvlab.model.explanation import Explanation
from hvlab.report import labels, verdicts
from hvlab.report.blocks import Block, Column, Heading, Paragraph, Points, Say, Section, Table
from hvlab.report.data import ReportData
from hvlab.report.reasons import about, of_kind, reason
from hvlab.report.verdicts import Told


def section(
    data: ReportData, told: Sequence[Told], found: Sequence[Explanation], terms: Sequence[Block]
) -> Section:
    """Return the part of the report that compares backends.

    ``told`` is what the repeats carry, ``found`` what the model explains, ``terms`` where the time goes.
    """
    blocks: list[Block] = [_intro(data)]
    if told:
        blocks.append(verdicts.table(told))
    faster = [_carried(one, told) for one in of_kind(found, "faster")]
    if faster:
        said = tuple(Say("comparison.line", {"about": about(one), "reason": reason(one)}) for one in faster)
        blocks += [Heading(Say("comparison.reasons")), Points(said)]
    return Section("comparison", Say("comparison.title"), (*blocks, *terms, *proof(data)))


def _intro(data: ReportData) -> Paragraph:
    """Return what is compared, or why nothing is."""
    tried = {cell.backend for cell in data.cells} - {"serial"}
    seen = {cell.backend for cell, measured in data.cells.items() if measured.ok} - {"serial"}
    if len(seen) > 1:
        return Paragraph(Say("comparison.intro"))
    return Paragraph(Say("comparison.one_shown" if len(tried) > 1 else "comparison.none"), "note")


def _carried(one: Explanation, told: Sequence[Told]) -> Explanation:
    """Return an explanation, or that both are alike where no repeats of a collective carry what it says."""
    first, second = one.names["faster"], one.names["slower"]
    inside = one.names["topology"] == "inside"
    sure = {
        each.winner
        for each in told
        if each.sure
        and each.rivals.collective
        and {each.rivals.one, each.rivals.other} == {first, second}
        and (each.rivals.layout[0] == 1) is inside
    }
    wanted = {first, second} if one.key == "faster.crossing" else {first}
    return one if wanted <= sure else replace(one, key="faster.alike")


def proof(data: ReportData) -> list[Block]:
    """Return what Horovod's timeline showed of every case, by the backend that was asked for."""
    seen: dict[tuple[str, str], dict[str, str]] = {}
    for record in data.records:
        if record.status != "skipped":
            cases = seen.setdefault((record.backend, record.proved_backend or ""), {})
            cases[record.case_id] = record.status
    columns = (
        Column(Say("comparison.proof_asked")),
        Column(Say("comparison.proof_seen")),
        Column(Say("comparison.proof_cases"), numeric=True),
        Column(Say("comparison.proof_verdict")),
    )
    rows = []
    for asked, shown in sorted(seen, key=lambda key: (labels.order(key[0]), key[1])):
        told = labels.backends(shown.split("+")) if shown else Say("comparison.unproved")
        rows.append((labels.backend(asked), told, len(seen[asked, shown]), _verdict(asked, shown)))
    if not rows:
        return []
    table = Table("proof", Say("comparison.proof_caption"), columns, tuple(rows), merged=1)
    return [Heading(Say("comparison.proof")), table]


def _verdict(asked: str, shown: str) -> Say:
    if asked == "serial":
        return Say("comparison.proof_serial")
    if not shown:
        return Say("comparison.proof_missing")
    return Say("comparison.proof_yes" if asked == shown else "comparison.proof_no")
