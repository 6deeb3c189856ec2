"""What has no figures, and why: failed, skipped and impossible cases, and those that were not reached."""

from __future__ import annotations

from collections.abc import Iterable

from hvlab.report import labels
from hvlab.report.blocks import Block, Code, Column, Paragraph, Say, Section, Several, Table, Value
from hvlab.report.data import ReportData
from hvlab.results.store import Record

_NAMED = 12


def section(data: ReportData) -> Section:
    """Return the part of the report on all that has no figures; it says so where there is nothing."""
    blocks: list[Block] = []
    if data.head.lacking:
        values: dict[str, Value] = {"lacking": data.head.lacking, "all": data.head.planned}
        blocks.append(Paragraph(Say("failures.lacking", values), "warning"))
    for status in ("failed", "skipped"):
        found = [record for record in data.records if record.status == status]
        if found:
            blocks.append(table(found, status))
    if data.infeasible:
        blocks.append(_impossible(data))
    if data.unreadable:
        blocks.append(Paragraph(Say("failures.unreadable", {"files": Several(data.unreadable)}), "warning"))
    text = Say("failures.intro" if blocks else "failures.none", {"all": data.head.planned})
    return Section("failures", Say("failures.title"), (Paragraph(text), *blocks))


def table(records: Iterable[Record], status: str) -> Table:
    """Return the cases of a status by their reason; the same reason stands there once for a backend."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for record in records:
        key = (record.workload, record.backend, record.error or "")
        found.setdefault(key, {})[record.case_id] = None
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
        for (workload, backend, error), cases in found.items()
    )
    return Table(f"failures-{status}", Say(f"failures.{status}"), columns, rows)


def named(cases: list[str]) -> Value:
    """Return the names of cases; of many only the first."""
    shown: list[Value] = [Code(case) for case in cases[:_NAMED]]
    more = len(cases) - len(shown)
    return Several((*shown, Say("failures.more", {"count": more})) if more else tuple(shown), "list.space")


def _impossible(data: ReportData) -> Table:
    columns = (Column(Say("failures.case")), Column(Say("failures.reason")))
    rows = tuple((Code(item.case), item.reason) for item in data.infeasible)
    return Table("failures-impossible", Say("failures.impossible"), columns, rows)
