"""What stands before the sections: the run, its key figures, its findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hvlab.report import compression, hosts, labels, spread
from hvlab.report.blocks import Number, Say, Value
from hvlab.report.data import ReportData
from hvlab.report.study import Study, StudyRow
from hvlab.report.sweeps import SweepGroup
from hvlab.report.verdicts import BackendVerdict, sentence
from hvlab.scaling import HostCheck

Card = tuple[Value, Value, Value]


def head(data: ReportData) -> Iterator[tuple[Value, Value]]:
    """Yield the lines under the title."""
    run = data.head
    yield Say("head.run"), run.run_id
    yield Say("head.lab"), run.lab
    yield Say("head.started"), run.started_at[:19].replace("T", " ") + " UTC"
    yield Say("head.state"), Say(f"state.{run.state}")
    values: dict[str, Value] = {"ok": run.ok, "all": run.planned, "failed": run.failed}
    yield Say("head.cases"), Say("head.cases_failed" if run.failed else "head.cases_of", values)


def cards(data: ReportData, studies: Sequence[Study], sweeps: Sequence[SweepGroup]) -> Iterator[Card]:
    """Yield the key figures of the run: name, figure, and where it comes from."""
    run = data.head
    if not run.ok:
        return
    rest: dict[str, Value] = {"failed": run.failed, "pending": run.pending + run.skipped}
    yield Say("card.cases"), Say("card.of", {"ok": run.ok, "all": run.planned}), Say("card.rest", rest)
    for kind in ("inside", "across"):
        best = _best(studies, kind)
        if best:
            where = _where(best.configuration.workload, best.configuration.backend, best.layout)
            yield Say(f"card.speedup_{kind}"), spread.number(best.speedup, "x"), where
    widths = [
        (width.mid, group.workload, backend, layout)
        for group in sweeps
        for (backend, layout), line in group.lines.items()
        for repeats in line.values()
        if (width := spread.of(repeats, "busbw"))
    ]
    if widths:
        most, workload, backend, layout = max(widths)
        yield Say("card.busbw"), Number(most, "GB/s"), _where(workload, backend, layout)


def findings(
    data: ReportData, studies: Sequence[Study], judged: Sequence[BackendVerdict], checks: Sequence[HostCheck]
) -> Iterator[Value]:
    """Yield the findings, a sentence each."""
    run = data.head
    counts: dict[str, Value] = {"ok": run.ok, "all": run.planned, "failed": run.failed}
    if data.records:
        yield Say("finding.failed" if run.failed else "finding.cases", counts)
    else:
        yield Say("finding.empty")
    if run.pending:
        yield Say("finding.pending", {"all": run.planned, "pending": run.pending})
    names = labels.Labels((study.workload, study.params) for study in studies)
    for study in studies:
        name = labels.study(names.name(study.workload, study.params), study.scaling)
        places = [(kind, best) for kind in ("inside", "across") if (best := _best([study], kind))]
        yield from (_speedup(best, name, kind) for kind, best in places)
    yield from map(sentence, _telling(judged))
    yield from hosts.stragglers(checks)
    for one in compression.comparisons(data):
        yield from (text for verdict, text in compression.remarks(one) if verdict == "lost")


def _speedup(row: StudyRow, name: Value, place: str) -> Say:
    values: dict[str, Value] = {
        "name": name,
        "where": Say(f"topology.{place}"),
        "backend": labels.backend(row.configuration.backend),
        "speedup": spread.both(row.speedup, "x"),
        "efficiency": spread.number(row.efficiency, "ratio"),
        "layout": labels.layout(*row.layout),
    }
    return Say("finding.speedup", values)


def _telling(judged: Sequence[BackendVerdict]) -> list[BackendVerdict]:
    """Return the largest significant difference between trainings, and between collectives."""
    largest = []
    for collective in (False, True):
        significant = [one for one in judged if one.significant and one.backends.collective is collective]
        largest += [max(significant, key=lambda one: one.apart)] if significant else []
    return largest


def _where(workload: str, backend: str, layout: tuple[int, int]) -> Say:
    values = {"name": workload, "backend": labels.backend(backend), "layout": labels.layout(*layout)}
    return Say("card.where", values)


def _best(studies: Sequence[Study], kind: str) -> StudyRow | None:
    """Return the row of the highest speed-up on several ranks, without compression."""
    rows = [
        (row.speedup.mid, row)
        for study in studies
        for row in study.rows
        if row.speedup and row.ranks > 1 and getattr(row.configuration, kind) and row.compression == "none"
    ]
    return max(rows, key=lambda item: item[0])[1] if rows else None
