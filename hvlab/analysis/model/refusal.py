"""When nothing is predicted, why, and what to measure for a prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.fit import GOOD, NEEDED, Fit
from hvlab.analysis.model.prediction import PredictedStep, PredictionCheck
from hvlab.analysis.model.problem import Values
from hvlab.analysis.model.step import Basis, basis
from hvlab.analysis.model.training import Scaling, Training

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
    work = step.step_s * own.divisor(np.array([ranks], dtype=float))[0]
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
        (step.beyond_backward_s > _MATTERS * step.step_s, Explanation("hidden_limit", numbers)),
        (work < least, Explanation("below_measured", numbers)),
        (step.high_s > _WIDEST * step.low_s, Explanation("too_wide", numbers | {"factor": _WIDEST})),
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
