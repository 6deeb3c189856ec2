"""Welch's test with Holm's adjustment: differences beyond the noise of two sides with unlike spread.

`scipy.stats.ttest_ind(equal_var=False, trim=0.15)` has the test, but takes no variances from elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hvlab.statistics.functions import polygamma, student_tail
from hvlab.statistics.permutation import Floats

# A side gives up its outermost values from seven on.
_TRIMMED = 0.15


class Trimmed(NamedTuple):
    """A side's trimmed means, Winsorised variances and how many values were kept, a value a column."""

    means: Floats
    variances: Floats
    kept: Floats


def chances(a: Floats, b: Floats, launches: NDArray[np.int_] | None = None) -> Floats:
    """Return the two-sided chance, for each column, of such a difference between sides with the same mean.

    ``a`` and ``b`` hold a row for each repeat and a column for each pair compared; NaN is a repeat without
    a figure, each side of a column needs two. Welch's (1947) test; from seven values on with trimmed means
    (Yuen 1974), which tolerate an outlier. Each side's variances are squeezed over the columns (Smyth 2004);
    ``launches`` has two rows, for the columns of ``a`` and of ``b``, with the same number for those that
    come from the same launches. Without, each column is of launches of its own.
    """
    one, other = trim(a), trim(b)
    numbers = (None, None) if launches is None else launches
    (var_a, freedom_a), (var_b, freedom_b) = (
        squeeze(side.variances, side.kept - 1, its) for side, its in zip((one, other), numbers, strict=True)
    )
    square_a, square_b = var_a / one.kept, var_b / other.kept
    square, apart = square_a + square_b, np.abs(one.means - other.means)
    none = square == 0
    safe = np.where(none, 1, square)
    freedom = safe**2 / np.where(none, 1, square_a**2 / freedom_a + square_b**2 / freedom_b)
    chance: Floats = 2 * student_tail(freedom, apart / np.sqrt(safe))
    return np.where(none, (apart == 0).astype(float), chance)


def holm(values: Floats) -> Floats:
    """Return the chances adjusted for how many there are (Holm 1979)."""
    order = np.argsort(values, kind="stable")
    adjusted = np.empty(len(values))
    raised = np.minimum(1, values[order] * np.arange(len(values), 0, -1))
    adjusted[order] = np.maximum.accumulate(raised)
    return adjusted


def trim(values: Floats) -> Trimmed:
    """Return the trimmed mean of each column, and its variance: by the values kept, its squared error."""
    ordered, rows = np.sort(values, axis=0), np.arange(len(values))[:, np.newaxis]  # NaN comes last
    count = (~np.isnan(values)).sum(axis=0)
    cut = (_TRIMMED * count).astype(int)
    low, high = (np.take_along_axis(ordered, row[np.newaxis], axis=0) for row in (cut, count - cut - 1))
    kept = (count - 2 * cut).astype(float)
    means = np.where((rows >= cut) & (rows < count - cut), ordered, 0).sum(axis=0) / kept
    winsorised = np.where(rows < count, np.clip(ordered, low, high), 0)
    distances = np.where(rows < count, winsorised - winsorised.sum(axis=0) / count, 0)
    return Trimmed(means, (distances**2).sum(axis=0) / (kept - 1), kept)


# How much variances differ cannot be estimated from fewer.
_LEAST = 3
# A variance that is zero by rounding has no logarithm: it is taken as this part of the usual one.
_LEAST_PART = 1e-5
_STEPS = 50


def squeeze(
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


# With fewer launches, a round's median is itself so noisy that it makes false alarms.
ENOUGH = 16


def round_effects(a: Floats, b: Floats, launches: NDArray[np.int_]) -> Floats:
    """Return the distance of each round's logarithms from the usual; 0 if that is not known.

    ``a`` and ``b`` hold a row for each round and a column for each comparison; NaN is a launch without a
    figure. ``launches`` has two rows, for the columns of ``a`` and of ``b``: columns with the same number
    come from one launch in each round, as the sizes of a sweep do, and share its noise. So each launch
    counts once, by the median of its columns, and the round's value is the median over its launches. It
    takes 16 of them. Each column is centred on its own median before, without a look at which side a figure
    is of, and counts where it has both sides in that round: what is taken out is taken from both alike.
    """
    both = np.tile(~np.isnan(a) & ~np.isnan(b), 2)
    distances = np.concatenate((a, b), axis=1) - np.tile(_middles(np.vstack((a, b))), 2)
    effects = np.zeros(len(a))
    for row, measured in enumerate(both):
        numbers = launches.ravel()[measured]
        values = distances[row, measured]
        order = np.lexsort((values, numbers))
        _, first, count = np.unique(numbers[order], return_index=True, return_counts=True)
        if len(first) >= ENOUGH:
            ordered = values[order]
            effects[row] = np.median((ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2)
    return effects


def _middles(values: Floats) -> Floats:
    middles: Floats = np.nanmedian(values, axis=0) if np.isnan(values).any() else np.median(values, axis=0)
    return middles
