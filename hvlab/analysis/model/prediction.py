"""A prediction: a type of its own, so that it is never mistaken for a measurement."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.fit import Fit
from hvlab.analysis.model.step import Basis
from hvlab.analysis.model.training import Training


@dataclass(frozen=True)
class PredictedStep:
    """A step that was not measured: seconds with their 95 % band; speed-up against one rank.

    ``beyond_backward_s`` is what it waits for the allreduce because backward is too short to hide it.
    """

    ranks: int
    step_s: float
    low_s: float
    high_s: float
    beyond_backward_s: float
    speedup: float
    speedup_low: float
    speedup_high: float

    @property
    def efficiency(self) -> float:
        """Return speed-up over ranks."""
        return self.speedup / self.ranks

    @property
    def efficiency_band(self) -> tuple[float, float]:
        """Return the band of the efficiency."""
        return self.speedup_low / self.ranks, self.speedup_high / self.ranks


@dataclass(frozen=True)
class PredictionCheck:
    """The largest measured step, predicted from what is smaller.

    ``noise`` is how far the logarithms may be apart by noise alone, half of a 95 % interval.
    ``step_ranks`` is the largest number of ranks below the step's.
    """

    ranks: int
    predicted_s: float
    measured_s: float
    noise: float
    step_ranks: int

    @property
    def error(self) -> float:
        """Return the relative error, negative where the prediction was too short."""
        return self.predicted_s / self.measured_s - 1

    @property
    def shift(self) -> float:
        """Return by how much predictions are moved, as a logarithm: against the signed error.

        All of an error that is large beside the noise, half of one that is as large, little of a smaller one.
        """
        missed = math.log(self.measured_s / self.predicted_s)
        return missed**3 / (missed**2 + self.noise**2) if missed else 0.0

    def shift_at(self, ranks: float) -> float:
        """Return the shift at a number of ranks: what a model misses grows with the way beyond what it
        knows.
        """
        return self.shift * math.log(ranks / self.ranks) / math.log(self.ranks / self.step_ranks)


@dataclass(frozen=True)
class Prediction:
    """Predicted steps of a training, beyond the measured ones, and what they rest on.

    ``hidden`` is the share of the allreduce hidden behind backward, 0 to 1, ``overhead_s`` what a step at
    several ranks takes besides (negative where all of backward hides some); ``limit`` says why nothing is
    predicted beyond the last step, None where all that was asked for is predicted.
    """

    training: Training
    fit: Fit
    basis: Basis
    hidden: float
    overhead_s: float
    steps: tuple[PredictedStep, ...]
    check: PredictionCheck
    limit: Explanation | None
    warnings: tuple[Explanation, ...]

    @property
    def measured(self) -> tuple[tuple[int, float], ...]:
        """Return the measured points that belong beside the predicted ones: ranks and efficiency."""
        points = ((step.ranks, self.training.efficiency(step)) for step in self.training.steps)
        return tuple((ranks, efficiency) for ranks, efficiency in points if efficiency is not None)


@dataclass(frozen=True)
class NoPrediction:
    """A training that cannot be predicted, and why; the reason says what to measure."""

    training: Training
    reason: Explanation
