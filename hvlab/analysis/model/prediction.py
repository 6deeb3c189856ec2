"""A prediction, a type of its own, so that it is never mistaken for a measurement; and where it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.fit import GOOD, NEEDED, Fit
from hvlab.analysis.model.problem import Values
from hvlab.analysis.model.step import Basis, basis
from hvlab.analysis.model.training import Scaling, Training
from hvlab.statistics.interval import Interval


@dataclass(frozen=True)
class PredictedStep:
    """A step that was not measured: seconds and speed-up against one rank, with their 95 % bands.

    ``beyond_backward_s`` is the wait for the allreduce because backward is too short to hide it.
    """

    ranks: int
    seconds: Interval
    beyond_backward_s: float
    speedup: Interval

    @property
    def efficiency(self) -> Interval:
        """Return speed-up over ranks."""
        return self.speedup.times(1 / self.ranks)


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


# How many times the ranks measured a model is believed at. With strong scaling a rank's work shrinks until
# little is left of what was measured; in simulations bands held the truth up to 8 times.
_FARTHEST: Mapping[Scaling, int] = {"weak": 64, "strong": 8}
# The high over the low end of a band that still says something.
_WIDEST = 4.0
# No host has many more devices than that.
_MOST_INSIDE = 16
# By what factor the largest step, held out, may be missed.
_MISSED = 1.5
# Which share of a step makes another regime of it.
_MATTERS = 0.05
_NORMAL = 1.96


def refusal(training: Training, fitted: Fit | None) -> Explanation | None:
    """Return why nothing at all can be predicted of a training; None where something can."""
    return _of_training(training) or _of_fit(training, fitted)


def beyond(
    step: PredictedStep, training: Training, own: Basis, check: PredictionCheck, *, errors: Values
) -> Explanation | None:
    """Return why a step, and any at more ranks, is outside what the model was fitted to.

    None where it is not. ``errors`` are the standard errors of the logarithms of the measured steps.
    """
    ranks, largest = step.ranks, training.steps[-1].ranks
    numbers, farthest = {"ranks": ranks, "largest": largest}, _FARTHEST[training.scaling]
    batch = training.get("batch") if training.scaling == "strong" else None
    counts = np.array([one.ranks for one in training.steps], dtype=float)
    seconds = np.array([one.seconds for one in training.steps])
    # The shortest that the longest step may have been, as work of all ranks where they share it.
    least = (seconds * own.divisor(counts) * np.exp(-_NORMAL * errors)).max()
    work = step.seconds.mid * own.divisor(np.array([ranks], dtype=float))[0]
    limits = (
        (
            abs(check.shift) > math.log(_MISSED),
            Explanation("check_missed", {"error": abs(check.error), "ranks": check.ranks}),
        ),
        (batch and ranks > batch, Explanation("batch_limit", {"batch": batch or 0})),
        (
            training.topology == "inside" and ranks > _MOST_INSIDE,
            Explanation("host_limit", {"ranks": _MOST_INSIDE}),
        ),
        (ranks > farthest * largest, Explanation("too_far", numbers | {"factor": farthest})),
        (step.beyond_backward_s > _MATTERS * step.seconds.mid, Explanation("hidden_limit", numbers)),
        (work < least, Explanation("below_measured", numbers)),
        (
            step.seconds.high > _WIDEST * step.seconds.low,
            Explanation("too_wide", numbers | {"factor": _WIDEST}),
        ),
    )
    return next((reason for reached, reason in limits if reached), None)


def _of_training(training: Training) -> Explanation | None:
    if training.base is None:
        return Explanation("no_base")
    if not training.sent_bytes:
        return Explanation("no_bytes")
    if len(training.steps) < NEEDED:
        return Explanation("few_steps", {"points": len(training.steps), "needed": NEEDED})
    return None


def _of_fit(training: Training, fitted: Fit | None) -> Explanation | None:
    if fitted is None or training.base is None:
        return Explanation("no_fit", names={"backend": training.backend})
    if len(fitted.sweep.ranks) < NEEDED:
        return Explanation("few_counts", {"points": len(fitted.sweep.ranks), "needed": NEEDED})
    message = basis(training, training.base, training.sent_bytes or 0).message_bytes
    low, *_, high = fitted.sweep.sizes
    if not low <= message <= high:
        sizes = {"message_bytes": message, "least_bytes": low, "most_bytes": high}
        return Explanation("size_outside", sizes)
    if fitted.error.median > GOOD:
        return Explanation("poor_fit", {"error": fitted.error.median})
    return None
