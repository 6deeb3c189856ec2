"""Predictions beyond the measured ranks, apart from everything that was measured, and marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hvlab.analysis.model.explanation import Explanation
from hvlab.analysis.model.fit import Fit, NoFit
from hvlab.analysis.model.prediction import NoPrediction, Prediction
from hvlab.analysis.model.sweep import slots, topologies
from hvlab.analysis.model.training import Training
from hvlab.report import labels, spread, terms
from hvlab.report.blocks import (
    NOTHING,
    Axis,
    Block,
    Column,
    Number,
    Paragraph,
    Plot,
    Say,
    Section,
    Series,
    Several,
    Table,
    Value,
)
from hvlab.report.reasons import reason
from hvlab.report.spread import Spread
from hvlab.report.study import Study


def section(
    studies: Sequence[Study], fits: Sequence[Fit | NoFit], predictions: Sequence[Prediction | NoPrediction]
) -> Section | None:
    """Return the part of the report that was not measured; None where there is nothing to predict.

    ``studies`` hold what was measured: it stands beside the predictions.
    """
    if not predictions:
        return None
    good = sorted((one for one in predictions if isinstance(one, Prediction)), key=_order)
    blocks: list[Block] = [Paragraph(Say("prediction.intro"), "warning")] if good else []
    fitting = [fit for fit in fits if isinstance(fit, Fit)]
    names = labels.Labels((one.training.workload, one.training.params) for one in good)
    blocks += [
        plot(group, studies, name, number) for number, (name, group) in enumerate(_groups(good, names), 1)
    ]
    if good:
        blocks += [table(good, names), *filter(None, [ends(good, names)]), checks(good, names)]
    if fitting:
        blocks.append(fitted(fitting))
    refused = [one for one in predictions if isinstance(one, NoPrediction)]
    if refused:
        blocks.insert(len(blocks) if good else 0, _refused(refused))
    return Section("prediction", Say("prediction.title"), tuple(blocks))


def _order(one: Prediction) -> tuple[str, str, tuple[int, str], str]:
    training = one.training
    return training.workload, str(training.params), labels.order(training.backend), training.topology


def fitted(fits: Sequence[Fit]) -> Table:
    """Return the parameters of the model for each backend, with the errors of the fit."""
    names = labels.Labels((fit.sweep.collective, fit.sweep.params) for fit in fits)
    columns = (
        Column(Say("comparison.collective"), text=True),
        Column(Say("fit.algorithm")),
        Column(Say("fit.start"), numeric=True),
        Column(Say("fit.alpha"), numeric=True),
        Column(Say("fit.bandwidth"), numeric=True),
        Column(Say("fit.error"), numeric=True),
        Column(Say("fit.left_out"), numeric=True),
    )
    return Table(
        "fit", Say("fit.caption"), columns, tuple(_fit_row(fit, names) for fit in fits),
        note=Several((Say("fit.note"), *doubts(fits)), "list.line"), folded=Say("fit.title"),
    )  # fmt: skip


def doubts(fits: Sequence[Fit]) -> tuple[Value, ...]:
    """Return what the fits cannot say, once what they all have in common."""
    common = _common([fit.warnings for fit in fits])
    names = labels.Labels((fit.sweep.collective, fit.sweep.params) for fit in fits)
    items: list[Value] = [
        Say(
            "comparison.line",
            {"about": terms.sweep(fit, names), "reason": _doubts(fit.warnings, besides=common)},
        )
        for fit in fits
        if len(fit.warnings) > len(common)
    ]
    return (*items, *map(reason, common))


def _common(doubts: Sequence[Sequence[Explanation]]) -> list[Explanation]:
    """Return the doubts that all rows of a table have: they stand below it once."""
    return [one for one in doubts[0] if all(one in each for each in doubts)] if doubts else []


def _doubts(warnings: Iterable[Explanation], *, besides: Sequence[Explanation] = ()) -> Value:
    phrases = tuple(reason(one) for one in warnings if one not in besides)
    return Several(phrases, "list.semicolon") if phrases else NOTHING


def _fit_row(fit: Fit, names: labels.Labels) -> tuple[Value, ...]:
    left = fit.left_out
    where = "fit.left_out_ranks" if left and left.kind == "ranks" else "fit.left_out_size"
    value = Number(left.value, "B") if left and left.kind != "ranks" else str(left.value) if left else ""
    wide = fit.cost.bandwidth_gb_per_s
    return (
        terms.sweep(fit, names),
        _known(fit, "algorithm", Say(f"algorithm.{fit.algorithm}")),
        _known(fit, "start", Number(fit.constant_s, "s")),
        _known(fit, "alpha", Number(fit.alpha_s, "s")),
        _known(fit, "bandwidth", Number(wide or 0.0, "GB/s")),
        Say(
            "fit.errors",
            {"median": Number(fit.error.median, "share"), "worst": Number(fit.error.worst, "share")},
        ),
        Say(where, {"error": Number(left.error, "share"), "value": value}) if left else NOTHING,
    )


def _known(fit: Fit, name: str, value: Value) -> Value:
    """Return a parameter of a fit, or that the sweep cannot tell it."""
    return value if name in fit.identifiable else Say("fit.unidentifiable")


def _groups(
    predictions: Sequence[Prediction], names: labels.Labels
) -> Iterator[tuple[Value, list[Prediction]]]:
    """Yield what belongs into one plot: a workload across servers, or else inside one."""
    groups: dict[tuple[str, labels.Params, str], list[Prediction]] = {}
    for one in predictions:
        key = (one.training.workload, one.training.params, one.training.scaling)
        groups.setdefault(key, []).append(one)
    for (workload, params, scaling), group in groups.items():
        across = [one for one in group if one.training.topology != "inside"]
        name = Say(
            "scaling.study", {"name": names.name(workload, params), "scaling": Say(f"scaling.{scaling}")}
        )
        yield name, across or group


def plot(group: Sequence[Prediction], studies: Sequence[Study], name: Value, number: int) -> Plot:
    """Return the predicted efficiency over ranks, with what was measured as marks."""
    lines = [*map(_line, group), *filter(None, (_measured(one, studies) for one in group))]
    ranks = sorted({step.ranks for one in group for step in one.steps}, reverse=True)
    ticks = tuple((float(number), str(number)) for number in ranks[::2])
    title = Say("prediction.plot", {"name": name})
    return Plot(
        f"prediction-{number}", title, Axis(Say("axis.ranks"), log=True, ticks=ticks),
        Axis(Say("axis.efficiency"), zero=True), tuple(lines), predicted=True, note=Say("prediction.band"),
    )  # fmt: skip


def _line(one: Prediction) -> Series:
    bands = [step.efficiency_band for step in one.steps]
    values = {
        "backend": labels.backend(one.training.backend),
        "where": labels.topology(one.training.topology, one.training.slots),
    }
    return Series(
        Say("prediction.line", values),
        one.training.backend,
        x=tuple(float(step.ranks) for step in one.steps),
        y=tuple(100 * step.efficiency for step in one.steps),
        low=tuple(100 * low for low, _ in bands),
        high=tuple(100 * high for _, high in bands),
        line="dash",
        marks=False,
        predicted=True,
    )


def _measured(one: Prediction, studies: Sequence[Study]) -> Series | None:
    """Return the measured efficiencies of a prediction's training; None where there is none."""
    training = one.training
    rows = [
        row
        for study in studies
        if (study.workload, study.scaling) == (training.workload, training.scaling)
        for row in study.rows
        if row.efficiency and not row.named and training.topology in topologies(row.configuration)
        and slots(row.configuration, training.topology) == training.slots
        and (row.configuration.backend, row.configuration.launcher) == (training.backend, training.launcher)
        and row.configuration.without("scaling") == training.params
    ]  # fmt: skip
    efficiencies = [row.efficiency.times(100) for row in rows if row.efficiency]
    if not rows:
        return None
    where = labels.topology(training.topology, training.slots)
    values = {"backend": labels.backend(training.backend), "where": where}
    return Series(
        Say("prediction.marks", values), training.backend, tuple(float(row.ranks) for row in rows),
        tuple(each.mid for each in efficiencies), tuple(each.low for each in efficiencies),
        tuple(each.high for each in efficiencies), line="none",
    )  # fmt: skip


