"""Models compared: how much each computes for a byte it sends, and how well it scales."""

from __future__ import annotations

from collections.abc import Sequence

from hvlab.analysis.model.explanation import Explanation
from hvlab.analysis.model.training import Training, trainings
from hvlab.report import labels
from hvlab.report.blocks import (
    NOTHING,
    Block,
    Column,
    Number,
    Paragraph,
    Points,
    Say,
    Section,
    Table,
    Value,
)
from hvlab.report.data import ReportData
from hvlab.report.reasons import about, of_kind, reason

_SEVERAL = 2


def section(data: ReportData, explanations: Sequence[Explanation]) -> Section | None:
    """Return the part of the report that compares models; None where one model was trained.

    ``explanations`` are what the model of communication explains: each model's ratio with its efficiency.
    """
    named = {(one.workload, one.get("model") or one.get("data")) for one in trainings(data.configurations)}
    ratios = of_kind(explanations, "ratio")
    if len(named) < _SEVERAL or not ratios:
        return None
    blocks: list[Block] = [Paragraph(Say("models.intro")), table(data, ratios)]
    conclusions = [one for one in ratios if one.key != "ratio.model"]
    if conclusions:
        sentences = tuple(
            Say("comparison.line", {"about": about(one), "reason": reason(one)}) for one in conclusions
        )
        blocks.append(Points(sentences))
    return Section("models", Say("models.title"), tuple(blocks))


def table(data: ReportData, ratios: Sequence[Explanation]) -> Table:
    """Return a row for each model and place, those that compute least for a byte first."""
    known = {_key(one): one for one in trainings(data.configurations)}
    columns = (
        Column(Say("models.model")),
        Column(Say("scaling.backend")),
        Column(Say("fit.where")),
        Column(Say("models.gradient"), numeric=True),
        Column(Say("models.flops"), numeric=True),
        Column(Say("models.compute"), numeric=True),
        Column(Say("models.ratio"), numeric=True),
        Column(Say("models.best"), numeric=True),
    )
    models = sorted(
        (one for one in ratios if one.key == "ratio.model"),
        key=lambda one: (
            one.numbers["flop_per_byte"],
            one.names["workload"],
            labels.order(one.names["backend"]),
        ),
    )
    rows = []
    for one in models:
        training = known.get(tuple(one.names.get(name) for name in _NAMED))
        place: dict[str, Value] = {
            "efficiency": Number(one.numbers["efficiency"], "ratio"), "ranks": round(one.numbers["ranks"]),
        }  # fmt: skip
        rows.append((
            _name(one), labels.backend(one.names["backend"]),
            labels.place(one.names["topology"], one.names.get("scaling", "weak")),
            *_figures(training), Number(one.numbers["flop_per_byte"]), Say("models.at", place),
        ))  # fmt: skip
    return Table("models", Say("models.caption"), columns, tuple(rows), merged=1, note=Say("models.note"))


_NAMED = ("workload", "model", "backend", "topology", "scaling", "compression", "batch")


def _key(one: Training) -> tuple[str | None, ...]:
    given = {
        "workload": one.workload,
        "backend": one.backend,
        "topology": one.topology,
        "scaling": one.scaling,
    }
    values = [given.get(name) or one.get(name) for name in _NAMED]
    return tuple(None if value is None else str(value) for value in values)


def _name(one: Explanation) -> Value:
    model = one.names.get("model")
    return (
        Say("label.named", {"workload": one.names["workload"], "name": model})
        if model
        else one.names["workload"]
    )


def _figures(training: Training | None) -> tuple[Value, Value, Value]:
    """Return gradient, work and compute of a training, from its largest number of ranks."""
    if training is None:
        return NOTHING, NOTHING, NOTHING
    steps = [step for step in (training.base, *training.steps) if step]
    flops = next((step.flops_per_sample for step in steps if step.flops_per_sample), None)
    compute = next((step.mean_compute_s for step in steps if step.mean_compute_s), None)
    return (
        Number(training.sent_bytes, "B") if training.sent_bytes else NOTHING,
        Number(flops, "FLOP/sample") if flops else NOTHING,
        Number(compute, "s") if compute else NOTHING,
    )
