"""One run's content for a lab sheet: figures, environment, and answers to the sheet's tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jinja2

from hvlab.base.errors import HvlabError
from hvlab.base.paths import project_dir
from hvlab.lab.backends import BACKENDS, HOROVOD, SERIAL, SHIM
from hvlab.report import comparison, compression, conditions, trainings, verdicts
from hvlab.report.labels import Lines
from hvlab.report.page import in_markdown, picture, strip_markup
from hvlab.report.report import Report
from hvlab.report.sheet import Content, Figure, Filled, SheetTraining, Values, fill_in, unit_of, vocabulary
from hvlab.report.trainings import Study, StudyRow
from hvlab.report.words import Words, format_number, load
from hvlab.results.configurations import Configuration

# The training of lab sheets; if it was not measured, another one is taken.
_TRAINING = "mnist"
_TITLES = {name: backend.title for name, backend in BACKENDS.items() if name != SERIAL}
# Maximum number of rows that an error explains.
_REASONS = 3
# Columns with the median of a metric, and its unit.
_MORE = (("accuracy", "accuracy", "%"), ("tokens", "token_rate", "tokens/s"), ("memory", "memory", "B"))
# Factors from a figure's unit to the units of column headers.
_PER: Mapping[str, Mapping[str, float]] = {
    "s": {"s": 1, "ms": 1e3, "us": 1e6, "min": 1 / 60},
    "ratio": {"%": 100},
}


def fill(text: str, report: Report, lang: str, *, pictures: str = "") -> Filled:
    """Return the sheet filled from a run; ``pictures`` is the folder that curves are linked from.

    Raises HvlabError if no figure of the run fits.
    """
    content = _content(report, load(lang), pictures)
    filled = fill_in(text, content)
    if not filled.figures and filled.tables != ("environment",):
        kinds = dict.fromkeys(kind for one in content.trainings for kind, rows in one.rows.items() if rows)
        has = f"tables for {', '.join(filled.tables)}" if filled.tables else "no table that can be filled"
        why = "".join(f"; {reason}" for line, reason in filled.notes[:_REASONS] if line)
        raise HvlabError(
            f"run {report.data.head.run_id} has figures for {', '.join(kinds) or 'no table'}; "
            f"the sheet has {has}{why}",
            remedy="measure what it asks for with `hvlab bench --suite lab7` or `--suite lab4`; a table is "
            "recognised by its header, such as 通信后端 | 服务器数量 | 平均每步耗时",
        )
    if "backends" in filled.answered and not report.fits:
        note = (
            "latency and bandwidth are not told apart: that takes --suite lab7 without --workload (allreduce)"
        )
        filled = replace(filled, notes=(*filled.notes, (0, note)))
    for name, place in _stand_ins(report).items():
        note = f"{_TITLES[place]}: of {name}, since torch is in Horovod's place (lab_horovod: torch)"
        filled = replace(filled, notes=(*filled.notes, (0, note)))
    return filled


def _stand_ins(report: Report) -> dict[str, str]:
    """Return hvlab_horovod's backends, each with the backend whose rows it fills; none beside Horovod."""
    measured = {one.backend for one in report.data.training}.intersection(BACKENDS)
    if any(BACKENDS[name].framework == HOROVOD for name in measured):
        return {}
    return {name: BACKENDS[name].counterpart for name in measured if BACKENDS[name].framework == SHIM}


def _content(report: Report, words: Words, pictures: str) -> Content:
    ordered = sorted(report.studies, key=lambda one: (one.workload != _TRAINING, one.scaling != "weak"))
    by_name = {_name(study.workload, study.params): study for study in reversed(ordered)}
    compared = {_name(study.workload, study.params): study for study in reversed(report.compressed)}
    each = dict.fromkeys([*reversed(by_name), *reversed(compared)])
    names = sorted(each, key=lambda name: name[0] != _TRAINING)
    settings = _settings(
        [one for one in report.data.training if _name(one.workload, one.params) in names[:1]]
    )
    first = next((compared[name] for name in names if name in compared), None)
    answers: dict[str, Callable[[], str]] = {
        "backends": lambda: _analysis(report, ordered[0], words, pictures) if ordered else "",
        "models": lambda: str(_template(words.lang).models(*_models(report))),
        "compression": lambda: "\n\n".join(
            strip_markup(text) for _, text in (compression.remarks(first, words) if first else ())
        ),
    } | {name: partial(words.say, f"sheet.{name}", value=value) for name, value in settings.items()}
    environment = _environment(report, words) if report.data.records else {}
    return Content(
        environment={name: in_markdown(value, words) for name, value in environment.items()},
        trainings=[
            SheetTraining(name, {
                **_speedups(by_name.get(name), _stand_ins(report), words),
                "compression": _fill_compressed(compared.get(name), words),
            })
            for name in names
        ],
        names={name: words.say(f"compression.{name}") for name in (SERIAL, *compression.ORDER)} | _TITLES,
        answer=lambda kind: _paragraphs(answers[kind](), words.lang),
        settings=settings,
        signature={name: strip_markup(value) for name, value in report.signature.items()},
        signed=lambda name, value: words.say("sheet.signed", name=words.say(f"head.{name}"), value=value),
        why=lambda kind, group, place: _why(report, kind, group, place),
    )  # fmt: skip


