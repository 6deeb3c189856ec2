"""Which of many differences are more than the noise of their sides, which need not be alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy import special

# A side gives up its outermost values from seven on.
_TRIMMED = 0.15


def holm(chances: Sequence[float]) -> list[float]:
    """Return the chances adjusted for their number (Holm 1979): one at most 1 % is a false alarm in 1 %."""
    found = [0.0] * len(chances)
    largest = 0.0
    for done, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        largest = max(largest, min(1.0, (len(chances) - done) * chances[index]))
        found[index] = largest
    return found


def chance(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided chance that two sides of two values or more differ as much and have one mean.

    Welch's (1947) test; from seven values on with trimmed means (Yuen 1974), which bear an outlier.
    """
    (mean_a, square_a, freedom_a), (mean_b, square_b, freedom_b) = _trimmed(a), _trimmed(b)
    square = square_a + square_b
    if square == 0:
        return float(mean_a == mean_b)
    freedom = square**2 / (square_a**2 / freedom_a + square_b**2 / freedom_b)
    return 2 * float(special.stdtr(freedom, -abs(mean_a - mean_b) / math.sqrt(square)))


def _trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the trimmed mean, its squared standard error and the degrees of freedom."""
    ordered = sorted(values)
    cut = int(_TRIMMED * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    freedom = len(kept) - 1
    centre = statistics.fmean(winsorised)
    squares = math.fsum((value - centre) ** 2 for value in winsorised)
    return statistics.fmean(kept), squares / (len(kept) * freedom), freedom
