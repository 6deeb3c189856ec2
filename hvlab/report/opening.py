"""What stands before the sections: which backend is best, the run, its key figures, its findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hvlab.analysis.scaling import HostCheck
from hvlab.report import answer, compression, hosts, labels, spread
from hvlab.report.answer import Answer
from hvlab.report.blocks import Code, Number, Say, Several, Value
from hvlab.report.data import ReportData
from hvlab.report.study import Study, StudyRow
from hvlab.report.sweeps import SweepGroup
from hvlab.report.verdicts import BackendVerdict, sentence

Card = tuple[Value, Value, Value]


def head(data: ReportData) -> Iterator[tuple[Value, Value]]:
    """Yield the lines under the title."""
    run = data.head
    yield Say("head.run"), run.run_id
    yield Say("head.lab"), run.lab
    yield Say("head.started"), run.started_at[:19].replace("T", " ") + " UTC"
    yield Say("head.state"), Say(f"state.{run.state}")
    for side, settings in sorted(data.sides.items()):
        yield side, Several(tuple(Code(f"{name}={value}") for name, value in settings.items()))
    values: dict[str, Value] = {"ok": run.ok, "all": run.planned, "failed": run.failed}
    yield Say("head.cases"), Say("head.cases_failed" if run.failed else "head.cases_of", values)


def cards(
    data: ReportData, answered: Sequence[Answer], studies: Sequence[Study], sweeps: Sequence[SweepGroup]
) -> Iterator[Card]:
    """Yield the answer and the key figures of the run: name, figure, and where it comes from."""
    if not data.head.ok:
        return
    yield from (one.card for one in answered)
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
    data: ReportData,
    answered: Sequence[Answer],
    studies: Sequence[Study],
    judged: Sequence[BackendVerdict],
    checks: Sequence[HostCheck],
) -> Iterator[Value]:
    """Yield the findings, a sentence each: the answer first."""
    run = data.head
    yield from (one.sentence for one in answered)
    if not answered and (only := answer.alone(data)):
        yield only
    if not data.records:
        yield Say("finding.empty")
    if run.failed:
        yield Say("finding.failed", {"ok": run.ok, "all": run.planned, "failed": run.failed})
    if run.pending:
        yield Say("finding.pending", {"all": run.planned, "pending": run.pending})
    yield from map(sentence, _largest(judged))
    names = labels.Labels((study.workload, study.params) for study in studies)
    for kind in ("inside", "across"):
        places = [(study, best) for study in studies if (best := _best([study], kind))]
        if places:
            study, best = max(places, key=lambda item: item[1].speedup.mid if item[1].speedup else 0.0)
            name = labels.study(names.name(study.workload, study.params), study.scaling)
            yield _speedup(best, name, kind)
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


def _largest(judged: Sequence[BackendVerdict]) -> list[BackendVerdict]:
    """Return the largest significant difference between collectives, of which the answer says nothing."""
    significant = [one for one in judged if one.significant and one.backends.collective]
    return [max(significant, key=lambda one: one.apart)] if significant else []


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
