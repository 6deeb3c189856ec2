"""The dominant term of a collective, a training step, or a whole run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.fit import Fit, NoFit
from hvlab.analysis.model.predict import matching
from hvlab.analysis.model.step import basis
from hvlab.analysis.model.sweep import ALLREDUCE
from hvlab.analysis.model.training import Step, Training, trainings
from hvlab.analysis.model.versus import backends, models, names_of
from hvlab.results.configurations import Configuration, Repeats

# Shares of a run from which start-up is mentioned, and dominates.
_MATTERS = 0.1
_MOST = 0.5


def explain(
    configurations: Mapping[Configuration, Repeats], fits: Iterable[Fit | NoFit]
) -> list[Explanation]:
    """Return everything that the figures explain.

    The collectives at the most ranks and at their smallest and largest size, the largest step and the
    start-up of each training, backends against each other, and models against each other.
    """
    fitted = tuple(one for one in fits if isinstance(one, Fit))
    explanations = [
        collective(fit, fit.sweep.ranks[-1], size)
        for fit in fitted
        for size in (fit.sweep.sizes[0], fit.sweep.sizes[-1])
    ]
    known_trainings = trainings(configurations)
    for training in known_trainings:
        if training.steps:
            fit, largest = matching(fitted, training), training.steps[-1]
            explanations += filter(None, (step(training, largest, fit), startup(training)))
    return [*explanations, *backends(fitted), *models(known_trainings)]


def collective(fit: Fit, ranks: int, size_bytes: float) -> Explanation:
    """Return the dominant term of a collective of that size: start, latency or bandwidth."""
    terms = fit.cost.terms(ranks, size_bytes)
    parts = {"start": terms.start_s, "latency": terms.latency_s, "bandwidth": terms.bandwidth_s}
    shares = {name: seconds / terms.seconds for name, seconds in parts.items()}
    numbers = {"ranks": ranks, "size_bytes": size_bytes, "seconds_ms": terms.seconds * 1e3}
    own = {name: getattr(fit.sweep, name) for name in ("backend", "launcher", "topology")}
    names = {"collective": ALLREDUCE, **own, "algorithm": fit.algorithm}
    return Explanation(f"collective.{_most(shares)}", shares | numbers, names)


def step(training: Training, largest: Step, fit: Fit | None) -> Explanation | None:
    """Return the dominant term of a measured step; None without a step at one rank to compare with.

    Compute is the mean over the hosts, waiting the surplus of the slowest host. The rest beyond the own work
    is split as in the fit into start, latency and bandwidth; anything longer than the whole allreduce is
    other. Without a fit all of it is communication.
    """
    base, size = training.base, training.sent_bytes
    if base is None:
        return None
    own = basis(training, base, size or 0)
    ranks = np.array([largest.ranks], dtype=float)
    compute = largest.mean_compute_s
    if compute is None:
        compute = float(own.compute(ranks)[0])
    waiting = (largest.compute_s or compute) - compute
    other = float(own.local_s / own.divisor(ranks)[0])
    beyond = max(0.0, largest.seconds - compute - waiting - other)
    parts = {"compute": compute, "waiting": waiting, "start": 0.0, "latency": 0.0, "bandwidth": 0.0}
    if fit and size:
        terms = fit.cost.terms(largest.ranks, size, operations=own.operations)
        part = min(1.0, beyond / terms.seconds)
        parts["start"] = terms.start_s * part
        parts["latency"] = terms.latency_s * part
        parts["bandwidth"] = terms.bandwidth_s * part
        other, beyond = other + beyond - terms.seconds * part, 0.0
    parts |= {"communication": beyond, "other": other}
    whole = sum(parts.values())
    shares = {name: seconds / whole for name, seconds in parts.items()}
    numbers = {"ranks": largest.ranks, "seconds_ms": largest.seconds * 1e3}
    return Explanation(f"step.{_most(shares)}", shares | numbers, names_of(training))


def startup(training: Training) -> Explanation | None:
    """Return the share of start-up in the largest run; None if it was not measured."""
    largest = training.steps[-1] if training.steps else None
    if largest is None or not largest.startup_s or not largest.training_s:
        return None
    startup_s, training_s = largest.startup_s, largest.training_s
    share = startup_s / (startup_s + training_s)
    word = "dominates" if share >= _MOST else "matters" if share >= _MATTERS else "small"
    numbers = {"share": share, "startup_s": startup_s, "training_s": training_s, "ranks": largest.ranks}
    return Explanation(f"startup.{word}", numbers, names_of(training))


def _most(shares: Mapping[str, float]) -> str:
    return max(shares, key=lambda name: shares[name])
