"""Which of many differences are more than chance: a permutation test over all of them at once.

`scipy.stats.permutation_test` tests one difference; the step-down maximum over a family is not in scipy.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

_MOST_LABELLINGS = 2000
_FENCE = 1.5
_TINY = 1e-12
_EQUAL = 1 - 1e-9
_A_SPREAD = 2


def chances(a: Floats, b: Floats) -> Floats:
    """Return the chance, for each column, of as large a difference in any column by noise alone.

    ``a`` and ``b`` hold a row for each repeat and a column for each pair compared; NaN is a repeat without
    a figure. Columns with a chance of at most 1 % hold a false alarm in at most 1 % of comparisons, however
    many columns there are and however they depend on one another: the step-down maximum of Westfall and
    Young (1993), which is Holm's method with the dependence taken from the data. It is exact for any noise
    that is alike on both sides, because repeats could then be swapped.

    The statistic is Student's with pooled variance, on values clipped at 1.5 robust standard deviations of
    the column. Under every labelling, the median variance of all columns is added to each variance, so
    that a spread that is small by chance does not make a large statistic (Tusher, Tibshirani and Chu 2001).
    """
    values, known = _fence(np.vstack((a, b)))
    statistic = _statistics(labellings(len(a), len(b)), values, known)
    order = np.argsort(-statistic[0], kind="stable")
    largest = np.maximum.accumulate(statistic[:, order[::-1]], axis=1)[:, ::-1]
    shares = (largest >= statistic[0, order] * _EQUAL).mean(axis=0)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(shares)
    return adjusted


@cache
def labellings(a: int, b: int) -> Floats:
    """Return labellings of a + b repeats as rows, 1 where the repeat is the first side's.

    The first is the real one. All are returned where they are at most 2000, else as many drawn by a fixed
    seed.
    """
    if math.comb(a + b, a) <= _MOST_LABELLINGS:
        rows = np.zeros((math.comb(a + b, a), a + b))
        for row, chosen in zip(rows, itertools.combinations(range(a + b), a), strict=True):
            row[list(chosen)] = 1
        return rows
    rows = np.zeros((_MOST_LABELLINGS, a + b))
    rows[0, :a] = 1
    drawn = np.argsort(np.random.default_rng(0).random((_MOST_LABELLINGS - 1, a + b)), axis=1)[:, :a]
    np.put_along_axis(rows[1:], drawn, 1, axis=1)
    return rows


def least_chance(a: int, b: int) -> float:
    """Return the smallest chance that a and b repeats can show."""
    return (2 if a == b else 1) / math.comb(a + b, a)


def count_needed(alpha: float) -> int:
    """Return the number of repeats on each side that can show a chance of at most ``alpha``."""
    return next(count for count in itertools.count(_A_SPREAD) if least_chance(count, count) <= alpha)


def _fence(values: Floats) -> tuple[Floats, Floats]:
    """Return the distances from each column's median, clipped, and where there are figures."""
    known = ~np.isnan(values)
    median = np.median if known.all() else np.nanmedian
    distances = values - median(values, axis=0)
    fence = _FENCE * 1.4826 * median(np.abs(distances), axis=0)
    fence[fence == 0] = np.inf
    return np.nan_to_num(np.clip(distances, -fence, fence)), known.astype(float)


def _statistics(labels: Floats, values: Floats, known: Floats) -> Floats:
    """Return the statistic of each column under each labelling; 0 if a side has too few values."""
    count_a = labels @ known
    count_b = known.sum(axis=0) - count_a
    enough = np.minimum(count_a, count_b) >= _A_SPREAD
    count_a, count_b = np.where(enough, count_a, 1), np.where(enough, count_b, 1)
    sum_a = labels @ values
    sum_b = values.sum(axis=0) - sum_a
    within = (values**2).sum(axis=0) - sum_a**2 / count_a - sum_b**2 / count_b
    variance = np.maximum(within, 0) / np.maximum(count_a + count_b - 2, 1)
    # For each labelling, the median variance of the columns that have one; infinite without any.
    ordered = np.sort(np.where(enough, variance, np.inf), axis=1)
    count, rows = enough.sum(axis=1), np.arange(len(variance))
    middle: Floats = (ordered[rows, np.maximum(count - 1, 0) // 2] + ordered[rows, count // 2]) / 2
    variance += middle[:, np.newaxis] + _TINY
    apart = np.abs(sum_a / count_a - sum_b / count_b)
    statistic: Floats = np.where(enough, apart / np.sqrt(variance * (1 / count_a + 1 / count_b)), 0)
    return statistic
