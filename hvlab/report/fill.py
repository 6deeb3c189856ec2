"""A given lab sheet, filled in place with what a run measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hvlab.errors import UsageError
from hvlab.formats import lab_sheet
from hvlab.formats.lab_sheet import Filled, Sheet
from hvlab.formats.sheet_names import Training
from hvlab.report import compression, conditions, labels, spread
from hvlab.report.blocks import Say, Value
from hvlab.report.data import ReportData
from hvlab.report.markdown import text as markdown
from hvlab.report.study import Study, StudyRow, studies
from hvlab.report.words import Words, load

# The lab sheet measures this training; another is taken where it was not measured.
_TRAINING = "mnist"


def fill(text: str, data: ReportData, lang: str) -> Filled:
    """Return the Markdown text with its environment table and result tables filled from a run.

    What else stands in the text stays as it is; filling it again changes nothing. ``missing`` of the result
    names the tables there are figures for that the text has no place for. Raises UsageError where nothing
    can be filled.
    """
    content = sheet(data, lang)
    filled = lab_sheet.fill(text, content)
    if not content.known():
        raise UsageError(
            f"run {data.head.run_id} holds nothing that a lab sheet asks for",
            remedy="measure with `hvlab bench --suite lab7` or `--suite lab4`",
        )
    if not filled.tables:
        fillable = ", ".join(content.known())
        raise UsageError(
            f"the text has none of the tables that run {data.head.run_id} can fill: {fillable}",
            remedy="a table is recognised by its header, such as 通信后端 | 服务器数量 | 平均每步耗时",
        )
    return filled


def sheet(data: ReportData, lang: str) -> Sheet:
    """Return what a lab sheet asks for as Markdown that fits its cells."""
    words = load(lang)
    ordered = _ordered(studies(data))
    compared = compression.comparisons(data)
    first = _training((), ordered[:1], compared[:1], words)
    called = dict.fromkeys([*map(_called, ordered), *map(_called, compared)])
    trainings = [
        _training(
            name,
            [study for study in ordered if _called(study) == name],
            [one for one in compared if _called(one) == name],
            words,
        )
        for name in called
    ]
    backends = dict.fromkeys(row.configuration.backend for study in ordered for row in study.rows)
    return Sheet(
        environment=_environment(data, words) if data.facts else {},
        inside=first.inside,
        across=first.across,
        compression=first.compression,
        names={name: markdown(labels.backend(name), words) for name in backends},
        trainings=trainings,
    )


def _ordered(trainings: Sequence[Study]) -> list[Study]:
    """Return the trainings, first that for the tables: the lab sheet's own, with weak scaling."""
    return sorted(trainings, key=lambda study: (study.workload != _TRAINING, study.scaling != "weak"))


def _called(one: Study | compression.CompressionStudy) -> tuple[str, ...]:
    """Return what a training is called by in a text: its workload, and its model."""
    model = dict(one.params).get("model")
    return (one.workload, str(model)) if model else (one.workload,)


def _training(
    called: tuple[str, ...],
    trainings: Sequence[Study],
    compared: Sequence[compression.CompressionStudy],
    words: Words,
) -> Training:
    """Return the rows of the first of the trainings that are called so."""
    rows = trainings[0].rows if trainings else ()
    return Training(
        called,
        inside=_scaling((row for row in rows if row.configuration.inside), words),
        across=_scaling((row for row in rows if row.configuration.across), words),
        compression=_compression(compared[0], words) if compared else (),
    )


def _environment(data: ReportData, words: Words) -> dict[str, str]:
    """Return the values of the environment table by what each row asks for."""
    rows = conditions.sheet(data).rows
    return {
        name.key.rpartition(".")[2]: markdown(value, words)
        for _, name, value in rows
        if isinstance(name, Say)
    }


def _scaling(rows: Iterable[StudyRow], words: Words) -> list[dict[str, str]]:
    """Return the rows as the lab sheet has them: one for each backend, number of servers and of GPUs."""
    lines: dict[tuple[str, int, int], dict[str, str]] = {}
    for row in rows:
        place = (row.configuration.backend, len(row.configuration.hosts), row.configuration.slots)
        figures = {
            "step": spread.number(row.step, "s"),
            "throughput": spread.number(row.throughput, "samples/s"),
            "speedup": spread.number(row.speedup, "x"),
            "efficiency": spread.number(row.efficiency, "ratio"),
        }
        cells = {name: markdown(value, words) for name, value in figures.items()}
        counted = {"backend": row.configuration.backend, "servers": str(place[1]), "slots": str(place[2])}
        lines.setdefault(place, counted | cells)
    return list(lines.values())


def _compression(compared: compression.CompressionStudy, words: Words) -> list[dict[str, str]]:
    lines = []
    for (configuration, _), values in zip(compared.rows, compression.sheet(compared).rows, strict=True):
        serial = configuration.backend == "serial"
        devices: Value = "" if serial else Say("compression.devices", {"count": configuration.ranks})
        lines.append(
            {
                "algorithm": "serial" if serial else str(configuration.get("compression") or "none"),
                "devices": "" if serial else str(configuration.ranks),
                "label": markdown(values[0], words),
                "devices_label": markdown(devices, words),
                "time": markdown(values[2], words),
                "accuracy": markdown(values[3], words),
            }
        )
    return lines
