"""How many repeats would decide what is open, if the figures so far are as things are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from hvlab.statistics import permutation
from hvlab.statistics.verdict import ALPHA, MATTERS, Pair

POWER = 0.8
# Beyond that a number of repeats is no plan.
MOST = 200
_A_SPREAD = 2
_NORMAL = NormalDist()


def repeats_to_decide(
    pair: Pair, *, family: int = 1, matters: float = MATTERS, alpha: float = ALPHA
) -> int | None:
    """Return how many repeats of each side make a verdict likely; None where no number does.

    It assumes that the measured ratio of the medians and the measured spread are the true ones, so that the
    share POWER of such runs would hold the verdict: two-sided, at ``alpha`` over the number of
    comparisons ``family`` (the worst case of Holm's adjustment), by the normal approximation with the
    correction for few repeats (Guenther 1981). A measured ratio that is nearer to 1 than ``matters`` promises
    no "faster"; then it is how many would show that the two are the same. What was
    measured did not decide it, so it is always more than that.
    With few repeats the answer itself is rough: the spread of five is known to a factor of two.
    """
    sides = [np.log([value for value in side.values() if value > 0]) for side in (pair.a, pair.b)]
    if min(map(len, sides)) < _A_SPREAD:
        return None
    apart = abs(float(np.median(sides[0]) - np.median(sides[1])))
    variance = _variance(sides)
    room, power = math.log1p(matters), POWER
    if apart >= room:
        level, distance = alpha / family / 2, apart
        least = permutation.needed(alpha)
    else:
        # Both ends of a 95 % interval have to lie within what matters.
        level, distance, least = 0.025, room - apart, _A_SPREAD
        power = (1 + power) / 2
    quantile = -_NORMAL.inv_cdf(level)
    if distance <= 0:
        return None
    reach = quantile + _NORMAL.inv_cdf(power)
    count = math.ceil(2 * variance * (reach / distance) ** 2 + quantile**2 / 4)
    least = max(least, 1 + min(len(pair.a), len(pair.b)))
    return max(least, count) if count <= MOST else None


def _variance(sides: Sequence[permutation.Floats]) -> float:
    """Return the variance of the sides together, each about its own mean."""
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    return squares / sum(len(side) - 1 for side in sides)
