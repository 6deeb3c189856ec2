"""Variances of a few values each, made surer by one another: an empirical Bayes estimate; scipy has none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hvlab.statistics.functions import polygamma
from hvlab.statistics.permutation import Floats

# How much variances differ cannot be estimated from fewer.
_LEAST = 3
# A variance that is zero by rounding has no logarithm: it is taken as this part of the usual one.
_LEAST_PART = 1e-5
_STEPS = 50


def squeezed(
    variances: Floats, freedom: Floats, launches: NDArray[np.int_] | None = None
) -> tuple[Floats, Floats]:
    """Return the variances drawn towards their common value, and their degrees of freedom, which grow.

    Smyth (2004): the true variances are taken as scaled inverse chi-squared, whose value and degrees of
    freedom come from the mean and the variance of the logarithms. Where variances differ by no more than
    chance, all become the common one; where they differ much, each keeps its own. As in his limma, there
    are at most as many degrees of freedom as in all together. Fewer than three variances stay as they are.

    Variances with the same number in ``launches`` share their noise and are one, so far as degrees of
    freedom go: copies of a variance make it no surer, and differ less by chance. Without, each is its own.
    """
    usual = np.median(variances) if len(variances) else 0.0
    if len(variances) < _LEAST or usual == 0:
        return variances, freedom
    numbers = np.arange(len(variances)) if launches is None else launches
    _, place, copies = np.unique(numbers, return_inverse=True, return_counts=True)
    most = float((freedom / copies[place]).sum())
    half = freedom / 2
    logs = np.log(np.maximum(variances, _LEAST_PART * usual)) - polygamma(0, half) + np.log(half)
    apart = (1 - ((copies / len(logs)) ** 2).sum()) * len(logs) / (len(logs) - 1)
    excess = float(np.var(logs, ddof=1) - apart * np.mean(polygamma(1, half)))
    if excess <= 0:
        return np.full_like(variances, np.exp(logs.mean())), np.full_like(freedom, most)
    prior = 2 * trigamma_inverse(excess)
    common = np.exp(logs.mean() + polygamma(0, prior / 2) - np.log(prior / 2))
    together = freedom + prior
    return (freedom * variances + prior * common) / together, np.minimum(together, most)


def trigamma_inverse(value: float) -> float:
    """Return where the trigamma function has this value, which is above zero (Smyth 2004, appendix)."""
    place = 0.5 + 1 / value
    for _ in range(_STEPS):
        trigamma = float(polygamma(1, place))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, place))
        place += step
        if abs(step) < 1e-8 * place:
            break
    return place
