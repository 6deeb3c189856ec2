"""Where the time goes: the terms of training steps and of collectives, at the largest number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hvlab.analysis.model import dominant
from hvlab.analysis.model.choice import matching
from hvlab.analysis.model.explanation import Explanation
from hvlab.analysis.model.fit import Fit
from hvlab.analysis.model.training import Training
from hvlab.report import labels
from hvlab.report.blocks import (
    NOTHING,
    Axis,
    Bars,
    Block,
    Column,
    Number,
    Plot,
    Say,
    Several,
    Table,
    Value,
)

TERMS = ("compute", "waiting", "start", "latency", "bandwidth", "communication", "other")


@dataclass(frozen=True)
class Split:
    """What a step or a collective is made of; ``startup`` is what start-up is of the whole run."""

    name: Value
    explained: Explanation
    startup: Explanation | None = None

    def number(self, name: str) -> float:
        """Return a number of the explanation."""
        return self.explained.numbers.get(name, 0.0)

    @property
    def dominant(self) -> Value:
        """Return the term that is the largest part, and start-up where that is most of the run."""
        term = Say(f"term.{self.explained.key.partition('.')[2]}")
        if self.startup and self.startup.key == "startup.dominates":
            return Say("comparison.startup_dominates", {"term": term})
        return term


def of_steps(trainings: Iterable[Training], fits: Sequence[Fit]) -> list[Split]:
    """Return what the largest measured step of each training is made of."""
    stepped = sorted((training for training in trainings if training.steps), key=_order)
    names = labels.Labels((training.workload, training.params) for training in stepped)
    splits = []
    for training in stepped:
        step = dominant.step(training, training.steps[-1], matching(fits, training))
        if step:
            splits.append(Split(_training(training, names), step, dominant.startup(training)))
    return splits


def of_collectives(fits: Sequence[Fit]) -> list[Split]:
    """Return what the smallest and the largest message of each sweep is made of, as the model has it."""
    names = labels.Labels((fit.sweep.collective, fit.sweep.params) for fit in fits)
    return [
        Split(sweep(fit, names), dominant.collective(fit, fit.sweep.ranks[-1], size))
        for fit in fits
        for size in dict.fromkeys((fit.sweep.sizes[0], fit.sweep.sizes[-1]))
    ]


def sweep(fit: Fit, names: labels.Labels) -> Value:
    """Return what a fit is called."""
    place = labels.topology(fit.sweep.topology, fit.sweep.slots)
    return Several(
        (names.name(fit.sweep.collective, fit.sweep.params), labels.backend(fit.sweep.backend), place)
    )


def blocks(steps: Sequence[Split], collectives: Sequence[Split]) -> list[Block]:
    """Return the parts of steps as bars and as a table, and those of collectives."""
    parts: list[Block] = []
    if steps:
        parts += [_bars(steps), _steps(steps)]
    if collectives:
        parts.append(_collectives(collectives))
    return parts


def _order(training: Training) -> tuple[str, str, str, str, tuple[int, str]]:
    place = training.topology, training.scaling, labels.order(training.backend)
    return training.workload, str(training.params), *place


def _training(training: Training, names: labels.Labels) -> Value:
    strong = [labels.scaling("strong")] if training.scaling == "strong" else []
    name = names.name(training.workload, training.params)
    place = labels.topology(training.topology, training.slots)
    return Several((name, labels.backend(training.backend), place, *strong))


def _bars(splits: Sequence[Split]) -> Plot:
    bars = tuple(
        Bars(Say(f"term.{term}"), f"term.{term}", tuple(100 * split.number(term) for split in splits))
        for term in _present(splits)
    )
    x, y = Axis(Say("axis.share"), zero=True), Axis("")
    categories = tuple(split.name for split in splits)
    return Plot(
        "steps", Say("comparison.plot_steps"), x, y, bars=bars, categories=categories,
        note=Say("comparison.steps_note"),
    )  # fmt: skip


def _steps(splits: Sequence[Split]) -> Table:
    columns = (
        Column(Say("comparison.training"), text=True),
        Column(Say("axis.ranks"), numeric=True),
        Column(Say("scaling.step"), numeric=True),
        *_heads(splits),
        Column(Say("comparison.startup"), numeric=True),
        Column(Say("comparison.dominant")),
    )
    rows = tuple(
        (
            split.name,
            round(split.number("ranks")),
            Number(split.number("seconds_ms") / 1e3, "s"),
            *_cells(split, splits),
            Number(split.startup.numbers["share"], "share") if split.startup else NOTHING,
            split.dominant,
        )
        for split in splits
    )
    return Table(
        "steps-table", Say("comparison.plot_steps"), columns, rows, folded=Say("comparison.as_table")
    )


def _collectives(splits: Sequence[Split]) -> Table:
    columns = (
        Column(Say("comparison.collective"), text=True),
        Column(Say("axis.ranks"), numeric=True),
        Column(Say("sweeps.size"), numeric=True),
        Column(Say("comparison.modelled"), numeric=True),
        *_heads(splits),
        Column(Say("comparison.dominant")),
    )
    rows = tuple(
        (
            split.name,
            round(split.number("ranks")),
            Number(split.number("size_bytes"), "B"),
            Number(split.number("seconds_ms") / 1e3, "s"),
            *_cells(split, splits),
            split.dominant,
        )
        for split in splits
    )
    return Table(
        "terms", Say("comparison.terms_caption"), columns, rows, merged=1, folded=Say("comparison.terms")
    )


def _present(splits: Sequence[Split]) -> list[str]:
    """Return the terms that any of them has."""
    return [term for term in TERMS if any(split.number(term) for split in splits)]


def _heads(splits: Sequence[Split]) -> list[Column]:
    return [Column(Say(f"term.{term}"), numeric=True) for term in _present(splits)]


def _cells(split: Split, splits: Sequence[Split]) -> list[Value]:
    return [
        Number(split.number(term), "share") if split.number(term) else NOTHING for term in _present(splits)
    ]
