"""A prediction: a type of its own, so that it is never mistaken for a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from hvlab.model.explanation import Explanation
from hvlab.model.fit import Fit
from hvlab.model.step import Basis
from hvlab.model.training import Training


@dataclass(frozen=True)
class PredictedStep:
    """A step that was not measured: seconds with their 95 % band; speed-up against one rank."""

    ranks: int
    step_s: float
    low_s: float
    high_s: float
    own_s: float
    communication_s: float
    exposed_s: float
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
    """The largest measured case, predicted from what is smaller.

    ``sweep_ranks`` is the largest number of ranks in the sweep that the prediction rests on: the case's own
    only where no smaller number can be fitted.
    """

    ranks: int
    predicted_s: float
    measured_s: float
    sweep_ranks: int

    @property
    def error(self) -> float:
        """Return the relative error, negative where the prediction was too short."""
        return self.predicted_s / self.measured_s - 1

    @property
    def slack(self) -> float:
        """Return the factor of 1 or more that lies between both times."""
        return max(self.predicted_s / self.measured_s, self.measured_s / self.predicted_s)


@dataclass(frozen=True)
class Prediction:
    """Predicted steps of a training, and what they rest on.

    ``hidden`` is the share of the allreduce hidden behind backward, 0 to 1, ``overhead_s`` what a step at
    several ranks takes besides; ``check`` is None where no step at several ranks was measured.
    """

    training: Training
    fit: Fit
    basis: Basis
    hidden: float
    overhead_s: float
    steps: tuple[PredictedStep, ...]
    check: PredictionCheck | None
    warnings: tuple[Explanation, ...]


@dataclass(frozen=True)
class NoPrediction:
    """A training that cannot be predicted, and why."""

    training: Training
    reason: Explanation
