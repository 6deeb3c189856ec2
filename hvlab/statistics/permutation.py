"""Which of many differences are more than chance, by asking what other labels would have shown."""

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


def chances(a: Floats, b: Floats, *, floor: float) -> Floats:
    """Return for each column how often chance alone would show such a difference in any column.

    ``a`` and ``b`` hold a row for each repeat and a column for each thing compared; NaN is a repeat that
    gave no figure. A column in which the chance is at most 1 % is a false alarm in at most 1 % of all
    comparisons, however many columns there are and however they depend on one another: step-down maximum
    of Westfall and Young (1993), which is Holm's method with the dependence taken from the data. It is
    exact for any noise that is the same on both sides, as repeats then could as well be swapped.

    The statistic is Student's with pooled variance, on values cut off at 1.5 robust standard deviations of
    the column. ``floor`` is added to the standard deviation, so that a small spread by chance makes no great
    statistic (Tusher 2001).
    """
    values, known = _fenced(np.vstack((a, b)))
    statistic = _statistics(labellings(len(a), len(b)), values, known, floor)
    order = np.argsort(-statistic[0], kind="stable")
    largest = np.maximum.accumulate(statistic[:, order[::-1]], axis=1)[:, ::-1]
    shares = (largest >= statistic[0, order] * _EQUAL).mean(axis=0)
    found = np.empty(len(order))
    found[order] = np.maximum.accumulate(shares)
    return found


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
    """Return the least chance that a and b repeats can show."""
    return (2 if a == b else 1) / math.comb(a + b, a)


def needed(alarms: float) -> int:
    """Return how many repeats on each side can show a chance of at most ``alarms``."""
    return next(count for count in itertools.count(_A_SPREAD) if least_chance(count, count) <= alarms)


def _fenced(values: Floats) -> tuple[Floats, Floats]:
    """Return the distances from each column's median, the far ones cut off; and where there are any."""
    known = ~np.isnan(values)
    median = np.median if known.all() else np.nanmedian
    distances = values - median(values, axis=0)
    fence = _FENCE * 1.4826 * median(np.abs(distances), axis=0)
    fence[fence == 0] = np.inf
    return np.nan_to_num(np.clip(distances, -fence, fence)), known.astype(float)


def _statistics(labels: Floats, values: Floats, known: Floats, floor: float) -> Floats:
    """Return the statistic of each column under each labelling; 0 where a side has too few values."""
    count_a = labels @ known
    count_b = known.sum(axis=0) - count_a
    enough = np.minimum(count_a, count_b) >= _A_SPREAD
    count_a, count_b = np.where(enough, count_a, 1), np.where(enough, count_b, 1)
    sum_a = labels @ values
    sum_b = values.sum(axis=0) - sum_a
    within = (values**2).sum(axis=0) - sum_a**2 / count_a - sum_b**2 / count_b
    variance = np.maximum(within, 0) / np.maximum(count_a + count_b - 2, 1) + floor**2 + _TINY
    apart = np.abs(sum_a / count_a - sum_b / count_b)
    found: Floats = np.where(enough, apart / np.sqrt(variance * (1 / count_a + 1 / count_b)), 0)
    return found
