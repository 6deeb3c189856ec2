"""Training at other numbers of ranks, predicted from a fit of the allreduce and measured steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.costs import Cost
from hvlab.analysis.model.fit import GOOD, Fit, NoFit, fit
from hvlab.analysis.model.prediction import (
    NoPrediction,
    PredictedStep,
    Prediction,
    PredictionCheck,
    beyond,
    refusal,
)
from hvlab.analysis.model.problem import LAYOUT, Scatter, Values, pool
from hvlab.analysis.model.step import DRIFT, Basis, Exposure, basis, expose, exposure, totals
from hvlab.analysis.model.training import Step, Training, trainings
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics.interval import Interval

RANKS = tuple(2**power for power in range(1, 11))
_BAND = (2.5, 97.5)
_NORMAL = 1.96


def predictions(
    configurations: Mapping[Configuration, Repeats], fits: Iterable[Fit | NoFit], *, virtual: bool = False
) -> list[Prediction | NoPrediction]:
    """Return a prediction of every measured training, topology and scaling, or why there is none.

    ``virtual``: the hosts are virtual machines that share one machine's cores.
    """
    fitted = tuple(one for one in fits if isinstance(one, Fit))
    return [predict(one, matching(fitted, one), virtual=virtual) for one in trainings(configurations)]


def predict(
    training: Training, fitted: Fit | None, *, ranks: Sequence[int] = RANKS, virtual: bool = False
) -> Prediction | NoPrediction:
    """Return a prediction for the ``ranks`` beyond the measured ones, or why there is none.

    The band combines the draws of the fit and the repeats of the steps. The largest measured step, held out,
    is predicted from the smaller ones: the signed error shifts the band. Predictions end where
    :func:`hvlab.analysis.model.prediction.beyond` says so.
    """
    reason = refusal(training, fitted)
    if reason or fitted is None or training.base is None:
        return NoPrediction(training, reason or Explanation("no_base"))
    model = _Model.of(training, training.base, fitted)
    checked = check(training, training.base, fitted)
    most = training.steps[-1].ranks
    numbers = [number for number in ranks if number > most and number % training.slots == 0]
    steps: list[PredictedStep] = []
    limit = None
    for step in _steps(model, checked, numbers):
        limit = beyond(step, training, model.basis, checked, errors=model.errors)
        if limit:
            break
        steps.append(step)
    if not steps:
        return NoPrediction(training, limit or Explanation("nothing_beyond", {"ranks": most}))
    return Prediction(
        training,
        fitted,
        model.basis,
        hidden=1 - float(model.exposure.share[0]),
        overhead_s=float(model.exposure.constant_s[0]),
        steps=tuple(steps),
        check=checked,
        limit=limit,
        warnings=tuple(_warnings(model, training, checked, virtual=virtual)),
    )


def _warnings(
    model: _Model, training: Training, checked: PredictionCheck, *, virtual: bool
) -> Iterator[Explanation]:
    overhead_s, error = float(model.exposure.constant_s[0]), abs(checked.error)
    if training.serial_base:
        yield Explanation("serial_base")
    if training.base and training.base.jitter_s is None:
        yield Explanation("no_jitter")
    if overhead_s > 0:
        yield Explanation("overhead", {"overhead_ms": overhead_s * 1e3})
    if error > GOOD:
        yield Explanation("poor_check", {"error": error})
    if virtual:
        yield Explanation("virtual")


def check(training: Training, base: Step, fitted: Fit) -> PredictionCheck:
    """Return the largest measured step, predicted from smaller ones and a fit to fewer ranks.

    ``base`` is the step at one rank; the training has at least two steps of several ranks.
    """
    largest = training.steps[-1]
    smaller = training.below(largest.ranks)
    fewer = fit(fitted.sweep.below(largest.ranks))
    used = fewer if isinstance(fewer, Fit) and fewer.start_known else fitted
    model = _Model.of(smaller, base, used)
    drawn = model.at(np.array([largest.ranks], dtype=float))[:, 0]
    low, high = np.percentile(np.log(drawn[1:]), _BAND)
    error = _NORMAL * _errors(training, (largest,))[0]
    noise = math.hypot((high - low) / 2, error)
    return PredictionCheck(largest.ranks, float(drawn[0]), largest.seconds, noise, smaller.steps[-1].ranks)


@dataclass(frozen=True)
class _Model:
    """A step as fitted: the first row to the measurements, the others to draws.

    ``base`` is the step at one rank in each; ``errors`` the standard errors of the measured steps'
    logarithms.
    """

    basis: Basis
    costs: tuple[Cost, ...]
    exposure: Exposure
    base: Values
    errors: Values

    @staticmethod
    def of(training: Training, base: Step, fitted: Fit) -> _Model:
        own = basis(training, base, training.sent_bytes or 0)
        costs = (fitted.cost, *fitted.draws)
        measured = (base, *training.steps)
        errors = _errors(training, measured)
        random = np.random.default_rng(1)
        scale = _scatter(training).draw_widening(random, len(costs))
        factors = np.exp(scale * errors * random.standard_normal((len(costs), len(measured))))
        factors[0] = 1
        seconds = factors * np.array([step.seconds for step in measured])
        ranks = np.array([step.ranks for step in training.steps], dtype=float)
        flat, drift = random.random(len(costs)), DRIFT * random.standard_normal(len(costs))
        flat[0], drift[0] = 0.5, 0
        fitted_to_steps = exposure(own, costs, ranks, seconds[:, 1:], flat=flat, drift=drift)
        return _Model(own, costs, fitted_to_steps, seconds[:, 0], errors[1:])

    def at(self, ranks: Values) -> Values:
        """Return the step at numbers of ranks in seconds."""
        return totals(self.basis, self.costs, ranks, self.exposure)


def _scatter(training: Training) -> Scatter:
    steps = (training.base, *training.steps)
    return pool([math.log(seconds) for seconds in step.repeats] for step in steps if step)


def _errors(training: Training, steps: Iterable[Step]) -> Values:
    scatter = _scatter(training)
    values: Values = np.hypot([scatter.of_median(len(step.repeats)) for step in steps], LAYOUT)
    return values


def _steps(model: _Model, checked: PredictionCheck, numbers: Sequence[int]) -> list[PredictedStep]:
    ranks = np.array(numbers, dtype=float)
    own = model.basis
    whole = model.at(ranks)
    speed = model.base[:, None] * ranks / own.divisor(ranks) / whole
    shift = np.array([checked.shift_at(number) for number in numbers])
    # The edge on the side of the error moves twice as far as the point, the other not at all.
    longer, shorter = np.exp(np.maximum(2 * shift, 0)), np.exp(np.minimum(2 * shift, 0))
    low, high = np.percentile(whole[1:], _BAND, axis=0)
    slowest, fastest = np.percentile(speed[1:], _BAND, axis=0)
    step, speedup = whole[0] * np.exp(shift), speed[0] / np.exp(shift)
    _, more = expose(own, model.costs, ranks, model.exposure)
    seconds = np.minimum(low * shorter, step), step, np.maximum(high * longer, step)
    speedups = np.minimum(slowest / longer, speedup), speedup, np.maximum(fastest / shorter, speedup)
    return [
        PredictedStep(number, Interval(*one), float(beyond_s), Interval(*other))
        for number, one, beyond_s, other in zip(
            numbers, np.transpose(seconds).tolist(), more[0], np.transpose(speedups).tolist(), strict=True
        )
    ]


# The type of data that each compression sends.
_DTYPES: Mapping[str, str] = {"fp16": "float16", "bf16": "bfloat16", "8bit": "int8", "naive8": "int8"}
# The operations of Horovod's optimiser, for sweeps that vary them.
_USUAL: Mapping[str, object] = {"op": "average", "form": "single", "tensors": 1, "in_place": True}


def matching(fits: Iterable[Fit], training: Training) -> Fit | None:
    """Return the fit whose sweep is most like a training's operations.

    Backend, topology, ranks a host and device must be equal; launcher, type, container and tuning rank them,
    then the number of points.
    """
    fitting = [
        fit
        for fit in fits
        if fit.sweep.backend == training.backend
        and (fit.sweep.topology, fit.sweep.slots) == (training.topology, training.slots)
        and _is_on_device(fit, training)
    ]
    return max(fitting, key=lambda fit: (_likeness(fit, training), len(fit.points)), default=None)


def _is_on_device(fit: Fit, training: Training) -> bool:
    ours, theirs = training.get("device"), dict(fit.sweep.params).get("device")
    return ours is None or theirs is None or ours == theirs


def _likeness(fit: Fit, training: Training) -> int:
    theirs = dict(fit.sweep.params)
    dtype = _DTYPES.get(str(training.get("compression") or "none"), "float32")
    given: dict[str, object] = {**dict(training.params), **_USUAL, "dtype": dtype}
    shared = theirs.keys() & given.keys()
    alike = [name for name in shared if theirs[name] == given[name]]
    return len(alike) + (fit.sweep.launcher == training.launcher)
