"""What a run says to the tasks of a lab sheet: curves and sentences, and why a row has no figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hvlab.analysis.model.dominant import explain
from hvlab.analysis.model.explanation import Explanation
from hvlab.analysis.model.fit import Fit, fits
from hvlab.analysis.model.training import trainings
from hvlab.report import answer, compression, labels, models, speedup, sweeps, terms, verdicts
from hvlab.report.answer import Answer
from hvlab.report.blocks import Number, Plot, Points, Say, Value
from hvlab.report.data import ReportData
from hvlab.report.markdown import picture
from hvlab.report.markdown import text as markdown
from hvlab.report.study import studies
from hvlab.report.words import Words
from hvlab.results.configurations import Configuration, Repeats
from hvlab.results.formats.lab_sheet import Empty
from hvlab.results.formats.sheet_rows import EmptyRow
from hvlab.results.formats.sheet_tasks import TaskKind

# What a task is answered with; a report says more.
_SENTENCES = 2


def curves(data: ReportData) -> list[Plot]:
    """Return the curve of speed-up of each training."""
    studied = studies(data)
    names = labels.Labels((study.workload, study.params) for study in studied)
    plots = (
        speedup.curve(
            data, study, labels.study(names.name(study.workload, study.params), study.scaling), number
        )
        for number, study in enumerate(studied, 1)
    )
    return [plot for plot in plots if plot]


def paragraphs(data: ReportData, words: Words, pictures: str) -> dict[TaskKind, list[str]]:
    """Return the paragraphs for each task that the run has an answer to; curves are in ``pictures``."""
    fitted = fits(data.configurations, virtual=data.virtual)
    good = [fit for fit in fitted if isinstance(fit, Fit)]
    studied, swept = studies(data), sweeps.groups(data)
    judged = verdicts.judge(data, studied, swept)
    answered = answer.answers(data, judged)
    sentences_of: dict[TaskKind, list[Value]] = {
        "backends": [*(one.sentence for one in answered[:1]), *_reason(data, answered, good)],
        "models": _models(data, explain(data.configurations, fitted)),
        "compression": [
            text for one in compression.comparisons(data) for _, text in compression.remarks(one)
        ][:_SENTENCES],
    }
    texts: dict[TaskKind, list[str]] = {
        kind: [" ".join(markdown(sentence, words) for sentence in sentences)]
        for kind, sentences in sentences_of.items() if sentences
    }  # fmt: skip
    if "backends" in texts and pictures:
        images = [f"![{markdown(plot.title, words)}]({picture(pictures, plot.key)})" for plot in curves(data)]
        texts["backends"] = [*images, *texts["backends"]]
    return texts


def _reason(data: ReportData, answered: Sequence[Answer], good: Sequence[Fit]) -> Iterator[Value]:
    """Yield what takes most of the steps of the slower backend, beside compute."""
    if not answered:
        return
    inside, slower = answered[0].place == "inside", labels.tone(answered[0].other)
    parted = [
        (part.number(term), term, part)
        for part in terms.of_steps(trainings(data.configurations), good)
        if part.explained.names.get("backend") == slower
        and (part.explained.names.get("topology") == "inside") == inside
        for term in terms.TERMS
        if term not in ("compute", "other") and part.number(term)
    ]
    for share, term, part in sorted(parted, key=lambda each: -each[0])[:1]:
        values: dict[str, Value] = {
            "name": part.name, "ranks": round(part.number("ranks")), "term": Say(f"term.{term}"),
            "share": Number(share, "share"), "compute": Number(part.number("compute"), "share"),
        }  # fmt: skip
        yield Say("fill.dominant", values)


def _models(data: ReportData, explained: Sequence[Explanation]) -> list[Value]:
    part = models.section(data, explained)
    points = [block for block in part.blocks if isinstance(block, Points)] if part else []
    items = [item for block in points for item in block.items][:_SENTENCES]
    return [Say("fill.sentence", {"text": item}) for item in items]


def why_empty(data: ReportData, empty: Empty) -> str:
    """Return why a row of a sheet has no figures, or a task no answer: in English, for the terminal."""
    if empty.row is None:
        return f"a task about {empty.kind} has no answer: {_NO_ANSWER[str(empty.kind)]}"
    row = empty.row
    name = " ".join([row.word, *(f"{key} {value}" for key, value in row.place.items())])
    return f"{name}: {_why(data, empty.row, compressed=empty.kind == 'compression')}"


_NO_ANSWER = {
    "backends": "no two backends were compared",
    "models": "it takes two models, each trained on several ranks, with `--suite lab7`",
    "compression": "no two compressions were measured",
}


def _why(data: ReportData, row: EmptyRow, *, compressed: bool) -> str:
    what = "algorithm" if compressed else "backend"
    if row.group is None:
        return f"this is no {what} that hvlab knows"
    own = {
        one: repeats
        for one, repeats in data.training.items()
        if _group(one, compressed=compressed) == row.group
    }
    if not own:
        left = next((case.reason for case in data.infeasible if f"-{row.group}-" in case.case), "")
        return f"infeasible: {left}" if left else f"this {what} was not measured in run {data.head.run_id}"
    there = {one: repeats for one, repeats in own.items() if _matches(one, row)}
    if not there:
        shapes = sorted({(len(one.hosts), one.slots) for one in own})
        return "measured at servers x slots of " + ", ".join(f"{hosts}x{slots}" for hosts, slots in shapes)
    return _failure(there.values()) or _lack(row)


def _lack(row: EmptyRow) -> str:
    if {*row.columns} <= {"speedup", "efficiency"}:
        return "no single rank succeeded, so there is no speed-up"
    return "all that was measured stands in other rows"


def _failure(measured: Collection[Repeats]) -> str:
    reasons = [text for one in measured for text in (*one.errors.values(), *one.skipped.values())]
    failed = reasons and not any(one.ok for one in measured)
    return f"every repeat failed: {reasons[0]}" if failed else ""


def _group(one: Configuration, *, compressed: bool) -> str:
    return compression.written(one) if compressed else one.backend


def _matches(one: Configuration, row: EmptyRow) -> bool:
    shape = {"servers": len(one.hosts), "slots": one.slots, "devices": one.ranks}
    return all(str(shape[name]) == number for name, number in row.place.items())