def table(predictions: Iterable[Prediction], names: labels.Labels) -> Table:
    """Return the predicted step, speed-up and efficiency at the first, a middle and the last number."""
    columns = (
        Column(Say("workloads.name")),
        Column(Say("scaling.backend")),
        Column(Say("fit.where")),
        Column(Say("axis.ranks"), numeric=True),
        Column(Say("prediction.step"), numeric=True),
        Column(Say("prediction.speedup"), numeric=True),
        Column(Say("prediction.efficiency"), numeric=True),
    )
    rows = []
    for one in predictions:
        last = len(one.steps) - 1
        for step in (one.steps[place] for place in sorted({0, last // 2, last})):
            rows.append((
                *_subject(one, names), step.ranks,
                spread.both(Spread(step.low_s, step.step_s, step.high_s), "s"),
                spread.both(Spread(step.speedup_low, step.speedup, step.speedup_high), "x"),
                Number(step.efficiency, "ratio"),
            ))  # fmt: skip
    caption = Say("prediction.caption")
    return Table("predicted", caption, columns, tuple(rows), merged=3, folded=caption)


def ends(predictions: Iterable[Prediction], names: labels.Labels) -> Table | None:
    """Return why predictions end where they do, and what to measure; None where nothing ends them."""
    columns = (
        Column(Say("workloads.name")),
        Column(Say("scaling.backend")),
        Column(Say("fit.where")),
        Column(Say("failures.reason"), text=True),
    )
    rows = tuple((*_subject(one, names), reason(one.limit)) for one in predictions if one.limit)
    caption = Say("prediction.ends")
    return Table("ends", caption, columns, rows, merged=2, folded=caption) if rows else None


def checks(predictions: Sequence[Prediction], names: labels.Labels) -> Table:
    """Return how well the largest measured case is predicted from what is smaller."""
    columns = (
        Column(Say("workloads.name")),
        Column(Say("scaling.backend")),
        Column(Say("fit.where")),
        Column(Say("axis.ranks"), numeric=True),
        Column(Say("prediction.predicted"), numeric=True),
        Column(Say("prediction.measured"), numeric=True),
        Column(Say("prediction.error"), numeric=True),
        Column(Say("fit.doubts"), text=True),
    )
    common = _common([one.warnings for one in predictions])
    rows = []
    for one in predictions:
        sign = "signed.minus" if one.check.error < 0 else "signed.plus"
        rows.append((
            *_subject(one, names), one.check.ranks,
            Number(one.check.predicted_s, "s"), Number(one.check.measured_s, "s"),
            Say(sign, {"value": Number(abs(one.check.error), "share")}),
            _doubts(one.warnings, besides=common),
        ))  # fmt: skip
    return Table(
        "checks",
        Say("prediction.checks"),
        columns,
        tuple(rows),
        merged=1,
        note=Say("prediction.checks_note", {"doubts": _doubts(common)}),
        folded=Say("prediction.checks"),
    )


def _subject(one: Prediction, names: labels.Labels) -> tuple[Value, Value, Value]:
    """Return what a row is about: the training, its backend, and where it ran."""
    training = one.training
    name = names.name(training.workload, training.params)
    return name, labels.backend(training.backend), _place(training)


def _place(training: Training) -> Value:
    return labels.place(training.topology, training.scaling, training.slots)


def _refused(refused: Sequence[NoPrediction]) -> Table:
    """Return why there is no prediction, each reason once with the trainings that have it."""
    names = labels.Labels((one.training.workload, one.training.params) for one in refused)
    trainings: dict[str, dict[str, Value]] = {}
    reasons: dict[str, Value] = {}
    for one in refused:
        training, key = one.training, str(one.reason)
        name = names.name(training.workload, training.params)
        subject = Several((name, labels.backend(training.backend), _place(training)))
        trainings.setdefault(key, {})[str(subject)] = subject
        reasons[key] = reason(one.reason)
    columns = (Column(Say("failures.reason"), text=True), Column(Say("workloads.name"), text=True))
    rows = tuple(
        (reasons[key], Several(tuple(named.values()), "list.semicolon")) for key, named in trainings.items()
    )
    return Table("unpredicted", Say("prediction.refused"), columns, rows)