def _settings(trained: Sequence[Configuration]) -> dict[str, str]:
    """Return the settings that a sheet may state, where all that was trained has the same."""
    values = {name: {str(one.get(name, "")) for one in trained} for name in vocabulary()["settings"]}
    return {name: own.pop() for name, own in values.items() if len(own) == 1 and "" not in own}


def _environment(report: Report, words: Words) -> dict[str, Any]:
    (_, machine), *others = conditions.software(report.data, words)
    software = {str(name).casefold(): value for name, value in others}
    sheet = {name: value for _, name, value in conditions.sheet(report.data, words)}
    known = vocabulary()["environment"].keys() & software.keys()
    each = software["horovod"] if isinstance(software["horovod"], Lines) else (software["horovod"],)
    packages = Lines((sheet["framework"], *(f"Horovod {one}" for one in each)))
    return sheet | {"machine": machine, "packages": packages, **{name: software[name] for name in known}}


def _name(workload: str, params: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    return tuple(str(name) for name in (workload, dict(params).get("model")) if name)


@cache
def _template(lang: str) -> Any:
    words = load(lang)
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(project_dir() / "templates/sheet"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - Markdown; what hosts say is escaped
    )
    jinja.globals |= {"_": words.say, "title": words.backend}
    jinja.filters |= {
        "number": format_number,
        "escaped": strip_markup,
        "percent": lambda share: f"{100 * share:.0f}%",
        "time": lambda seconds: words.number(seconds, "s"),
        "bytes": lambda size: words.number(size, "B"),
    }
    return jinja.get_template(f"{lang}.md.j2").module


def _paragraphs(text: str, lang: str) -> list[str]:
    lines = ([line.strip() for line in part.splitlines()] for part in text.split("\n\n"))
    return [part for own in lines if (part := ("" if lang == "zh" else " ").join(filter(None, own)))]


def _figure(value: float, unit: str, words: Words, text: str = "") -> Figure:
    """Return a figure with its unit or as ``text``, and as bare numbers in the units of column headers."""
    # A column's head may call the samples of a user's own command images.
    per = _PER.get(unit) or {unit_of(f"({unit})") or unit: 1}
    plain = {
        name: f"{value:.2f}" if unit == "%" else format_number(value * factor) for name, factor in per.items()
    }
    return {**plain, "": text or words.number(value, unit)}


def _speedups(study: Study | None, places: Mapping[str, str], words: Words) -> dict[str, list[Values]]:
    rows = [row for row in study.rows if row.step or row.throughput] if study else []
    alone = Counter(row.configuration.hosts for row in rows if row.configuration.inside).most_common(1)
    usual = [row for row in rows if row.configuration.across or row.configuration.hosts == alone[0][0]]
    slots = {"1", *(str(row.configuration.slots) for row in usual if row.configuration.across)}
    values: dict[tuple[str, ...], Values] = {}
    for row in usual:
        backend = row.configuration.backend
        place = (places.get(backend, backend), *map(str, row.layout))
        figures = {
            "step": (row.step, "s"), "throughput": (row.throughput, row.configuration.unit("throughput")),
            "speedup": (row.speedup, "x"), "efficiency": (row.efficiency, "ratio"), "time": (row.launch, "s"),
        }  # fmt: skip
        cells = {name: _figure(one.mid, unit, words) for name, (one, unit) in figures.items() if one}
        for name, metric, unit in _MORE:
            if (value := compression.middle(row.repeats, metric)) is not None:
                cells[name] = _figure(value, unit, words)
        named = dict(zip(("backend", "servers", "slots"), place, strict=True))
        values.setdefault(place, {**named, "ranks": str(row.ranks), **cells})
    inside = [one for one in values.values() if one["servers"] == "1"]
    return {"inside": inside, "across": [one for one in values.values() if one["slots"] in slots]}


def _fill_compressed(study: compression.CompressionStudy | None, words: Words) -> list[Values]:
    values: dict[tuple[str, int], Values] = {}
    for one, repeats in study.rows if study else ():
        real, accuracy = (compression.middle(repeats, metric) for metric in ("real", "accuracy"))
        cells: dict[str, Figure] = {}
        if real is not None:
            cells["time"] = _figure(real, "s", words, "<br>".join(map(str, compression.times(repeats) or ())))
        if accuracy is not None:
            cells["accuracy"] = _figure(accuracy, "%", words)
        devices = "" if one.backend == SERIAL else f"Device# == {one.ranks}"
        if cells:
            row: Values = {"algorithm": compression.format_key(one), "devices": devices, **cells}
            values.setdefault((compression.format_key(one), one.ranks), row)
    return [*values.values()]


def _analysis(report: Report, study: Study, words: Words, pictures: str) -> str:
    places = [
        {
            "across": place == "across",
            "rows": rows,
            "verdict": _fastest(report, study, rows, words),
            "parts": _parts(report, study, place),
        }
        for place in ("inside", "across")
        if (rows := _largest(study, place))
    ]
    crowds = [text for disturbed, text in conditions.cores(report.data, words) if disturbed]
    text = str(_template(words.lang).backends(places, crowds, report.data.virtual))
    drawn = trainings.curves(report.data, report.studies, words) if text.strip() and pictures else ()
    return "\n\n".join(
        [*(f"![{strip_markup(one.title)}]({picture(pictures, one.key)})" for one in drawn), text]
    )


def _largest(study: Study, place: str) -> list[StudyRow]:
    rows = sorted(
        (row for row in study.rows if row.ranks > 1 and row.step and row.compression == "none"),
        key=lambda row: row.ranks,
    )
    return [*{row.configuration.backend: row for row in rows if getattr(row.configuration, place)}.values()]


def _fastest(report: Report, study: Study, rows: Sequence[StudyRow], words: Words) -> str:
    order = sorted((row.step.mid, row.configuration.backend) for row in rows if row.step)[:2]
    return next((
        verdicts.sentence(one, words)
        for one in report.judged
        if (one.backends.name, one.backends.scaling) == (study.name, study.scaling)
        and {one.backends.one, one.backends.other} == {name for _, name in order}
        and any(row.layout == one.backends.layout for row in rows)
    ), "")  # fmt: skip


def _parts(report: Report, study: Study, place: str) -> list[comparison.Split]:
    plain = {"compression": "none"}
    splits = sorted(comparison.steps(report.trainings, report.fits), key=lambda one: one.number("ranks"))
    return [*{
        one.backend: one
        for one in splits
        if one.training
        and (one.training.workload, one.training.scaling) == (study.workload, study.scaling)
        and (one.training.topology == "inside") == (place == "inside")
        and {**plain, **dict(one.training.params)} == {**dict(study.params), **plain}
    }.values()]  # fmt: skip


def _models(report: Report) -> tuple[Any, list[Any]]:
    ratios = report.explanations("ratio")
    models = [one for one in ratios if one.key == "ratio.model"]
    groups = [
        (one, [model for model in models if one.names.items() <= model.names.items()])
        for one in ratios if one not in models
    ]  # fmt: skip
    most = max(groups, key=lambda one: (len(one[1]), one[0].names["topology"] != "inside"), default=None)
    return most or (None, [])


def _why(report: Report, kind: str, group: str | None, place: Mapping[str, str]) -> str:
    data, compressed = report.data, kind == "compression"
    what = "algorithm" if compressed else "backend"

    def shape(one: Configuration) -> dict[str, str]:
        return {"servers": str(len(one.hosts)), "slots": str(one.slots), "devices": str(one.ranks)}

    places = _stand_ins(report)
    own = {
        one: repeats
        for one, repeats in data.training.items()
        if group == (compression.format_key(one) if compressed else places.get(one.backend, one.backend))
    }
    if group is None:
        return f"hvlab does not know this {what}"
    if not own:
        left = next((case.reason for case in data.infeasible if f"-{group}-" in case.case), "")
        return f"infeasible: {left}" if left else f"this {what} was not measured in run {data.head.run_id}"
    there = [repeats for one, repeats in own.items() if place.items() <= shape(one).items()]
    if not there:
        layouts = sorted({(len(one.hosts), one.slots) for one in own})
        return "measured at servers x slots of " + ", ".join(f"{hosts}x{slots}" for hosts, slots in layouts)
    errors = [text for one in there for text in (*one.errors.values(), *one.skipped.values())]
    failed = errors and not any(one.ok for one in there)
    return f"every repeat failed: {errors[0]}" if failed else "all measured figures are in other rows"
