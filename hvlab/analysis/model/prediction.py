"""A prediction, a type of its own lest it be mistaken for a measurement; and its limits."""

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

    ``beyond_backward_s`` is the wait for the allreduce that backward is too short to hide.
    """

    ranks: int
    seconds: Interval
    beyond_backward_s: float
    speedup: Interval

    @property
    def efficiency(self) -> Interval:
        """Speed-up over ranks."""
        return self.speedup.times(1 / self.ranks)


@dataclass(frozen=True)
class PredictionCheck:
    """The largest measured step, predicted from smaller ones.

    ``noise``: half of the 95 % interval of the logarithms' difference by noise alone. ``step_ranks``: the
    largest number of ranks below the step's.
    """

    ranks: int
    predicted_s: float
    measured_s: float
    noise: float
    step_ranks: int

    @property
    def error(self) -> float:
        """Relative error, negative if the prediction was too short."""
        return self.predicted_s / self.measured_s - 1

    @property
    def shift(self) -> float:
        """Shift of predictions against the signed error, as a logarithm.

        All of an error that is large beside the noise, half of an equal one, little of a smaller one.
        """
        missed = math.log(self.measured_s / self.predicted_s)
        return missed**3 / (missed**2 + self.noise**2) if missed else 0.0

    def shift_at(self, ranks: float) -> float:
        """Return the shift at a number of ranks: it grows with the distance from the measured ones."""
        return self.shift * math.log(ranks / self.ranks) / math.log(self.ranks / self.step_ranks)


@dataclass(frozen=True)
class Prediction:
    """Predicted steps of a training beyond the measured ones, and their grounds.

    ``hidden``: the share of the allreduce hidden behind backward, 0 to 1; ``overhead_s``: further time of a
    step at several ranks (negative if all of backward hides some); ``limit``: why nothing is predicted beyond
    the last step, None if all requested ranks are.
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
        """Measured points to show beside the predicted ones: ranks and efficiency."""
        points = ((step.ranks, self.training.efficiency(step)) for step in self.training.steps)
        return tuple((ranks, efficiency) for ranks, efficiency in points if efficiency is not None)


@dataclass(frozen=True)
class NoPrediction:
    """A training that cannot be predicted, and why; the reason names the missing measurement."""

    training: Training
    reason: Explanation


# Maximum multiple of the measured ranks. With strong scaling a rank's work shrinks until it no longer
# resembles the measured one; in simulations bands held the truth up to 8 times.
_FARTHEST: Mapping[Scaling, int] = {"weak": 64, "strong": 8}
# Largest ratio of a meaningful band's ends.
_WIDEST = 4.0
# Hosts hardly have more devices.
_MOST_INSIDE = 16
# Largest factor between the held-out step and its prediction.
_MISSED = 1.5
# Share of a step that makes it a different regime.
_MATTERS = 0.05
_NORMAL = 1.96


def refusal(training: Training, fitted: Fit | None) -> Explanation | None:
    """Return why nothing at all can be predicted of a training, if so."""
    return _explain_training(training) or _explain_fit(training, fitted)


def beyond(
    step: PredictedStep, training: Training, own: Basis, check: PredictionCheck, *, errors: Values
) -> Explanation | None:
    """Return why a step, and any at more ranks, is outside the fitted range; None if it is inside.

    ``errors`` are the standard errors of the logarithms of the measured steps.
    """
    ranks, largest = step.ranks, training.steps[-1].ranks
    numbers, farthest = {"ranks": ranks, "largest": largest}, _FARTHEST[training.scaling]
    batch = training.get("batch") if training.scaling == "strong" else None
    counts = np.array([one.ranks for one in training.steps], dtype=float)
    seconds = np.array([one.seconds for one in training.steps])
    # The shortest that the longest step may have been, as work of all ranks where they share it.
    least = (seconds * own.divisor(counts) * np.exp(-_NORMAL * errors)).max()
    work = step.seconds.mid * own.divisor(np.array([ranks], dtype=float))[0]
    missed = {"error": abs(check.error), "ranks": check.ranks}
    limits = (
        ("check_missed", abs(check.shift) > math.log(_MISSED), missed),
        ("batch_limit", batch and ranks > batch, {"batch": batch or 0}),
        ("host_limit", training.topology == "inside" and ranks > _MOST_INSIDE, {"ranks": _MOST_INSIDE}),
        ("too_far", ranks > farthest * largest, numbers | {"factor": farthest}),
        ("hidden_limit", step.beyond_backward_s > _MATTERS * step.seconds.mid, numbers),
        ("below_measured", work < least, numbers),
        ("too_wide", step.seconds.high > _WIDEST * step.seconds.low, numbers | {"factor": _WIDEST}),
    )
    return next((Explanation(key, own) for key, reached, own in limits if reached), None)


def _explain_training(training: Training) -> Explanation | None:
    if training.base is None:
        return Explanation("no_base")
    if not training.sent_bytes:
        return Explanation("no_bytes")
    if len(training.steps) < NEEDED:
        return Explanation("few_steps", {"points": len(training.steps), "needed": NEEDED})
    return None


def _explain_fit(training: Training, fitted: Fit | None) -> Explanation | None:
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
