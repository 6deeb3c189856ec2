"""Models compared, and predictions beyond the measured ranks, apart from everything that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hvlab.analysis.model.explanation import Explanation
from hvlab.analysis.model.fit import Fit
from hvlab.analysis.model.prediction import NoPrediction, PredictedStep, Prediction
from hvlab.analysis.model.sweep import ALLREDUCE, slots, topologies
from hvlab.analysis.model.training import Training
from hvlab.report import labels, spread
from hvlab.report.labels import Names, Value
from hvlab.report.plots import Axis, Plot, Series
from hvlab.report.spread import Spread
from hvlab.report.trainings import Study
from hvlab.report.words import Words

_SEVERAL = 2
_NAMED = ("workload", "model", "backend", "topology", "scaling", "compression", "batch")


@dataclass(frozen=True)
class ModelRow:
    """A model at a place: what it computes for a byte that it sends, and how well it scales."""

    name: str
    place: tuple[str, str]
    explained: Explanation
    sent: float | None
    flops: float | None
    compute: float | None


def models(trained: Sequence[Training], ratios: Sequence[Explanation]) -> list[ModelRow]:
    """Return the models, those that compute least for a byte first; none where only one was trained."""
    known = {_key(one): one for one in trained}
    if len({(one.workload, one.get("model") or one.get("data")) for one in trained}) < _SEVERAL:
        return []
    ordered = sorted((one for one in ratios if one.key == "ratio.model"), key=_least)
    return [_model(one, known.get(tuple(one.names.get(name) for name in _NAMED))) for one in ordered]


def _least(one: Explanation) -> tuple[float, str, tuple[int, str]]:
    return one.numbers["flop_per_byte"], one.names["workload"], labels.order(one.names["backend"])


def _key(one: Training) -> tuple[str | None, ...]:
    given = {name: getattr(one, name) for name in ("workload", "backend", "topology", "scaling")}
    values = [given.get(name) or one.get(name) for name in _NAMED]
    return tuple(None if value is None else str(value) for value in values)


def _model(one: Explanation, training: Training | None) -> ModelRow:
    """Return a model with gradient, work and compute from the training's largest number of ranks."""
    workload, model = one.names["workload"], one.names.get("model")
    steps = [step for step in (training.base, *training.steps) if step] if training else []
    return ModelRow(
        f"{workload} · {model}" if model else workload,
        (one.names["topology"], one.names.get("scaling", "weak")),
        one,
        sent=(training.sent_bytes or None) if training else None,
        flops=next((step.flops_per_sample for step in steps if step.flops_per_sample), None),
        compute=next((step.mean_compute_s for step in steps if step.mean_compute_s), None),
    )


@dataclass(frozen=True)
class Subject:
    """What a row is about: a training by its name, its backend, and where it ran."""

    training: Training
    name: Value

    @property
    def place(self) -> tuple[str, str, int]:
        """Return where it ran."""
        return self.training.topology, self.training.scaling, self.training.slots

    def called(self, words: Words) -> tuple[Value, ...]:
        """Return all of it in one cell."""
        return self.name, words.backend(self.training.backend), words.place(*self.place)


