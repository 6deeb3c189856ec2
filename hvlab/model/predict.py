"""Training at other numbers of ranks, predicted from a fit of the allreduce and measured steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hvlab.model.choice import matching, source_of
from hvlab.model.costs import Cost
from hvlab.model.explanation import Explanation
from hvlab.model.fit import Fit, NoFit, fit
from hvlab.model.prediction import NoPrediction, PredictedStep, Prediction, PredictionCheck
from hvlab.model.step import Basis, Exposure, Values, basis, exposed, exposure
from hvlab.model.training import Step, Training, trainings
from hvlab.model.warnings import of_prediction
from hvlab.results.configurations import Configuration, Repeats

RANKS = tuple(2**power for power in range(1, 11))
# No host has many more devices than that.
_MOST_INSIDE = 16
_BAND = (2.5, 97.5)


def predictions(
    configurations: Mapping[Configuration, Repeats],
    fits: Iterable[Fit | NoFit],
    *,
    ranks: Sequence[int] = RANKS,
    virtual: bool = False,
) -> list[Prediction | NoPrediction]:
    """Return a prediction of every training, topology and scaling, or why there is none.

    ``virtual`` says that the hosts are virtual machines which share one machine's cores.
    """
    fitted = tuple(one for one in fits if isinstance(one, Fit))
    measured = trainings(configurations)
    return [
        predict(
            training,
            matching(fitted, training),
            source=source_of(training, measured),
            ranks=ranks,
            virtual=virtual,
        )
        for training in measured
    ]


def predict(
    training: Training,
    fitted: Fit | None,
    *,
    source: Training | None = None,
    ranks: Sequence[int] = RANKS,
    virtual: bool = False,
) -> Prediction | NoPrediction:
    """Return a prediction from a fit; ``source`` holds the steps that tell how much is hidden.

    The band holds what the draws of the fit and the repeats of the step at one rank say, and at least the
    error of the check. Inside one host nothing is predicted beyond 16 ranks, and with strong scaling nothing
    beyond a sample a rank.
    """
    base, size = training.base, training.sent_bytes
    if base is None:
        return NoPrediction(training, Explanation("no_base"))
    if not size:
        return NoPrediction(training, Explanation("no_bytes"))
    if fitted is None:
        return NoPrediction(training, Explanation("no_fit", names={"backend": training.backend}))
    source = source or training
    own = basis(training, base, size, source=source)
    costs = (fitted.cost, *fitted.draws)
    exposed_share = exposure(source, basis(source, base, size), costs)
    checked = check(training, fitted)
    predicted_ranks = [number for number in ranks if number <= _most(training)]
    return Prediction(
        training,
        fitted,
        own,
        hidden=1 - float(exposed_share.share[0]),
        overhead_s=float(exposed_share.overhead_s[0]),
        steps=_steps(
            base, own, costs, exposed_share, numbers=predicted_ranks, slack=checked.slack if checked else 1.0
        ),
        check=checked,
        warnings=of_prediction(
            training,
            source=source,
            size_factor=size / fitted.sweep.sizes[-1],
            overhead_s=float(exposed_share.overhead_s[0]),
            check=abs(checked.error) if checked else None,
            ranks_in_sweep=checked is not None and checked.sweep_ranks >= checked.ranks,
            virtual=virtual,
        ),
    )


def check(training: Training, fitted: Fit) -> PredictionCheck | None:
    """Return the largest measured step, predicted from the smaller ones and a fit to fewer ranks.

    None where no step at several ranks was measured, or nothing is known of the smaller ones.
    """
    base, size = training.base, training.sent_bytes
    if not training.steps or base is None or not size:
        return None
    largest = training.steps[-1]
    smaller = training.below(largest.ranks)
    fewer = fit(fitted.sweep.below(largest.ranks), draws=0)
    used = fewer if isinstance(fewer, Fit) else fitted
    own = basis(smaller, base, size)
    exposed_share = exposure(smaller, own, (used.cost,))
    ranks = np.array([largest.ranks], dtype=float)
    total = own.own(ranks) + exposed(own, ranks, own.communication((used.cost,), ranks), exposed_share)[0]
    return PredictionCheck(largest.ranks, float(total[0]), largest.seconds, used.sweep.ranks[-1])


def _most(training: Training) -> float:
    inside = _MOST_INSIDE if training.topology == "inside" else float("inf")
    batch = training.get("batch") if training.scaling == "strong" else None
    return min(inside, batch or float("inf"))


def _steps(
    base: Step,
    own: Basis,
    costs: Sequence[Cost],
    exposed_share: Exposure,
    *,
    numbers: Sequence[int],
    slack: float,
) -> tuple[PredictedStep, ...]:
    ranks = np.array(numbers, dtype=float)
    communication = own.communication(costs, ranks)
    waited = exposed(own, ranks, communication, exposed_share)
    totals = own.own(ranks) * _resampled(base, len(waited))[:, None] + waited
    low, high = np.percentile(totals[1:], _BAND, axis=0, method="weibull")
    work = base.seconds * ranks / own.divisor(ranks)
    rows = {
        "step_s": totals[0],
        "low_s": np.minimum(low, totals[0] / slack),
        "high_s": np.maximum(high, totals[0] * slack),
        "own_s": own.own(ranks),
        "communication_s": communication[0],
        "exposed_s": waited[0],
    }
    rows["speedup"] = work / rows["step_s"]
    rows["speedup_low"] = work / rows["high_s"]
    rows["speedup_high"] = work / rows["low_s"]
    return tuple(
        PredictedStep(number, **{name: float(values[column]) for name, values in rows.items()})
        for column, number in enumerate(numbers)
    )


def _resampled(base: Step, rows: int) -> Values:
    """Return by what the step at one rank is longer when its repeats are drawn again; first 1."""
    random = np.random.default_rng(1)
    drawn: Values = np.median(random.choice(base.repeats, (rows, len(base.repeats))), axis=1)
    drawn /= base.seconds
    drawn[0] = 1
    return drawn
