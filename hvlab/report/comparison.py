"""Backends compared: why one is faster, the parts of its time, and the carrier of the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hvlab.analysis.model import Explanation, dominant
from hvlab.analysis.model.fit import Fit
from hvlab.analysis.model.predict import matching
from hvlab.analysis.model.training import ALLREDUCE, Training
from hvlab.lab.backends import SERIAL
from hvlab.report import labels
from hvlab.report.data import ReportData
from hvlab.report.labels import Value
from hvlab.report.plots import Axis, Bars, Plot
from hvlab.report.verdicts import BackendVerdict
from hvlab.report.words import Words

TERMS = ("compute", "waiting", "start", "latency", "bandwidth", "communication", "other")
# Parts of a step besides compute are negligible below this share.
_SMALL_LOSS = 0.1


def explain_missing(data: ReportData, judged: Sequence[BackendVerdict]) -> str | None:
    """Return the phrase for why nothing is compared; None if something is."""
    if judged:
        return None
    if data.sides:
        return "no_sides"
    tried = {one.backend for one in data.configurations} - {SERIAL}
    measured = {one.backend for one, repeats in data.configurations.items() if repeats.ok} - {SERIAL}
    return "apart" if len(measured) > 1 else "one_shown" if len(tried) > 1 else "none"


def list_failed(data: ReportData) -> list[tuple[str, int, str]]:
    """Return the backends whose cases all failed, with their number and the first reason."""
    cases: dict[str, dict[str, str]] = {}
    for record in data.records:
        if record.status == "failed":
            cases.setdefault(record.backend, {}).setdefault(record.case_id, record.error or "?")
    good = {record.backend for record in data.records if record.status == "ok"}
    names = sorted(cases.keys() - good, key=labels.order)
    return [(name, len(cases[name]), next(iter(cases[name].values()))) for name in names]


def explain_supported(one: Explanation, judged: Sequence[BackendVerdict]) -> Explanation:
    """Return an explanation, or that both are alike if no verdict on a collective supports it."""
    first, second = one.names["faster"], one.names["slower"]
    inside = one.names["topology"] == "inside"
    winners = {
        each.winner
        for each in judged
        if each.significant
        and each.backends.collective
        and {each.backends.one, each.backends.other} == {first, second}
        and (each.backends.layout[0] == 1) is inside
    }
    named = {first, second} if one.key == "faster.crossing" else {first}
    return one if named <= winners else replace(one, key="faster.alike")


@dataclass(frozen=True)
class Split:
    """The parts of a step of ``training``, or of a collective."""

    name: Value
    backend: str
    place: tuple[str, str, int]
    explained: Explanation
    training: Training | None = None

    def name_split(self, words: Words) -> tuple[Value, ...]:
        """Return the name of the split whole."""
        return self.name, words.backend(self.backend), words.place(*self.place)

    def number(self, name: str) -> float:
        """Return a number of the explanation."""
        return self.explained.numbers.get(name, 0.0)

    @property
    def startup(self) -> Explanation | None:
        """Share of start-up in the whole run."""
        return dominant.startup(self.training) if self.training else None

    @property
    def loss(self) -> str:
        """The largest part beside compute; empty if all of them together hardly matter."""
        shares = {term: self.number(term) for term in TERMS if term not in ("compute", "start")}
        # The start of an operation is part of the latency of a message.
        shares["latency"] += self.number("start")
        return max(shares, key=lambda term: shares[term]) if sum(shares.values()) > _SMALL_LOSS else ""

    @property
    def growth(self) -> float:
        """The compute time over that on one rank."""
        if not self.training or not self.training.base:
            return 1.0
        alone, together = self.training.base.mean_compute_s, self.training.steps[-1].mean_compute_s
        return together / alone if alone and together else 1.0

    def dominant(self, words: Words) -> str:
        """Return the largest part, and start-up if that is most of the run."""
        term = words.say(f"term.{self.explained.key.partition('.')[2]}")
        if self.startup and self.startup.key == "startup.dominates":
            return words.say("comparison.startup_dominates", term=term)
        return term


def steps(trainings: Iterable[Training], fits: Sequence[Fit]) -> list[Split]:
    """Return the parts of the largest measured step of each training."""
    stepped = sorted((training for training in trainings if training.steps), key=_order)
    names = labels.Names((training.workload, training.params) for training in stepped)
    splits = []
    for one in stepped:
        step = dominant.step(one, one.steps[-1], matching(fits, one))
        if step:
            name, place = names.name(one.workload, one.params), (one.topology, one.scaling, one.slots)
            splits.append(Split(name, one.backend, place, step, one))
    return splits


def _order(training: Training) -> tuple[str, str, str, str, tuple[int, str]]:
    place = training.topology, training.scaling, labels.order(training.backend)
    return training.workload, str(training.params), *place


def collectives(fits: Sequence[Fit]) -> list[Split]:
    """Return the parts of the smallest and the largest message of each sweep, by the model."""
    names = labels.Names((ALLREDUCE, fit.sweep.params) for fit in fits)
    return [
        Split(
            names.name(ALLREDUCE, fit.sweep.params), fit.sweep.backend,
            (fit.sweep.topology, "", fit.sweep.slots), dominant.collective(fit, fit.sweep.ranks[-1], size),
        )
        for fit in fits
        for size in dict.fromkeys((fit.sweep.sizes[0], fit.sweep.sizes[-1]))
    ]  # fmt: skip


def terms(splits: Sequence[Split]) -> list[str]:
    """Return the terms that any of them has."""
    return [term for term in TERMS if any(split.number(term) for split in splits)]


def bars(splits: Sequence[Split], words: Words) -> list[Plot]:
    """Return the parts of steps as bars."""
    if not splits:
        return []
    parts = tuple(
        Bars(words.say(f"term.{term}"), f"term.{term}", tuple(100 * split.number(term) for split in splits))
        for term in terms(splits)
    )
    return [Plot(
        "steps", words.say("comparison.plot_steps"), Axis(words.say("axis.share"), zero=True), Axis(""),
        bars=parts, categories=tuple(words.text(split.name_split(words)) for split in splits),
        note=words.say("comparison.steps_note"),
    )]  # fmt: skip


def proofs(data: ReportData) -> list[tuple[str, str, int, str]]:
    """Return the carriers that the timelines of all launched cases show: requested, shown, cases, verdict."""
    cases: dict[tuple[str, str], set[str]] = {}
    for record in data.records:
        if record.status != "skipped":
            cases.setdefault((record.backend, record.proved_backend or ""), set()).add(record.case_id)
    ordered = sorted(cases, key=lambda key: (labels.order(key[0]), key[1]))
    return [(*key, len(cases[key]), _proof(*key)) for key in ordered]


def _proof(requested: str, shown: str) -> str:
    if requested == SERIAL:
        return SERIAL
    return "missing" if not shown else "yes" if requested == shown else "no"
