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
from hvlab.report.markdown import text as said
from hvlab.report.study import Row, Study, studies
from hvlab.report.words import Words, load

# The lab sheet measures this training; another is taken where it was not measured.
_TRAINING = "mnist"


def fill(text: str, data: ReportData, lang: str) -> Filled:
    """Return the Markdown text with its environment table and result tables filled from a run.

    What else stands in the text stays as it is; filling it again changes nothing. ``missing`` of the result
    names the tables there are figures for that the text has no place for. Raises UsageError where nothing
    can be filled.
    """
    known = sheet(data, lang)
    filled = lab_sheet.fill(text, known)
    if not known.known():
        raise UsageError(
            f"run {data.head.run_id} holds nothing that a lab sheet asks for",
            remedy="measure with `hvlab bench --suite lab7` or `--suite lab4`",
        )
    if not filled.tables:
        wanted = ", ".join(known.known())
        raise UsageError(
            f"the text has none of the tables that run {data.head.run_id} can fill: {wanted}",
            remedy="a table is known by the words of its head, such as 通信后端 | 服务器数量 | 平均每步耗时",
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
    backends = dict.fromkeys(row.cell.backend for study in ordered for row in study.rows)
    return Sheet(
        environment=_environment(data, words) if data.facts else {},
        inside=first.inside,
        across=first.across,
        compression=first.compression,
        names={name: said(labels.backend(name), words) for name in backends},
        trainings=trainings,
    )


def _ordered(found: Sequence[Study]) -> list[Study]:
    """Return the trainings, first that for the tables: the lab sheet's own, with weak scaling."""
    return sorted(found, key=lambda study: (study.workload != _TRAINING, study.scaling != "weak"))


def _called(one: Study | compression.Comparison) -> tuple[str, ...]:
    """Return what a training is called by in a text: its workload, and its model."""
    model = dict(one.params).get("model")
    return (one.workload, str(model)) if model else (one.workload,)


def _training(
    called: tuple[str, ...],
    found: Sequence[Study],
    compared: Sequence[compression.Comparison],
    words: Words,
) -> Training:
    """Return the rows of the first of the trainings that are called so."""
    rows = found[0].rows if found else ()
    return Training(
        called,
        inside=_scaling((row for row in rows if row.cell.inside), words),
        across=_scaling((row for row in rows if row.cell.across), words),
        compression=_compression(compared[0], words) if compared else (),
    )


def _environment(data: ReportData, words: Words) -> dict[str, str]:
    """Return the values of the environment table by what each row asks for."""
    rows = conditions.sheet(data).rows
    return {
        name.key.rpartition(".")[2]: said(value, words) for _, name, value in rows if isinstance(name, Say)
    }


def _scaling(rows: Iterable[Row], words: Words) -> list[dict[str, str]]:
    """Return the rows as the lab sheet has them: one for each backend, number of servers and of GPUs."""
    made: dict[tuple[str, int, int], dict[str, str]] = {}
    for row in rows:
        place = (row.cell.backend, len(row.cell.hosts), row.cell.slots)
        figures = {
            "step": spread.number(row.step, "s"),
            "throughput": spread.number(row.throughput, "samples/s"),
            "speedup": spread.number(row.speedup, "x"),
            "efficiency": spread.number(row.efficiency, "ratio"),
        }
        cells = {name: said(value, words) for name, value in figures.items()}
        counted = {"backend": row.cell.backend, "servers": str(place[1]), "slots": str(place[2])}
        made.setdefault(place, counted | cells)
    return list(made.values())


def _compression(compared: compression.Comparison, words: Words) -> list[dict[str, str]]:
    made = []
    for (cell, _), values in zip(compared.rows, compression.sheet(compared).rows, strict=True):
        serial = cell.backend == "serial"
        devices: Value = "" if serial else Say("compression.devices", {"count": cell.ranks})
        made.append(
            {
                "algorithm": "serial" if serial else str(cell.get("compression") or "none"),
                "devices": "" if serial else str(cell.ranks),
                "label": said(values[0], words),
                "devices_label": said(devices, words),
                "time": said(values[2], words),
                "accuracy": said(values[3], words),
            }
        )
    return made
