"""Cases without figures, and why: failed, skipped, pending and infeasible ones."""

from __future__ import annotations

from collections.abc import Iterable

from hvlab.report import labels
from hvlab.report.blocks import Block, Code, Column, Paragraph, Say, Section, Several, Table, Value
from hvlab.report.data import ReportData
from hvlab.results.store import Record

_NAMED = 12


def section(data: ReportData) -> Section | None:
    """Return the part of the report on cases without figures; None where there are none."""
    blocks: list[Block] = []
    if data.head.pending:
        values: dict[str, Value] = {"pending": data.head.pending, "all": data.head.planned}
        blocks.append(Paragraph(Say("failures.pending", values), "warning"))
    for status in ("failed", "skipped"):
        records = [record for record in data.records if record.status == status]
        if records:
            blocks.append(table(records, status))
    if data.infeasible:
        blocks.append(_infeasible(data))
    if data.unreadable:
        blocks.append(Paragraph(Say("failures.unreadable", {"files": Several(data.unreadable)}), "warning"))
    if not blocks:
        return None
    return Section("failures", Say("failures.title"), (Paragraph(Say("failures.intro")), *blocks))


def table(records: Iterable[Record], status: str) -> Table:
    """Return the cases of a status, those with the same workload, backend and reason in one row."""
    cases_by_reason: dict[tuple[str, str, str], dict[str, None]] = {}
    for record in records:
        key = (record.workload, record.backend, record.error or "")
        cases_by_reason.setdefault(key, {})[record.case_id] = None
    columns = (
        Column(Say("workloads.name")),
        Column(Say("scaling.backend")),
        Column(Say("failures.number"), numeric=True),
        Column(Say("failures.reason"), text=True),
        Column(Say("failures.cases"), text=True),
    )
    rows = tuple(
        (
            Code(workload),
            labels.backend(backend),
            len(cases),
            error or Say("failures.no_reason"),
            named(list(cases)),
        )
        for (workload, backend, error), cases in cases_by_reason.items()
    )
    return Table(f"failures-{status}", Say(f"failures.{status}"), columns, rows)


def named(cases: list[str]) -> Value:
    """Return the names of cases; of many, only the first."""
    shown: list[Value] = [Code(case) for case in cases[:_NAMED]]
    more = len(cases) - len(shown)
    return Several((*shown, Say("failures.more", {"count": more})) if more else tuple(shown), "list.space")


def _infeasible(data: ReportData) -> Table:
    columns = (Column(Say("failures.case")), Column(Say("failures.reason")))
    rows = tuple((Code(item.case), item.reason) for item in data.infeasible)
    return Table("failures-infeasible", Say("failures.infeasible"), columns, rows)
