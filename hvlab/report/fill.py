"""A given lab sheet, filled in place with what a run measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hvlab.base.errors import UsageError
from hvlab.lab.backends import SERIAL
from hvlab.report import analysis, compression, conditions, labels
from hvlab.report.blocks import Number, Say, Value
from hvlab.report.data import ReportData
from hvlab.report.markdown import text as markdown
from hvlab.report.study import Study, StudyRow, studies
from hvlab.report.words import Words, load, shown
from hvlab.results.formats import lab_sheet
from hvlab.results.formats.lab_sheet import Filled, Sheet, SheetTraining
from hvlab.results.formats.sheet_rows import SheetFigure, Values
from hvlab.results.formats.sheet_words import unit_of

# The lab sheet measures this training; another is taken where it was not measured.
_TRAINING = "mnist"
# 98.35 %, as the lab sheet has it.
_DIGITS_OF_PERCENT = 4


def fill(text: str, data: ReportData, lang: str, *, pictures: str = "") -> Filled:
    """Return the Markdown text with its tables filled from a run, and its tasks of analysis answered.

    What else stands in the text stays as it is; filling it again changes nothing. ``missing`` of the result
    names the tables there are figures for that the text has no place for. ``pictures`` is the folder that
    curves are linked from; without, there are none. Raises UsageError where nothing can be filled.
    """
    content = replace(sheet(data, lang), analyses=analysis.paragraphs(data, load(lang), pictures))
    filled = lab_sheet.fill(text, content)
    if not content.known():
        raise UsageError(
            f"run {data.head.run_id} holds nothing that a lab sheet asks for",
            remedy="measure with `hvlab bench --suite lab7` or `--suite lab4`",
        )
    if not filled.tables:
        tables = ", ".join(content.known())
        raise UsageError(
            f"the text has none of the tables that run {data.head.run_id} can fill: {tables}",
            remedy="a table is recognised by its header, such as 通信后端 | 服务器数量 | 平均每步耗时",
        )
    return filled


def sheet(data: ReportData, lang: str) -> Sheet:
    """Return what a lab sheet asks for as Markdown that fits its cells."""
    words = load(lang)
    # The lab sheet's own training comes first, and with weak scaling.
    ordered = sorted(studies(data), key=lambda one: (one.workload != _TRAINING, one.scaling != "weak"))
    compared = compression.comparisons(data)
    default = _training((), ordered[:1], compared[:1], words)
    names = dict.fromkeys([*map(_name, ordered), *map(_name, compared)])
    backends = dict.fromkeys(row.configuration.backend for study in ordered for row in study.rows)
    configurations = [configuration for one in compared for configuration, _ in one.rows]
    return Sheet(
        environment=_environment(data, words) if data.facts else {},
        inside=default.inside,
        across=default.across,
        compression=default.compression,
        names={name: markdown(labels.backend(name), words) for name in backends},
        algorithms={
            compression.written(one): markdown(compression.algorithm(one), words) for one in configurations
        },
        trainings=[
            _training(
                name,
                [study for study in ordered if _name(study) == name],
                [one for one in compared if _name(one) == name],
                words,
            )
            for name in names
        ],
    )


def _name(training: Study | compression.CompressionStudy) -> tuple[str, ...]:
    """Return what a training is called by in a text: its workload, and its model."""
    model = dict(training.params).get("model")
    return (training.workload, str(model)) if model else (training.workload,)


def _training(
    name: tuple[str, ...],
    measured: Sequence[Study],
    compared: Sequence[compression.CompressionStudy],
    words: Words,
) -> SheetTraining:
    """Return the rows of the first of the trainings that are called so."""
    rows = measured[0].rows if measured else ()
    return SheetTraining(
        name,
        inside=_speedup((row for row in rows if row.configuration.inside), words),
        across=_speedup(_across(rows), words),
        compression=_compression(compared[0], words) if compared else (),
    )


def _across(rows: Sequence[StudyRow]) -> list[StudyRow]:
    """Return the rows of several servers, with those of one that they are compared with."""
    slots = {1, *(row.configuration.slots for row in rows if row.configuration.across)}
    return [row for row in rows if row.configuration.slots in slots]


def _environment(data: ReportData, words: Words) -> dict[str, str]:
    """Return the values of the environment table by what each row asks for."""
    rows = conditions.sheet(data).rows
    return {
        name.key.rpartition(".")[2]: markdown(value, words)
        for _, name, value in rows
        if isinstance(name, Say)
    }


# How many of a figure's unit there are in the units that the head of a column may name.
_PER: Mapping[str, Mapping[str, float]] = {
    "s": {"s": 1, "ms": 1e3, "us": 1e6, "min": 1 / 60},
    "samples/s": {"samples/s": 1},
    "x": {"x": 1},
    "ratio": {"%": 100},
    "%": {"%": 1},
}


def _figure(number: Number, words: Words, said: str = "") -> SheetFigure:
    """Return a figure with its unit, or as it is ``said``, and its bare number in the units of heads."""
    digits = _DIGITS_OF_PERCENT if number.unit == "%" else number.digits
    # What a command of the user's own counts may be called an image in the head, too.
    per = _PER.get(number.unit) or {unit_of(f"({number.unit})") or number.unit: 1}
    plain = {unit: shown(number.value * factor, digits) for unit, factor in per.items()}
    return SheetFigure(said or markdown(number, words), plain)


def _speedup(rows: Iterable[StudyRow], words: Words) -> list[Values]:
    """Return the rows as the lab sheet has them: one for each backend, number of servers and of GPUs."""
    values: dict[tuple[str, int, int], Values] = {}
    for row in rows:
        if row.step is None and row.throughput is None:
            continue
        backend, servers, slots = place = (
            row.configuration.backend,
            len(row.configuration.hosts),
            row.configuration.slots,
        )
        figures = {
            "step": (row.step, "s"),
            "throughput": (row.throughput, row.configuration.unit("throughput")),
            "speedup": (row.speedup, "x"),
            "efficiency": (row.efficiency, "ratio"),
        }
        cells = {
            name: _figure(Number(figure.mid, unit), words)
            for name, (figure, unit) in figures.items()
            if figure
        }
        where: Values = {"backend": backend, "servers": str(servers), "slots": str(slots)}
        values.setdefault(place, {**where, **cells})
    return list(values.values())


def _compression(compared: compression.CompressionStudy, words: Words) -> list[Values]:
    """Return the rows as the lab sheet has them: one for each algorithm and number of devices."""
    values: dict[tuple[str, int], Values] = {}
    for (configuration, repeats), row in zip(compared.rows, compression.sheet(compared).rows, strict=True):
        devices: Value = Say("compression.devices", {"count": configuration.ranks})
        cells: dict[str, str | SheetFigure] = {
            "algorithm": compression.written(configuration),
            "devices": "" if configuration.backend == SERIAL else markdown(devices, words),
        }
        if real := repeats.of("real"):
            cells["time"] = _figure(Number(statistics.median(real), "s"), words, markdown(row[2], words))
        if accuracy := repeats.of("accuracy"):
            cells["accuracy"] = _figure(Number(statistics.median(accuracy), "%"), words)
        values.setdefault((compression.written(configuration), configuration.ranks), cells)
    return list(values.values())
