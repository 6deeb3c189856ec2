"""Models compared, and predictions beyond the measured ranks, apart from all measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.fit import Fit
from hvlab.analysis.model.prediction import NoPrediction, PredictedStep, Prediction
from hvlab.analysis.model.training import ALLREDUCE, Training, slots, topologies
from hvlab.base.groups import grouped
from hvlab.report import labels
from hvlab.report.labels import Names, Value
from hvlab.report.plots import Axis, Plot, Series
from hvlab.report.trainings import Study
from hvlab.report.words import Words

_SEVERAL = 2
_NAMED = ("workload", "model", "backend", "topology", "scaling", "compression", "batch")


def models(trained: Sequence[Training], ratios: Sequence[Explanation]) -> list[dict[str, Any]]:
    """Return the models, those with least compute per byte first; none if only one was trained."""
    known = {_key(one): one for one in trained}
    if len({(one.workload, one.get("model") or one.get("data")) for one in trained}) < _SEVERAL:
        return []
    ordered = sorted((one for one in ratios if one.key == "ratio.model"), key=_sort_key)
    return [_model(one, known.get(tuple(one.names.get(name) for name in _NAMED))) for one in ordered]


def _sort_key(one: Explanation) -> tuple[float, str, tuple[int, str]]:
    return one.numbers["flop_per_byte"], one.names["workload"], labels.order(one.names["backend"])


def _key(one: Training) -> tuple[str | None, ...]:
    given = {name: getattr(one, name) for name in ("workload", "backend", "topology", "scaling")}
    values = [given.get(name) or one.get(name) for name in _NAMED]
    return tuple(None if value is None else str(value) for value in values)


def _model(one: Explanation, training: Training | None) -> dict[str, Any]:
    steps = [step for step in (training.base, *training.steps) if step] if training else []
    return {
        "name": " · ".join(one.names[name] for name in ("workload", "model") if one.names.get(name)),
        "explained": one,
        "sent": (training.sent_bytes or None) if training else None,
        "flops": next((step.flops_per_sample for step in steps if step.flops_per_sample), None),
        "compute": next((step.mean_compute_s for step in steps if step.mean_compute_s), None),
    }


def list_predicted(predictions: Iterable[Prediction | NoPrediction]) -> list[Prediction]:
    """Return the predictions, backends of a training together."""
    good = (one for one in predictions if isinstance(one, Prediction))
    return sorted(good, key=lambda one: _order(one.training))


def _order(one: Training) -> tuple[str, str, tuple[int, str], str]:
    return one.workload, str(one.params), labels.order(one.backend), one.topology


def ends(one: Prediction) -> list[PredictedStep]:
    """Return the predicted steps at the first, a middle and the last number of ranks."""
    last = len(one.steps) - 1
    return [one.steps[place] for place in sorted({0, last // 2, last})]


def list_refused(
    predictions: Iterable[Prediction | NoPrediction], words: Words
) -> list[tuple[Explanation, list[Value]]]:
    """Return why there is no prediction, each reason once with its trainings."""
    left = [one for one in predictions if isinstance(one, NoPrediction)]
    names = Names((one.training.workload, one.training.params) for one in left)
    reasons: dict[str, tuple[Explanation, dict[Value, None]]] = {}
    for one in left:
        own = one.training
        about = names.of(own), words.backend(own.backend), words.place(own.topology, own.scaling, own.slots)
        reasons.setdefault(str(one.reason), (one.reason, {}))[1][about] = None
    return [(reason, list(subjects)) for reason, subjects in reasons.values()]


def common(doubts: Sequence[Sequence[Explanation]]) -> list[Explanation]:
    """Return the doubts that all rows of a table share: they are listed below it once."""
    return [one for one in doubts[0] if all(one in each for each in doubts)] if doubts else []


def doubts(warnings: Iterable[Explanation], words: Words, besides: Sequence[Explanation] = ()) -> str | None:
    """Return the doubts beside the common ones."""
    return words.join((words.explain(one) for one in warnings if one not in besides), "semicolon") or None


def format_parameter(fit: Fit, name: str, text: str, words: Words) -> str:
    """Return a parameter, or that the sweep cannot determine it."""
    return text if name in fit.identifiable else words.say("fit.unidentifiable")


def format_left_out(fit: Fit, words: Words) -> str | None:
    """Return the error on the held-out points."""
    left = fit.left_out
    if not left:
        return None
    value = left.value if left.kind == "ranks" else words.number(left.value, "B")
    return words.say(f"fit.left_out_{left.kind}", error=words.number(left.error, "share"), value=value)


def list_fitted(fits: Sequence[Fit], words: Words) -> list[tuple[Value, Fit]]:
    """Return the fits, each with its name."""
    names = Names((ALLREDUCE, fit.sweep.params) for fit in fits)
    return [
        ((
            names.name(ALLREDUCE, fit.sweep.params), words.backend(fit.sweep.backend),
            words.place(fit.sweep.topology, slots=fit.sweep.slots),
        ), fit)
        for fit in fits
    ]  # fmt: skip


def caveats(fits: Sequence[tuple[Value, Fit]], words: Words) -> list[str]:
    """Return the limits of the fits; common ones once."""
    shared = common([fit.warnings for _, fit in fits])
    own = [(about, doubts(fit.warnings, words, shared)) for about, fit in fits]
    lines = [words.say("comparison.line", about=about, reason=text) for about, text in own if text]
    return [*lines, *map(words.explain, shared)]


def plots(predictions: Sequence[Prediction], studied: Sequence[Study], words: Words) -> list[Plot]:
    """Return the predicted efficiency over ranks of each training, with measured ones as marks."""
    names = Names((one.training.workload, one.training.params) for one in predictions)
    groups = grouped(((names.of(one.training), one.training.scaling), one) for one in predictions)
    return [
        _plot(f"prediction-{number}", words.study(*name), group, studied, words)
        for number, (name, group) in enumerate(groups.items(), 1)
    ]


def _plot(key: str, name: Value, group: list[Prediction], studied: Sequence[Study], words: Words) -> Plot:
    """Return the plot of a workload across servers, or else inside one."""
    shown = [one for one in group if one.training.topology != "inside"] or group
    marks = [_build_measured(one.training, studied, words) for one in shown]
    lines = (*(_line(one, words) for one in shown), *(one for one in marks if one))
    ranks = sorted({step.ranks for one in shown for step in one.steps}, reverse=True)
    ticks = tuple((float(place), str(place)) for place in ranks[::2])
    return Plot(
        key, words.say("prediction.plot", name=name), Axis(words.say("axis.ranks"), log=True, ticks=ticks),
        Axis(words.say("axis.efficiency"), zero=True), lines, predicted=words.say("prediction.tag"),
        note=words.say("prediction.band"),
    )  # fmt: skip


def _name(kind: str, training: Training, words: Words) -> str:
    where = words.place(training.topology, slots=training.slots)
    return words.say(f"prediction.{kind}", backend=words.backend(training.backend), where=where)


def _line(one: Prediction, words: Words) -> Series:
    points = [(float(step.ranks), step.efficiency.times(100)) for step in one.steps]
    name, tone = _name("line", one.training, words), one.training.backend
    return Series.through(name, tone, points, line="dash", marks=False, predicted=True)


def _build_measured(training: Training, studied: Sequence[Study], words: Words) -> Series | None:
    points = [
        (float(row.ranks), row.efficiency.times(100))
        for study in studied
        if (study.workload, study.scaling) == (training.workload, training.scaling)
        for row in study.shown
        if row.efficiency and training.topology in topologies(row.configuration)
        and slots(row.configuration, training.topology) == training.slots
        and (row.configuration.backend, row.configuration.launcher) == (training.backend, training.launcher)
        and row.configuration.without("scaling") == training.params
    ]  # fmt: skip
    name = _name("marks", training, words)
    return Series.through(name, training.backend, points, line="none") if points else None
