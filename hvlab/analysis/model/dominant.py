"""The dominant term of a collective, a training step or a run; and the terms that decide between rivals."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.costs import crossing
from hvlab.analysis.model.fit import Fit, NoFit
from hvlab.analysis.model.predict import matching
from hvlab.analysis.model.step import basis
from hvlab.analysis.model.training import ALLREDUCE, TOPOLOGIES, Step, Training, trainings
from hvlab.results.configurations import Configuration, Repeats

_BAND = (0.1, 99.9)
# Parameters that tell one training from another to a reader.
_TELLING = ("model", "compression", "batch", "device")


def names_of(training: Training) -> dict[str, str]:
    """Return the names that identify a training."""
    fields = ("workload", "backend", "launcher", "topology", "scaling")
    own = {name: str(getattr(training, name)) for name in fields}
    params = {name: training.get(name) for name in _TELLING}
    return own | {name: str(value) for name, value in params.items() if value is not None}


def backends(fits: Iterable[Fit]) -> list[Explanation]:
    """Return the faster of each two backends, and the term, in each topology; of the most alike sweeps."""
    explanations = []
    for topology in TOPOLOGIES:
        by_backend: dict[str, list[Fit]] = {}
        for fit in fits:
            if fit.sweep.topology == topology:
                by_backend.setdefault(fit.sweep.backend, []).append(fit)
        for one, other in itertools.combinations(sorted(by_backend), 2):
            pair = max(itertools.product(by_backend[one], by_backend[other]), key=_similarity)
            explanation = rivals(*pair)
            if explanation:
                explanations.append(explanation)
    return explanations


def rivals(one: Fit, other: Fit) -> Explanation | None:
    """Return why one of two backends is faster; None if they share no number of ranks.

    Two terms are compared at the largest common number of ranks: the time of an empty operation, and of a
    byte. A term counts only if the 99.8 % interval of its ratio, from the draws of both fits, excludes 1, so
    that fewer than one in a hundred is a false alarm.
    """
    common = set(one.sweep.ranks) & set(other.sweep.ranks)
    if not common or one.sweep.slots != other.sweep.slots:
        return None
    ranks = max(common)
    fixed = _ratios(_fixed_costs(one, ranks), _fixed_costs(other, ranks))
    slope = _ratios(_slope(one, ranks), _slope(other, ranks))
    first, second = _ahead(fixed), _ahead(slope)
    ahead = first or second or 1
    faster, slower = (one, other) if ahead > 0 else (other, one)
    key = {(0, 0): "alike", (1, 0): "latency", (0, 1): "bandwidth"}.get((abs(first), abs(second)), "both")
    size = crossing(one.cost, other.cost, ranks)
    if first * second < 0:
        key = "crossing" if size else "alike"
    numbers: dict[str, float] = {"ranks": ranks}
    numbers |= _orient("fixed", fixed, ahead)
    numbers |= _orient("bandwidth", slope, -ahead if key == "crossing" else ahead)
    if one.cost.alpha_s and other.cost.alpha_s:
        numbers["alpha_ratio"] = slower.cost.alpha_s / faster.cost.alpha_s
    if size is not None:
        numbers["crossing_bytes"] = size
    numbers |= _measure_ratios(faster, slower, ranks)
    names = {"faster": faster.sweep.backend, "slower": slower.sweep.backend, "topology": one.sweep.topology}
    return Explanation(f"faster.{key}", numbers, names)


def models(trainings: Sequence[Training]) -> list[Explanation]:
    """Return each model's FLOP per byte sent with its efficiency, and whether they correlate.

    Models are compared if everything but workload, model and batch is the same, at their largest common
    number of ranks.
    """
    groups: dict[tuple[object, ...], list[Training]] = {}
    for training in trainings:
        if training.steps and flop_per_byte(training):
            key = (
                *(training.backend, training.launcher, training.topology, training.scaling, training.slots),
                *(training.get("compression"), training.get("device")),
            )
            groups.setdefault(key, []).append(training)
    return [explanation for group in groups.values() for explanation in _compare(group)]


def flop_per_byte(training: Training) -> float | None:
    """Return the FLOP that a rank computes for each byte it sends, in a step of its batch at one rank."""
    base = training.base
    steps = [step for step in (*training.steps, base) if step]
    flops = next((step.flops_per_sample for step in steps if step.flops_per_sample), None)
    batch = training.get("batch") or (base and base.samples_per_s and base.samples_per_s * base.seconds)
    if not flops or not batch or not training.sent_bytes:
        return None
    return float(flops * batch / training.sent_bytes)


def _compare(group: Sequence[Training]) -> list[Explanation]:
    common = set.intersection(*({step.ranks for step in training.steps} for training in group))
    points: list[tuple[float, float]] = []
    explanations = []
    for training in group:
        step = next((step for step in training.steps if step.ranks == max(common, default=0)), None)
        step = step or training.steps[-1]
        ratio, share = flop_per_byte(training), training.efficiency(step)
        if ratio is None or share is None:
            continue
        numbers = {"flop_per_byte": ratio, "efficiency": share, "ranks": float(step.ranks)}
        explanations.append(Explanation("ratio.model", numbers, names_of(training)))
        points.append((ratio, share))
    pairs = [(one, other) for one, other in itertools.combinations(points, 2) if one[0] != other[0]]
    if not common or not pairs:
        return explanations
    agreeing = sum((one[0] - other[0]) * (one[1] - other[1]) > 0 for one, other in pairs)
    key = "ratio.agrees" if agreeing * 2 > len(pairs) else "ratio.disagrees"
    left_out = ("workload", "model", "batch")
    names = {name: value for name, value in names_of(group[0]).items() if name not in left_out}
    numbers = {"agreeing": agreeing, "pairs": len(pairs), "ranks": max(common)}
    return [*explanations, Explanation(key, numbers, names)]


def _similarity(pair: tuple[Fit, Fit]) -> tuple[int, int]:
    one, other = pair
    return len(set(one.sweep.params) & set(other.sweep.params)), len(one.points) + len(other.points)


def _fixed_costs(fit: Fit, ranks: int) -> list[float]:
    return [cost.seconds(ranks, 0) for cost in (fit.cost, *fit.draws)]


def _slope(fit: Fit, ranks: int) -> list[float]:
    return [cost.terms(ranks, 1).bandwidth_s for cost in (fit.cost, *fit.draws)]


def _ratios(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float] | None:
    """Return low, fitted and high of other/one; None for an unidentified term."""
    if not one[0] or not other[0]:
        return None
    mine, theirs = (np.array([value for value in values[1:] if value > 0]) for values in (one, other))
    low, high = np.percentile(np.divide.outer(theirs, mine), _BAND)
    return float(low), other[0] / one[0], float(high)


def _ahead(ratio: tuple[float, float, float] | None) -> int:
    """Return 1 if the first is surely faster, -1 if the other is, else 0."""
    if ratio is None or ratio[0] <= 1 <= ratio[2]:
        return 0
    return 1 if ratio[0] > 1 else -1


def _orient(name: str, ratio: tuple[float, float, float] | None, ahead: int) -> Mapping[str, float]:
    if ratio is None:
        return {}
    low, middle, high = ratio if ahead > 0 else (1 / ratio[2], 1 / ratio[1], 1 / ratio[0])
    return {f"{name}_ratio": middle, f"{name}_low": low, f"{name}_high": high}


def _measure_ratios(faster: Fit, slower: Fit, ranks: int) -> Mapping[str, float]:
    times = [_times(fit, ranks) for fit in (faster, slower)]
    sizes = sorted(times[0].keys() & times[1].keys())
    if not sizes:
        return {}
    small, large = sizes[0], sizes[-1]
    return {
        "small_bytes": small,
        "small_ratio": times[1][small] / times[0][small],
        "large_bytes": large,
        "large_ratio": times[1][large] / times[0][large],
    }


def _times(fit: Fit, ranks: int) -> dict[int, float]:
    times: dict[int, list[float]] = {}
    for point in fit.points:
        if point.ranks == ranks:
            times.setdefault(point.size_bytes, []).append(point.seconds)
    return {size: statistics.median(seconds) for size, seconds in times.items()}


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
    return Explanation(f"collective.{_name_largest(shares)}", shares | numbers, names)


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
    return Explanation(f"step.{_name_largest(shares)}", shares | numbers, names_of(training))


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


def _name_largest(shares: Mapping[str, float]) -> str:
    return max(shares, key=lambda name: shares[name])