@dataclass(frozen=True)
class Predicted:
    """A training with its prediction."""

    subject: Subject
    prediction: Prediction

    @property
    def steps(self) -> list[PredictedStep]:
        """Return the predicted steps at the first, a middle and the last number of ranks."""
        last = len(self.prediction.steps) - 1
        return [self.prediction.steps[place] for place in sorted({0, last // 2, last})]


def predicted(predictions: Iterable[Prediction | NoPrediction]) -> list[Predicted]:
    """Return what was predicted."""
    good = sorted((one for one in predictions if isinstance(one, Prediction)), key=_order)
    names = Names((one.training.workload, one.training.params) for one in good)
    return [
        Predicted(Subject(one.training, names.name(one.training.workload, one.training.params)), one)
        for one in good
    ]


def _order(one: Prediction) -> tuple[str, str, tuple[int, str], str]:
    training = one.training
    return training.workload, str(training.params), labels.order(training.backend), training.topology


def refused(
    predictions: Iterable[Prediction | NoPrediction], words: Words
) -> list[tuple[Explanation, list[Value]]]:
    """Return why there is no prediction, each reason once with the trainings that have it."""
    left = [one for one in predictions if isinstance(one, NoPrediction)]
    names = Names((one.training.workload, one.training.params) for one in left)
    reasons: dict[str, tuple[Explanation, dict[Value, None]]] = {}
    for one in left:
        subject = Subject(one.training, names.name(one.training.workload, one.training.params))
        reasons.setdefault(str(one.reason), (one.reason, {}))[1][subject.called(words)] = None
    return [(reason, list(subjects)) for reason, subjects in reasons.values()]


def step_spread(step: PredictedStep) -> Spread:
    """Return a step with its band."""
    return Spread(step.low_s, step.step_s, step.high_s)


def speedup_spread(step: PredictedStep) -> Spread:
    """Return a speed-up with its band."""
    return Spread(step.speedup_low, step.speedup, step.speedup_high)


def common(doubts: Sequence[Sequence[Explanation]]) -> list[Explanation]:
    """Return the doubts that all rows of a table have: they stand below it once."""
    return [one for one in doubts[0] if all(one in each for each in doubts)] if doubts else []


def doubts(warnings: Iterable[Explanation], words: Words, besides: Sequence[Explanation] = ()) -> str | None:
    """Return the doubts besides those that all have."""
    return words.join((words.explain(one) for one in warnings if one not in besides), "semicolon") or None


@dataclass(frozen=True)
class Fitted:
    """The parameters of the model for a sweep."""

    name: Value
    fit: Fit

    def called(self, words: Words) -> tuple[Value, ...]:
        """Return what was fitted."""
        sweep = self.fit.sweep
        return self.name, words.backend(sweep.backend), words.place(sweep.topology, slots=sweep.slots)

    def known(self, name: str, text: str, words: Words) -> str:
        """Return a parameter, or that the sweep cannot tell it."""
        return text if name in self.fit.identifiable else words.say("fit.unidentifiable")

    def left_out(self, words: Words) -> str | None:
        """Return the error on what was kept from the fit."""
        left = self.fit.left_out
        if not left:
            return None
        ranks = left.kind == "ranks"
        value = left.value if ranks else words.number(left.value, "B")
        key = "fit.left_out_ranks" if ranks else "fit.left_out_size"
        return words.say(key, error=words.number(left.error, "share"), value=value)


def fitted(fits: Sequence[Fit]) -> list[Fitted]:
    """Return the fits with what they are called."""
    names = Names((ALLREDUCE, fit.sweep.params) for fit in fits)
    return [Fitted(names.name(ALLREDUCE, fit.sweep.params), fit) for fit in fits]


def caveats(fits: Sequence[Fitted], words: Words) -> list[str]:
    """Return the limits of the fits; those that all share, once."""
    shared = common([one.fit.warnings for one in fits])
    own = [(one, doubts(one.fit.warnings, words, shared)) for one in fits]
    lines = [words.say("comparison.line", about=one.called(words), reason=text) for one, text in own if text]
    return [*lines, *map(words.explain, shared)]


def plots(predictions: Sequence[Predicted], studied: Sequence[Study], words: Words) -> list[Plot]:
    """Return the predicted efficiency over ranks of each training, with what was measured as marks."""
    groups: dict[tuple[str, labels.Params, str], list[Predicted]] = {}
    for one in predictions:
        training = one.subject.training
        groups.setdefault((training.workload, training.params, training.scaling), []).append(one)
    return [_plot(group, studied, number, words) for number, group in enumerate(groups.values(), 1)]


def _plot(group: Sequence[Predicted], studied: Sequence[Study], number: int, words: Words) -> Plot:
    """Return the plot of a workload across servers, or else inside one."""
    first = group[0].subject
    shown = [one for one in group if one.subject.training.topology != "inside"] or group
    marks = [_measured(one.subject, studied, words) for one in shown]
    lines = (*(_line(one, words) for one in shown), *(one for one in marks if one))
    ranks = sorted({step.ranks for one in shown for step in one.prediction.steps}, reverse=True)
    ticks = tuple((float(place), str(place)) for place in ranks[::2])
    title = words.say("prediction.plot", name=words.study(first.name, first.training.scaling))
    return Plot(
        f"prediction-{number}", title, Axis(words.say("axis.ranks"), log=True, ticks=ticks),
        Axis(words.say("axis.efficiency"), zero=True), lines, predicted=words.say("prediction.tag"),
        note=words.say("prediction.band"),
    )  # fmt: skip


def _name(kind: str, training: Training, words: Words) -> str:
    where = words.place(training.topology, slots=training.slots)
    return words.say(f"prediction.{kind}", backend=words.backend(training.backend), where=where)


def _line(one: Predicted, words: Words) -> Series:
    training = one.subject.training
    points = [
        (
            float(step.ranks),
            Spread(step.efficiency_band[0], step.efficiency, step.efficiency_band[1]).times(100),
        )
        for step in one.prediction.steps
    ]
    name = _name("line", training, words)
    return spread.series(name, training.backend, points, line="dash", marks=False, predicted=True)


def _measured(subject: Subject, studied: Sequence[Study], words: Words) -> Series | None:
    """Return the measured efficiencies of a training; None where there is none."""
    training = subject.training
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
    return spread.series(name, training.backend, points, line="none") if points else None
