"""The sections of a report: for each, a function that returns the values of its template.

A section is a function here with a line in `SECTIONS`, a template of its name in `templates/report`, and its
phrases in both languages in `phrases`. A function that returns None leaves its section out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeAlias

from hvlab.analysis import ceiling, step_parts
from hvlab.lab.backends import SERIAL
from hvlab.report import (
    answer,
    collectives,
    comparison,
    compression,
    conditions,
    labels,
    prediction,
    trainings,
    tuning,
    verdicts,
)
from hvlab.report.labels import Names, Value
from hvlab.report.page import Document, Opening
from hvlab.report.plots import Axis, Bars, Plot, spread_of
from hvlab.report.report import Report
from hvlab.report.verdicts import BackendVerdict
from hvlab.report.words import Words
from hvlab.results.configurations import Configuration
from hvlab.results.samples import bars, pool
from hvlab.results.store import Record
from hvlab.statistics.distribution import Distribution
from hvlab.workloads import WORKLOADS
from hvlab.workloads.metrics import METRICS

Shown: TypeAlias = Mapping[str, Any] | None
_PLACES = ("inside", "across")
_OTHERS = ("time", "algbw", "busbw")
_DEFINED = ("step", "throughput", "speedup", "efficiency", "weak", "strong", "spread", "repeats")


def _comparison(report: Report, words: Words) -> Shown:
    data, judged = report.data, report.judged
    if not data.records:
        return None
    claims = [] if data.imported else report.explanations("faster")
    steps, swept = comparison.steps(report.trainings, report.fits), comparison.collectives(report.fits)
    proofs = comparison.proofs(data)
    parallel = [one for one in proofs if one[0] != SERIAL]
    proved = all(verdict == "yes" for *_, verdict in parallel)
    forest = verdicts.forest(judged, words, imported=data.imported)
    bars = comparison.bars(steps, words)
    return {
        "missing": comparison.explain_missing(data, judged),
        "forest": forest,
        "judged": judged,
        "faint": [place for place, one in enumerate(judged) if not one.significant],
        "note": "imported_note" if data.imported else "ratio_note",
        "claims": [words.claim(comparison.explain_supported(one, judged)) for one in claims],
        "bars": bars,
        "steps": steps,
        "step_terms": comparison.terms(steps),
        "collectives": swept,
        "terms": comparison.terms(swept),
        "proved": sum(cases for *_, cases, _ in parallel) if proved else 0,
        "carriers": words.backends(requested for requested, *_ in parallel),
        "proofs": [] if proved else proofs,
        "told": verdicts.format_verdict,
        "drawn": [*forest, *bars],
    }


def _tuning(report: Report, words: Words) -> Shown:
    search = report.data.tuning
    if search is None:
        return None
    why = words.say(f"tuning.against_{search.against}") if search.against else ""
    return {
        "search": search,
        "best": _settings(search.best, words),
        "why": why,
        "unchecked": search.loss_checked is False,
        "tried": [(_settings(one.changes, words), one) for one in tuning.list_tried(search)],
        "failed": sum(one.failed for one in search.tried),
        "minutes": f"{search.seconds / 60:.1f}",
    }


def _settings(changes: Mapping[str, Any], words: Words) -> Value:
    return tuning.settings(changes) or words.say("tuning.today")


def _speedup(report: Report, words: Words) -> Shown:
    if not report.studies:
        return None
    rows = [row.configuration for study in report.studies for row in study.shown]
    return {
        "on_gpus": report.data.on_gpus,
        "drawn": trainings.curves(report.data, report.studies, words),
        "studies": report.studies,
        "faint": _faint,
        "iterations": _iterations(report, words, rows),
        "bars": bars,
        "remarks": trainings.remarks(report.data, report.studies, words),
        "checks": report.checks,
        "stragglers": trainings.stragglers(report.checks, words),
        "slower": trainings.slower,
        "outcome": trainings.outcome,
    }


def _faint(study: trainings.Study) -> list[int]:
    good = [row.repeats.ok if study.launched else row.step for row in study.shown]
    return [place for place, figure in enumerate(good) if not figure]


def _iterations(
    report: Report, words: Words, configurations: Iterable[Configuration]
) -> list[tuple[Value, Configuration, Distribution, str]]:
    """Return the single steps or operations of all repeats: of what, where, their times and the unit."""
    shown = [one for one in configurations if report.data.samples.get(one)]
    names = Names((one.workload, one.without("size_bytes")) for one in shown)
    return [
        (_name_pair(one, names, words), one, pool(repeats), METRICS[next(iter(repeats.values())).metric].unit)
        for one in shown
        for repeats in [report.data.samples[one]]
    ]


def _name_pair(one: Configuration, names: Names, words: Words) -> Value:
    strong = [words.say("scaling.strong")] if one.get("scaling") == "strong" else []
    size = one.get("size_bytes")
    sized = [words.number(size, "B")] if isinstance(size, int) else []
    return names.name(one.workload, one.without("size_bytes")), *strong, *sized


def _compression(report: Report, words: Words) -> Shown:
    if not report.compressed:
        return None
    names = Names((one.workload, one.params) for one in report.compressed)
    studies = []
    for one in report.compressed:
        remarks = compression.remarks(one, words)
        studies.append({
            "name": names.name(one.workload, one.params),
            "study": one,
            "faint": [place for place, (_, repeats) in enumerate(one.rows) if not repeats.ok],
            "lost": [text for verdict, text in remarks if verdict == "lost"],
            "remarks": [text for verdict, text in remarks if verdict != "lost"],
        })  # fmt: skip
    return {"studies": studies, "several": len(studies) > 1, "compression": compression, "spread": spread_of}


def _sweeps(report: Report, words: Words) -> Shown:
    if not report.sweeps:
        return None
    plots = [collectives.plots(group, number, words) for number, group in enumerate(report.sweeps, 1)]
    return {
        "groups": [
            (group, drawn, collectives.rows(group, words))
            for group, drawn in zip(report.sweeps, plots, strict=True)
        ],
        "several": len(report.sweeps) > 1,
        "iterations": _iterations(report, words, collectives.ends(report.data, report.sweeps)),
        "bars": bars,
        "pairs": collectives.pairs(report.data),
        "drawn": [plot for drawn in plots for plot in drawn],
    }


def _others(report: Report, _: Words) -> Shown:
    own = {
        one: repeats
        for one, repeats in report.data.configurations.items()
        if one.workload not in WORKLOADS and any(map(repeats.of, _OTHERS))
    }
    names = Names((one.workload, one.without("size_bytes")) for one in own)
    metrics = [name for name in _OTHERS if any(repeats.of(name) for repeats in own.values())]
    rows = [
        {
            "name": names.name(one.workload, one.without("size_bytes")),
            "configuration": one,
            "size": one.get("size_bytes"),
            "figures": [(name, spread_of(repeats, name), METRICS[name].unit) for name in metrics],
            "repeats": repeats,
        }
        for one, repeats in own.items()
    ]
    return {"rows": rows} if rows else None


def _models(report: Report, words: Words) -> Shown:
    rows = prediction.models(report.trainings, report.explanations("ratio"))
    claims = [words.claim(one) for one in report.explanations("ratio") if one.key != "ratio.model"]
    return {"rows": rows, "claims": claims} if rows else None


def _prediction(report: Report, words: Words) -> Shown:
    if not report.predictions:
        return None
    good, fitted = prediction.list_predicted(report.predictions), prediction.list_fitted(report.fits, words)
    shared = prediction.common([one.warnings for one in good])
    return {
        "good": good,
        "names": Names((one.training.workload, one.training.params) for one in good),
        "drawn": prediction.plots(good, report.studies, words),
        "steps": [(one.training, step) for one in good for step in prediction.ends(one)],
        "ended": [one for one in good if one.limit],
        "checked": [(one, prediction.doubts(one.warnings, words, shared)) for one in good],
        "shared": prediction.doubts(shared, words),
        "fitted": fitted,
        "caveats": labels.Lines((words.say("fit.note"), *prediction.caveats(fitted, words))),
        "refused": prediction.list_refused(report.predictions, words),
        "prediction": prediction,
    }


def _environment(report: Report, words: Words) -> Shown:
    return {
        "sheet": conditions.sheet(report.data, words),
        "software": conditions.software(report.data, words),
        "notes": [text for disturbed, text in conditions.cores(report.data, words) if not disturbed],
        "workloads": conditions.workloads(report.data, words),
        "defined": _DEFINED,
    }


def _ceiling(report: Report, _: Words) -> Shown:
    data = report.data
    judged = ceiling.judge(data.configurations, ceiling.ceilings(data.records, data.facts))
    if not judged:
        return None
    names = Names((each.configuration.workload, each.configuration.without("size_bytes")) for each in judged)
    return {"judged": judged, "names": names}


def _explain_steps(report: Report, words: Words) -> Shown:
    steps = [*step_parts.explain(report.data.configurations)]
    if not steps:
        return None
    shares = {part: tuple(100 * one.share(part) for one in steps) for part in steps[0].parts}
    ran = [one.configuration for one in steps]
    names = Names((one.workload, one.params) for one in ran)
    called = [(names.of(one), words.backend(one.backend), words.shape(one)) for one in ran]
    plot = Plot(
        "explained", words.say("explained.caption"), Axis(words.say("axis.share"), zero=True), Axis(""),
        bars=tuple(Bars(words.say(f"explained.part.{one}"), f"part.{one}", shares[one]) for one in shares),
        categories=tuple(map(words.text, called)), note=words.say("explained.note"),
    )  # fmt: skip
    return {"steps": [*zip(called, steps, strict=True)], "drawn": [plot]}


def _failures(report: Report, words: Words) -> Shown:
    data = report.data
    found = {
        "pending": data.head.pending,
        "statuses": [
            (status, rows)
            for status in ("failed", "skipped")
            if (rows := _reasons(data.records, status, words))
        ],
        "infeasible": [replace(one, reason=words.reason(one.reason)) for one in data.infeasible],
        "unreadable": data.unreadable,
    }
    return {**found, "planned": data.head.planned} if any(found.values()) else None


def _reasons(
    records: Iterable[Record], status: str, words: Words
) -> list[tuple[str, str, str, list[labels.Code]]]:
    cases: dict[tuple[str, str, str], dict[str, None]] = {}
    for record in records:
        if record.status == status:
            key = (record.workload, record.backend, words.reason(record.error or ""))
            cases.setdefault(key, {})[record.case_id] = None
    return [(*key, [labels.Code(case) for case in names]) for key, names in cases.items()]


def _data(report: Report, _: Words) -> Shown:
    data = report.data
    return {
        "commands": data.commands,
        "cases": sum(len(command.cases) for command in data.commands),
        "records": len(data.records),
        "attached": "attached" if report.attached else "attached_not",
        "folder": f"runs/{data.head.run_id}",
    }


SECTIONS: Mapping[str, Callable[[Report, Words], Shown]] = {
    "comparison": _comparison,
    "tuning": _tuning,
    "speedup": _speedup,
    "compression": _compression,
    "sweeps": _sweeps,
    "others": _others,
    "explained": _explain_steps,
    "ceiling": _ceiling,
    "models": _models,
    "prediction": _prediction,
    "environment": _environment,
    "failures": _failures,
    "data": _data,
}


def document(report: Report) -> Document:
    """Return the report as a document: answers first, then figures, then conditions and commands."""
    asks_compression = report.compressed and not report.judged
    order = sorted(SECTIONS, key="compression".__ne__) if asks_compression else SECTIONS
    return Document(report, _opening, {name: SECTIONS[name] for name in order})


def _opening(report: Report, words: Words) -> Opening:
    return Opening(
        title=words.say("title"),
        head=_head(report, words),
        signature=[(words.say(f"head.{name}"), value) for name, value in report.signature.items()],
        cards=_cards(report, words),
        alerts=[
            words.say(
                "finding.backend_failed",
                backend=words.backend(name),
                count=count,
                reason=words.reason(reason),
            )
            for name, count, reason in comparison.list_failed(report.data)
        ],
        findings=_findings(report, words),
        warnings=conditions.warnings(report.data, words),
    )


def _head(report: Report, words: Words) -> list[tuple[str, Value]]:
    run, sides = report.data.head, report.data.sides
    cases = "head.cases_failed" if run.failed else "head.cases_of"
    return [
        (words.say("head.run"), run.run_id),
        (words.say("head.lab"), run.lab),
        (words.say("head.started"), run.started_at[:19].replace("T", " ") + " UTC"),
        (words.say("head.state"), words.say(f"state.{run.state}")),
        *((side, tuning.settings(settings)) for side, settings in sorted(sides.items())),
        (words.say("head.cases"), words.say(cases, ok=run.ok, all=run.planned, failed=run.failed)),
    ]


def _cards(report: Report, words: Words) -> list[tuple[str, str, str]]:
    if not report.data.head.ok:
        return []
    # Questions that are open come last.
    cards = [(False, one.card(words)) for one in report.leavings]
    cards += [(one.open, one.card(words)) for one in report.answers]
    cards += [(False, tile) for one in report.compressed[:1] for tile in compression.cards(one, words)]
    if cards and all(is_open for is_open, _ in cards) and (clearest := _clearest(report)):
        cards.append((False, verdicts.card(clearest, words)))
    for place in _PLACES:
        best = trainings.find_best(report.studies, place)
        if best and (speedup := best[1].speedup) and trainings.is_gain(best[1]):
            row = best[1]
            where = _where(row.configuration.workload, row.configuration.backend, row.layout, words)
            tile = (words.say(f"card.speedup_{place}"), words.middle(speedup, "x"), where)
            cards.append((speedup.low <= 1, tile))
    if widest := collectives.widest(report.sweeps):
        figure = (words.say("card.busbw"), words.number(widest[0], "GB/s"), _where(*widest[1:], words))
        cards.append((False, figure))
    return [tile for _, tile in sorted(cards, key=itemgetter(0))]


def _clearest(report: Report) -> BackendVerdict | None:
    """Return the largest difference between backends that no answer mentions; trainings come first."""
    answered = not all(one.open for one in report.answers)
    judged = [one for one in report.judged if one.significant and (one.backends.collective or not answered)]
    return max(judged, key=lambda one: (not one.backends.collective, one.apart), default=None)


def _where(workload: str, backend: str, layout: tuple[int, int], words: Words) -> str:
    return words.say(
        "card.where", name=workload, backend=words.backend(backend), layout=words.layout(*layout)
    )


def _findings(report: Report, words: Words) -> list[str]:
    run, only = report.data.head, answer.find_only_backend(report.data)
    texts = [one.sentence(words) for one in report.leavings]
    texts += [one.sentence(words) for one in report.answers if not one.open]
    texts += [text for one in report.compressed for _, text in compression.remarks(one, words)]
    if not texts and only:
        texts.append(words.say("answer.alone", backend=words.backend(only)))
    if not report.data.records:
        texts.append(words.say("finding.empty"))
    if run.failed:
        texts.append(words.say("finding.failed", ok=run.ok, all=run.planned, failed=run.failed))
    if run.pending:
        texts.append(words.say("finding.pending", all=run.planned, pending=run.pending))
    if clearest := _clearest(report):
        texts.append(verdicts.sentence(clearest, words))
    for place in _PLACES:
        if best := trainings.find_best(report.studies, place):
            texts.append(_describe_best(*best, place, words))
    texts += [one.sentence(words) for one in report.answers if one.open]
    return texts + trainings.stragglers(report.checks, words)


def _describe_best(study: trainings.Study, row: trainings.StudyRow, place: str, words: Words) -> str:
    return words.say(
        "finding.speedup" if trainings.is_gain(row) else "finding.no_speedup",
        name=words.study(study.name, study.scaling),
        where=words.place(place),
        backend=words.backend(row.configuration.backend),
        speedup=words.both(row.speedup, "x"),
        efficiency=words.middle(row.efficiency, "ratio"),
        layout=words.layout(*row.layout),
    )
