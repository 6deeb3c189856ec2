"""Backends compared: which is quicker, which term decides, and what really carried the data."""

from __future__ import annotations

from collections.abc import Sequence

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
    several = len({cell.backend for cell, measured in data.cells.items() if measured.ok} - {"serial"}) > 1
    intro = Paragraph(Say("comparison.intro")) if several else Paragraph(Say("comparison.none"), "note")
    blocks: list[Block] = [intro]
    if told:
        blocks.append(verdicts.table(told))
    faster = of_kind(found, "faster")
    if faster:
        said = tuple(Say("comparison.line", {"about": about(one), "reason": reason(one)}) for one in faster)
        blocks += [Heading(Say("comparison.reasons")), Points(said)]
    return Section("comparison", Say("comparison.title"), (*blocks, *terms, *proof(data)))


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
