"""What one run puts into a lab sheet: its figures, its environment, and answers to the sheet's tasks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import jinja2

from hvlab.analysis.model import dominant
from hvlab.analysis.model.fit import Fit, fits
from hvlab.analysis.model.predict import matching
from hvlab.analysis.model.training import trainings
from hvlab.base.errors import HvlabError
from hvlab.base.paths import project_dir
from hvlab.lab import environment
from hvlab.lab.backends import BACKENDS, SERIAL
from hvlab.report import compression
from hvlab.report.data import ReportData
from hvlab.report.page import escaped, picture
from hvlab.report.plots import Plot
from hvlab.report.sheet import Content, Figure, Filled, SheetTraining, Values, fill_in, unit_of
from hvlab.report.trainings import Study, StudyRow, curve, studies
from hvlab.report.words import Words, load, shown
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics.interval import mean
from hvlab.statistics.sequential import holds
from hvlab.statistics.verdict import Pair

# The training of lab sheets; if it was not measured, another one is taken.
_TRAINING = "mnist"
_TITLES = {name: backend.title for name, backend in BACKENDS.items() if name != SERIAL}
# Rows of the sheet's environment: the row of hvlab's table, and the key of a record's stack.
_ENVIRONMENT = {
    "nic": ("NIC", "nics"), "gpu": ("GPU", "gpus"), "gpu_link": ("GPU link", "link"), "os": ("OS", "os"),
    "driver": ("GPU driver", "driver"), "nic_driver": ("NIC driver", "nic_driver"),
    "framework": ("Frameworks", "torch"), "cuda": ("CUDA", "cuda"), "nccl": ("NCCL", "nccl"),
}  # fmt: skip
_HOSTS = 12
# Factors from a figure's unit to the units that a column's head may name.
_PER: Mapping[str, Mapping[str, float]] = {
    "s": {"s": 1, "ms": 1e3, "us": 1e6, "min": 1 / 60},
    "ratio": {"%": 100},
}
_PARTS = ("waiting", "latency", "bandwidth", "communication", "other")
# Losses below this share of a step do not matter.
_SMALL_LOSS = 0.1
Trained = Mapping[Configuration, Repeats]


def fill(text: str, data: ReportData, lang: str, *, pictures: str = "") -> Filled:
    """Return the sheet filled from a run. ``pictures`` is the folder that curves are linked from.

    Raises HvlabError where no figure of the run fits.
    """
    content = _content(data, lang, pictures)
    filled = fill_in(text, content)
    if not filled.figures and filled.tables != ("environment",):
        kinds = dict.fromkeys(kind for one in content.trainings for kind, rows in one.rows.items() if rows)
        has = f"tables for {', '.join(filled.tables)}" if filled.tables else "no table that can be filled"
        raise HvlabError(
            f"run {data.head.run_id} has figures for {', '.join(kinds) or 'no table'}; the sheet has {has}",
            remedy="measure what it asks for with `hvlab bench --suite lab7` or `--suite lab4`; a table is "
            "recognised by its header, such as 通信后端 | 服务器数量 | 平均每步耗时",
        )
    return filled


def curves(data: ReportData, lang: str) -> list[tuple[str, Plot]]:
    """Return the curve of speed-up of each training, with its name."""
    named = ((_words(lang).curve(" ".join(_name(study)), study.scaling), study) for study in studies(data))
    plots = ((name, curve(data, study, name, at, load(lang))) for at, (name, study) in enumerate(named, 1))
    return [(name, plot) for name, plot in plots if plot]


def _content(data: ReportData, lang: str, pictures: str) -> Content:
    words, said = _words(lang), load(lang)
    ordered = sorted(studies(data), key=lambda one: (one.workload != _TRAINING, one.scaling != "weak"))
    groups = [dict(study.rows) for study in compression.comparisons(data)]
    compared = {_named(*group): group for group in reversed(groups)}
    by_name = {_name(study): study for study in reversed(ordered)}
    names = sorted(dict.fromkeys([*map(_name, ordered), *compared]), key=lambda name: name[0] != _TRAINING)
    epochs = {str(one.get("epochs", "")) for one in data.training if names and _named(one) == names[0]}
    counted = epochs.pop() if len(epochs) == 1 else ""
    rows = {
        name: {
            **_speedups(by_name.get(name), said),
            "compression": _compressed(compared.get(name, {}), said),
        }
        for name in names
    }

    def answer(kind: str) -> list[str]:
        own = [compared[name] for name in names if name in compared]
        given: tuple[Any, ...] = (counted,)
        if kind == "backends":
            given = _backends(data, ordered[0]) if ordered else ([], [], False)
        elif kind == "models":
            given = _models(data)
        elif kind == "compression":
            given = ([*_changes(own[0])] if own else [],)
        text = getattr(words, kind)(*given)
        shown = curves(data, lang) if text.strip() and kind == "backends" and pictures else ()
        links = [f"![{escaped(name)}]({picture(pictures, plot.key)})" for name, plot in shown]
        return [*links, *_paragraphs(text, lang)]

    return Content(
        environment=_environment(data, words, said) if data.records else {},
        trainings=[SheetTraining(name, kinds) for name, kinds in rows.items()],
        names={**words.names, **_TITLES},
        answer=answer,
        epochs=counted,
        why=lambda kind, group, place: _why(data, kind, group, place),
    )


@cache
def _words(lang: str) -> Any:
    """Return the template of a language as a module: its words and macros by name."""
    said = load(lang)
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(project_dir() / "templates/sheet"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - Markdown; what hosts say is escaped
    )
    jinja.globals["titles"] = _TITLES
    jinja.filters |= {
        "number": shown,
        "escaped": escaped,
        "percent": lambda share: f"{100 * share:.0f}%",
        "time": lambda seconds: said.number(seconds, "s"),
        "bytes": lambda size: said.number(size, "B"),
    }
    return jinja.get_template(f"{lang}.md.j2").module


def _paragraphs(text: str, lang: str) -> list[str]:
    """Return the paragraphs of an answer, a line each."""
    lines = ([line.strip() for line in part.splitlines()] for part in text.split("\n\n"))
    return [part for own in lines if (part := ("" if lang == "zh" else " ").join(filter(None, own)))]


def _name(study: Study) -> tuple[str, ...]:
    """Return the names of a training: its workload, and its model."""
    return tuple(str(name) for name in (study.workload, dict(study.params).get("model")) if name)


def _named(one: Configuration, *_: Configuration) -> tuple[str, ...]:
    return tuple(str(name) for name in (one.workload, one.get("model")) if name)


def _environment(data: ReportData, words: Any, said: Words) -> dict[str, str]:
    """Return the rows of the environment table; without facts, what the records say."""

    def fact(text: str) -> str:
        return escaped(said.fact(text))

    table = {row.name: row.values for row in environment.table(data.facts)}
    hosts = list(data.facts) or sorted({host for record in data.records for host in record.hosts})
    values = {"servers": words.among(len(hosts), map(escaped, hosts[:_HOSTS]))}
    for name, (row, key) in _ENVIRONMENT.items():
        recorded, several = data.stack.get(key), table[row]
        if isinstance(recorded, str) and (not data.facts or key == "nccl"):
            values[name] = fact(f"torch {recorded}" if key == "torch" else recorded)
        elif len(several) > 1:
            own = (words.among(fact(value), map(escaped, hosts)) for value, hosts in several.items())
            values[name] = "<br>".join(own)
        else:
            values[name] = "".join(map(fact, several))
    return {**values, "driver": words.driver(values["driver"], values.pop("nic_driver"))}


def _figure(value: float, unit: str, said: Words, text: str = "") -> Figure:
    """Return a figure with its unit or as ``text`` says it, and as a bare number in the units of heads."""
    # A column's head may call the samples of a user's own command images.
    per = _PER.get(unit) or {unit_of(f"({unit})") or unit: 1}
    plain = {name: f"{value:.2f}" if unit == "%" else shown(value * factor) for name, factor in per.items()}
    return {**plain, "": text or said.number(value, unit)}


def _speedups(study: Study | None, said: Words) -> dict[str, list[Values]]:
    """Return a row for each backend, number of servers and of ranks; those of one server are of one host."""
    rows = [row for row in study.rows if row.step or row.throughput] if study else []
    alone = Counter(row.configuration.hosts for row in rows if row.configuration.inside).most_common(1)
    usual = [row for row in rows if row.configuration.across or row.configuration.hosts == alone[0][0]]
    slots = {"1", *(str(row.configuration.slots) for row in usual if row.configuration.across)}
    values: dict[tuple[str, ...], Values] = {}
    for row in usual:
        place = (row.configuration.backend, *map(str, row.layout))
        figures = {
            "step": (row.step, "s"), "throughput": (row.throughput, row.configuration.unit("throughput")),
            "speedup": (row.speedup, "x"), "efficiency": (row.efficiency, "ratio"),
        }  # fmt: skip
        cells = {name: _figure(one.mid, unit, said) for name, (one, unit) in figures.items() if one}
        values.setdefault(place, {**dict(zip(("backend", "servers", "slots"), place, strict=True)), **cells})
    inside = [one for one in values.values() if one["servers"] == "1"]
    return {"inside": inside, "across": [one for one in values.values() if one["slots"] in slots]}


def _compressed(compared: Trained, said: Words) -> list[Values]:
    values: dict[tuple[str, int], Values] = {}
    for one, repeats in compared.items():
        real, accuracy = (compression.middle(repeats, metric) for metric in ("real", "accuracy"))
        cells: dict[str, Figure] = {}
        if real is not None:
            cells["time"] = _figure(real, "s", said, "<br>".join(map(str, compression.times(repeats) or ())))
        if accuracy is not None:
            cells["accuracy"] = _figure(accuracy, "%", said)
        devices = "" if one.backend == SERIAL else f"Device# == {one.ranks}"
        if cells:
            row: Values = {"algorithm": compression.written(one), "devices": devices, **cells}
            values.setdefault((compression.written(one), one.ranks), row)
    return [*values.values()]


def _changes(compared: Trained) -> Iterator[dict[str, Any]]:
    """Yield the effect of each compression on time and accuracy, against the same ranks without."""
    named = [(compression.written(one), one, own) for one, own in compared.items()]
    whole = {(one.backend, one.hosts, one.slots): own for name, one, own in named if name == "none"}
    last = {name: (one, own) for name, one, own in named if own.ok}
    for name, (one, own) in last.items():
        base = whole.get((one.backend, one.hosts, one.slots))
        if base is None or base is own:
            continue
        mine, theirs = own.values.get("accuracy", {}), base.values.get("accuracy", {})
        changes = [mine[repeat] - theirs[repeat] for repeat in sorted(mine.keys() & theirs.keys())]
        real, whole_real = (compression.middle(each, "real") for each in (own, base))
        times = real / whole_real if real is not None and whole_real else None
        change = mean(changes) if changes else None
        yield {"name": name, "ranks": one.ranks, "times": times, "change": change, "repeats": len(changes)}


def _backends(data: ReportData, study: Study) -> tuple[list[Any], list[list[str]], bool]:
    """Return the figures of the backends inside one server and across, and of the cores."""
    good = [fit for fit in fits(data.configurations, virtual=data.virtual) if isinstance(fit, Fit)]
    places = []
    for across in (False, True):
        rows: dict[str, StudyRow] = {}
        for row in sorted(study.rows, key=lambda row: row.ranks):
            if (
                row.ranks > 1
                and row.configuration.across == across
                and row.step
                and row.compression == "none"
            ):
                rows[row.configuration.backend] = row
        if rows:
            parts = [*_parts(data, study, good, across=across)]
            versus = _versus(data, rows)
            places.append({"across": across, "rows": [*rows.values()], "versus": versus, "parts": parts})
    crowds = {str(record.stack.get("oversubscribed", "")): None for record in data.records}
    return places, [re.findall(r"\d+", crowd)[:2] for crowd in crowds if crowd], data.virtual


def _versus(data: ReportData, rows: Mapping[str, StudyRow]) -> dict[str, Any] | None:
    """Return the fastest backend at the largest number of ranks beside the second fastest."""
    most = max(row.ranks for row in rows.values())
    alike = [row for row in rows.values() if row.ranks == most]
    best, *others = sorted(alike, key=lambda row: row.step.mid if row.step else 0.0)
    if not others:
        return None
    pair = Pair(best.repeats.times("step_time"), others[0].repeats.times("step_time"))
    (verdict,) = data.compare([pair])
    kind = "unclear" if verdict.kind == "faster" and not holds(verdict) else verdict.kind
    names = {"best": best.configuration.backend, "other": others[0].configuration.backend, "ranks": most}
    return {**names, "kind": kind, "ratio": verdict.ratio, "repeats": min(len(pair.a), len(pair.b))}


def _parts(data: ReportData, study: Study, good: list[Fit], *, across: bool) -> Iterator[dict[str, Any]]:
    """Yield the parts of the largest step over each backend."""
    measured = (one for one in trainings(data.configurations) if one.steps)
    plain, asked = {"compression": "none"}, (study.workload, study.scaling, across)
    known = {
        one.backend: one
        for one in sorted(measured, key=lambda one: one.steps[-1].ranks)
        if (one.workload, one.scaling, one.topology != "inside") == asked
        and {**plain, **dict(one.params)} == {**dict(study.params), **plain}
    }
    for name, one in known.items():
        last, explained = one.steps[-1], dominant.step(one, one.steps[-1], matching(good, one))
        if explained is None or one.base is None:
            continue
        shares = {part: explained.numbers.get(part, 0.0) for part in _PARTS}
        shares["latency"] += explained.numbers.get("start", 0.0)
        loss = max(shares, key=lambda part: shares[part]) if sum(shares.values()) > _SMALL_LOSS else ""
        alone, together = one.base.mean_compute_s, last.mean_compute_s
        yield {
            "backend": name, "ranks": last.ranks, "seconds": last.seconds, "loss": loss,
            "sent": one.sent_bytes or 0, "shares": {"compute": explained.numbers["compute"], **shares},
            "slots": one.slots, "across": across, "growth": together / alone if alone and together else 1.0,
        }  # fmt: skip


def _models(data: ReportData) -> tuple[Any, list[Any]]:
    """Return whether models with more FLOP per byte scale better, and these, where most were compared."""
    ratios = [one for one in dominant.explain(data.configurations, []) if one.key.startswith("ratio.")]
    models = [one for one in ratios if one.key == "ratio.model"]
    groups = [
        (one, [model for model in models if one.names.items() <= model.names.items()])
        for one in ratios if one not in models
    ]  # fmt: skip
    ranks = [(len(group), one.names["topology"] != "inside") for one, group in groups]
    return groups[ranks.index(max(ranks))] if groups else (None, [])


def _why(data: ReportData, kind: str, group: str | None, place: Mapping[str, str]) -> str:
    """Return why a row has no figures: in English, for the terminal."""
    compressed = kind == "compression"
    what = "algorithm" if compressed else "backend"
    own = {
        one: repeats
        for one, repeats in data.training.items()
        if group == (compression.written(one) if compressed else one.backend)
    }
    if group is None:
        return f"this is no {what} that hvlab knows"
    if not own:
        left = next((case.reason for case in data.infeasible if f"-{group}-" in case.case), "")
        return f"infeasible: {left}" if left else f"this {what} was not measured in run {data.head.run_id}"
    shapes = {one: {"servers": len(one.hosts), "slots": one.slots, "devices": one.ranks} for one in own}
    there = [own[one] for one in own if all(str(shapes[one][key]) == value for key, value in place.items())]
    if not there:
        layouts = sorted({(len(one.hosts), one.slots) for one in own})
        return "measured at servers x slots of " + ", ".join(f"{hosts}x{slots}" for hosts, slots in layouts)
    errors = [text for one in there for text in (*one.errors.values(), *one.skipped.values())]
    failed = errors and not any(one.ok for one in there)
    return f"every repeat failed: {errors[0]}" if failed else "all that was measured stands in other rows"
