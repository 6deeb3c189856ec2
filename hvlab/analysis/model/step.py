"""The parts of a training step: its own work, waiting for the slowest rank, and the exposed allreduce.

T(n) = own(n) + jitter * m(n) + constant + share * allreduce(n)

own is compute and other work of a step at one rank (data, the framework), divided by n with strong scaling. A
step ends when the slowest rank has computed: m(n) is the expected maximum of n standard normal numbers,
jitter the standard deviation of a rank's steps. The constant and the share are fitted to the measured steps.
They cover two cases: of an allreduce that is short beside backward the same share is hidden at any size; a
long one is hidden by all of backward, so the share is 1 and the constant negative. At most backward can hide
it: two thirds of compute, with twice the FLOP of forward (Narayanan et al.: Efficient Large-Scale Language
Model Training on GPU Clusters Using Megatron-LM, SC 2021, section 2).

Arrays have one row a cost (the fit, then its draws) and one column a number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hvlab.analysis.model.costs import ALGORITHMS, Cost
from hvlab.analysis.model.problem import Values, expected_maximum
from hvlab.analysis.model.training import Scaling, Step, Training

BACKWARD = 2 / 3
# Possible growth of the allreduce with each doubling of ranks beyond the measured ones, in logarithms: shared
# uplinks, other switches.
DRIFT = 0.04
# Horovod's largest message unless HOROVOD_FUSION_THRESHOLD says otherwise (its changes of 0.21.0).
FUSION_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class Basis:
    """A step at one rank, and its changes with more ranks; times in seconds, bytes per step and rank.

    ``growth``: factor of compute at several ranks that share a machine or use a smaller batch less well.
    ``jitter_s``: the standard deviation of steps at one rank, 0 if unknown.
    """

    scaling: Scaling
    compute_s: float
    local_s: float
    growth: float
    jitter_s: float
    size_bytes: float
    operations: int

    @property
    def message_bytes(self) -> float:
        """Size of one operation."""
        return self.size_bytes / self.operations

    def divisor(self, ranks: Values) -> Values:
        """Return the divisor of one rank's work."""
        return ranks if self.scaling == "strong" else np.ones_like(ranks)

    def compute(self, ranks: Values) -> Values:
        """Return the compute of a step in seconds."""
        return self.compute_s * self.growth / self.divisor(ranks)

    def own_time(self, ranks: Values) -> Values:
        """Return the time of a step without its allreduce, in seconds."""
        return self.compute(ranks) + self.local_s / self.divisor(ranks)

    def waiting(self, ranks: Values) -> Values:
        """Return the compute time of the slowest rank beyond the mean of all ranks, in seconds."""
        return self.jitter_s * self.growth / self.divisor(ranks) * expected_maximum(ranks)

    def communication(self, costs: Sequence[Cost], ranks: Values) -> Values:
        """Return the allreduce of a step in seconds."""
        shapes = {}
        for algorithm, slots in {(cost.algorithm, cost.slots) for cost in costs}:
            done = [ALGORITHMS[algorithm](max(1, int(n) // slots)) for n in ranks]
            shapes[algorithm] = np.array([(one.messages, one.volume) for one in done]).reshape(-1, 2).T
        rows = []
        for cost in costs:
            messages, volume = shapes[cost.algorithm]
            latency = self.operations * (cost.constant_s + messages * cost.alpha_s)
            rows.append(latency + self.size_bytes * (volume * cost.beta_s_per_byte + cost.inner_s_per_byte))
        return np.array(rows).reshape(len(costs), len(ranks))


@dataclass(frozen=True)
class Exposure:
    """The fit to the measured steps for each cost: see the module.

    ``drift``: growth of the allreduce's logarithm with each doubling of ranks beyond the ``largest``
    measured.
    """

    share: Values
    constant_s: Values
    jitter: Values
    drift: Values
    largest: float


def basis(training: Training, base: Step, size_bytes: float) -> Basis:
    """Return the basis of a training; without a measured compute time the whole step is compute."""
    compute = base.compute_s if base.compute_s is not None else base.seconds
    compute = min(compute, base.seconds)
    threshold = training.get("fusion_threshold") or FUSION_BYTES
    return Basis(
        training.scaling,
        compute_s=compute,
        local_s=base.seconds - compute,
        growth=_growth(training, base),
        jitter_s=base.jitter_s or 0.0,
        size_bytes=size_bytes,
        operations=max(1, math.ceil(size_bytes / float(threshold))),
    )


def _growth(training: Training, base: Step) -> float:
    """Return the compute of the largest step over that at one rank; the step itself bounds it."""
    if base.compute_s is None:
        return 1.0
    local = base.seconds - base.compute_s
    for step in reversed(training.steps):
        if step.compute_s is not None:
            divisor = step.ranks if training.scaling == "strong" else 1
            most = max(step.seconds * divisor - local, 0.0)
            return min(step.compute_s * divisor, most) / base.compute_s or 1.0
    return 1.0


def exposure(
    own: Basis, costs: Sequence[Cost], ranks: Values, seconds: Values, *, flat: Values, drift: Values
) -> Exposure:
    """Return constant, share and jitter by least squares of the relative errors of measured steps.

    ``seconds`` has a row for each cost, so that steps can be drawn with their noise. The share is between 0
    and 1; if the allreduce is equally long at every number of ranks it is ``flat``, one a cost. The jitter is
    1 if waiting is as long as the steps at one rank predict, and less if the measured steps grow less.
    """
    weights = seconds**-2 / (seconds**-2).sum(axis=1, keepdims=True)
    waiting = np.broadcast_to(own.waiting(ranks), seconds.shape)
    missing = seconds - own.own_time(ranks)
    jitter = np.clip(_slope(weights, waiting, missing, np.ones(len(seconds))), 0, 1)
    missing = missing - jitter[:, None] * waiting
    modelled = own.communication(costs, ranks)
    share = np.clip(_slope(weights, modelled, missing, flat), 0, 1)
    constant = (weights * (missing - share[:, None] * modelled)).sum(axis=1)
    return Exposure(share, constant, jitter, drift, float(ranks.max()))


def expose(own: Basis, costs: Sequence[Cost], ranks: Values, fitted: Exposure) -> tuple[Values, Values]:
    """Return the exposed allreduce time of a step, and the part due to a backward that is too short."""
    doublings = np.log2(np.maximum(ranks / fitted.largest, 1))
    modelled = own.communication(costs, ranks) * np.exp(fitted.drift[:, None] * doublings)
    waited = fitted.share[:, None] * modelled + fitted.constant_s[:, None]
    more: Values = np.maximum(modelled - BACKWARD * own.compute(ranks) - waited, 0)
    return waited + more, more


def totals(own: Basis, costs: Sequence[Cost], ranks: Values, fitted: Exposure) -> Values:
    """Return the whole step in seconds."""
    waiting = fitted.jitter[:, None] * own.waiting(ranks)
    values: Values = own.own_time(ranks) + waiting + expose(own, costs, ranks, fitted)[0]
    return values


def _slope(weights: Values, x: Values, y: Values, flat: Values) -> Values:
    """Return the weighted least squares slope of each row; ``flat`` if x does not vary."""
    x = x - (weights * x).sum(axis=1, keepdims=True)
    power = (weights * x**2).sum(axis=1)
    known = power > 1e-18 * (weights * y**2).sum(axis=1)
    values: Values = np.where(known, (weights * x * y).sum(axis=1) / np.where(known, power, 1), flat)
    return values
