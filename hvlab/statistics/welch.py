"""Welch's test with Holm's adjustment: differences beyond the noise of two sides with unlike spread.

`scipy.stats.ttest_ind(equal_var=False, trim=0.15)` has the test, but takes no variances from elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hvlab.statistics.functions import student_tail
from hvlab.statistics.permutation import Floats
from hvlab.statistics.squeeze import squeezed

# A side gives up its outermost values from seven on.
_TRIMMED = 0.15


class Trimmed(NamedTuple):
    """A side's trimmed means, Winsorised variances and how many values were kept, a value a column."""

    means: Floats
    variances: Floats
    kept: Floats


def chances(a: Floats, b: Floats, launches: NDArray[np.int_] | None = None) -> Floats:
    """Return for each column the two-sided chance of such a difference between sides with the same mean.

    ``a`` and ``b`` hold a row for each repeat and a column for each pair compared; NaN is a repeat without
    a figure, each side of a column needs two. Welch's (1947) test; from seven values on with trimmed means
    (Yuen 1974), which tolerate an outlier. Each side's variances are squeezed over the columns (Smyth 2004);
    ``launches`` has two rows, for the columns of ``a`` and of ``b``, with the same number for those that
    come from the same launches. Without, each column is of launches of its own.
    """
    one, other = trimmed(a), trimmed(b)
    numbers = (None, None) if launches is None else launches
    (var_a, freedom_a), (var_b, freedom_b) = (
        squeezed(side.variances, side.kept - 1, its) for side, its in zip((one, other), numbers, strict=True)
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


def trimmed(values: Floats) -> Trimmed:
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
