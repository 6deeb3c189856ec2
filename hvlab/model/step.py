"""What a training step takes: its own work, and the part of the allreduce that is not hidden behind it.

T(n) = own(n) + overhead + exposed(n): own is compute and what else a step does at one rank (data, the
framework), divided by n with strong scaling; exposed is the part of the allreduce that backward does not
hide. At most backward itself can be hidden: two thirds of compute, for it takes twice the FLOP of forward
(Narayanan et al.: Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021,
section 2). Arrays are of one row a cost (the fit, then its draws) and one column a number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hvlab.model.costs import Cost, shape
from hvlab.model.training import Scaling, Step, Training

Values = NDArray[np.float64]

BACKWARD = 2 / 3
# How much Horovod sends at once unless HOROVOD_FUSION_THRESHOLD says otherwise (its changes of 0.21.0).
FUSION_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class Basis:
    """A step at one rank, and what changes with more ranks; times in seconds, bytes per step and rank.

    ``growth``: by what compute is longer with several ranks, where they share a machine or a share of the
    batch is used less well.
    """

    scaling: Scaling
    compute_s: float
    local_s: float
    growth: float
    size_bytes: float
    operations: int

    def divisor(self, ranks: Values) -> Values:
        """Return by what the work of one rank is divided."""
        return ranks if self.scaling == "strong" else np.ones_like(ranks)

    def compute(self, ranks: Values) -> Values:
        """Return the compute of a step in seconds."""
        return self.compute_s * self.growth / self.divisor(ranks)

    def own(self, ranks: Values) -> Values:
        """Return what a step takes without its allreduce, in seconds."""
        return self.compute(ranks) + self.local_s / self.divisor(ranks)

    def communication(self, costs: Sequence[Cost], ranks: Values) -> Values:
        """Return the allreduce of a step in seconds."""
        shapes = {
            (cost.collective, cost.algorithm): [
                shape(cost.collective, cost.algorithm, int(number)) for number in ranks
            ]
            for cost in costs
        }
        rows = [
            [
                self.operations * (cost.constant_s + step.messages * cost.alpha_s)
                + step.volume * self.size_bytes * cost.beta_s_per_byte
                for step in shapes[cost.collective, cost.algorithm]
            ]
            for cost in costs
        ]
        return np.array(rows).reshape(len(costs), len(ranks))


@dataclass(frozen=True)
class Exposure:
    """For each cost, the ``share`` of the allreduce that a step waits for, and its overhead beyond that."""

    share: Values
    overhead_s: Values


def basis(training: Training, base: Step, size_bytes: float, *, source: Training | None = None) -> Basis:
    """Return the basis of a training; how compute grows is taken from ``source`` (default: its own steps).

    Compute is the compute time at one rank where it was measured, else the whole step.
    """
    compute = base.compute_s if base.compute_s is not None else base.seconds
    compute = min(compute, base.seconds)
    threshold = training.get("fusion_threshold") or FUSION_BYTES
    return Basis(
        training.scaling,
        compute_s=compute,
        local_s=base.seconds - compute,
        growth=_growth(source or training, base),
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


def exposure(training: Training, own: Basis, costs: Sequence[Cost]) -> Exposure:
    """Return how much of the allreduce is exposed in the measured steps, by least squares, between 0 and 1.

    Steps count relative to their length. Only where all of the allreduce is exposed and more is missing, the
    rest is overhead. Without a step at several ranks nothing is known: then the costs, but the first, take
    all shares from 0 to 1.
    """
    if not training.steps:
        share = np.linspace(0, 1, len(costs))
        share[0] = 1
        return Exposure(share, np.zeros(len(costs)))
    ranks = np.array([step.ranks for step in training.steps], dtype=float)
    seconds = np.array([step.seconds for step in training.steps])
    rest = own.local_s / own.divisor(ranks)
    measured = [np.nan if step.compute_s is None else step.compute_s for step in training.steps]
    itself = np.where(np.isnan(measured), own.own(ranks), measured + rest)
    missing = (seconds - itself) / seconds
    modelled = own.communication(costs, ranks) / seconds
    power = (modelled**2).sum(axis=1)
    share = np.divide(modelled @ missing, power, out=np.zeros(len(costs)), where=power > 0)
    weight = (seconds**-2).sum()
    more = ((missing - modelled) / seconds).sum(axis=1) / weight
    return Exposure(np.clip(share, 0, 1), np.where(share >= 1, np.maximum(more, 0), 0))


def exposed(own: Basis, ranks: Values, communication: Values, exposure: Exposure) -> Values:
    """Return the part of the allreduce that a step waits for, and the overhead, in seconds."""
    waited: Values = np.maximum(
        exposure.share[:, None] * communication, communication - BACKWARD * own.compute(ranks)
    )
    return waited + exposure.overhead_s[:, None]
