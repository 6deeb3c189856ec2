"""The ratio of two medians, with its interval (Hodges and Lehmann); scipy has no such interval."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from functools import cache

from hvlab.statistics.interval import Interval

# With fewer figures on a side, the interval is below 95 %.
ENOUGH = 4


def medians(a: Sequence[float], b: Sequence[float]) -> Interval | None:
    """Return the median of ``a`` over that of ``b`` with its 95 % interval; None where one is not above zero.

    The interval is that of Hodges and Lehmann (1963), from the distribution of Mann and Whitney's U; it holds
    for noise of any shape. With fewer than four figures on each side it is the range of all quotients, which
    is less than 95 %.
    """
    if not a or not b or min(*a, *b) <= 0:
        return None
    mid = statistics.median(a) / statistics.median(b)
    quotients = sorted(one / other for one in a for other in b)
    left_out = _left_out(len(a), len(b))
    return Interval(min(mid, quotients[left_out]), mid, max(mid, quotients[-1 - left_out]))


def words(ratio: Interval) -> str:
    """Return a ratio as a difference in words, such as ``9.1 % lower (7.3 % to 11.5 %)``."""
    low, mid, high = (100 * (part - 1) for part in (ratio.low, ratio.mid, ratio.high))
    text = f"{abs(mid):.1f} % {_way(mid)}"
    if low < 0 < high:
        return f"{text} ({-low:.1f} % lower to {high:.1f} % higher)"
    near, far = sorted((abs(low), abs(high)))
    return f"{text} ({near:.1f} % to {far:.1f} %)"


def _way(percent: float) -> str:
    return "lower" if percent < 0 else "higher"


@cache
def _left_out(a: int, b: int) -> int:
    """Return how many of the a x b ordered quotients to leave out at each end."""
    allowed = 0.025 * math.comb(a + b, a)
    small = sum(below <= allowed for below in itertools.accumulate(_ways(a, b)))
    return max(0, small - 1)


def _ways(a: int, b: int) -> list[int]:
    """Return how many orders of a and b figures show each U: the Gaussian binomial's coefficients."""
    ways = [1] + [0] * (a * b)
    for i in range(1, a + 1):
        for power in range(a * b, b + i - 1, -1):
            ways[power] -= ways[power - b - i]
        for power in range(i, a * b + 1):
            ways[power] += ways[power - i]
    return ways
