"""A median or a mean with its interval.

The median's is a moving-block bootstrap computed without random numbers: `scipy.stats.bootstrap` draws them,
and knows no blocks.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

_LONG_ENOUGH = 20
_MOST_LAG = 0.97
# Blocks hold their neighbours together, and so n/l of them vary less than the series does. Drawing
# this many blocks fewer than fill it makes up for that; found by trying series of 25 to 400 values.
_BLOCKS_FEWER = 2


@dataclass(frozen=True)
class Interval:
    """A figure and the bounds between which it lies, in the figure's own unit."""

    low: float
    mid: float
    high: float

    def times(self, factor: float) -> Interval:
        """Return it in another unit."""
        return Interval(self.low * factor, self.mid * factor, self.high * factor)


def median(values: Sequence[float], *, level: float = 0.95) -> Interval:
    """Return the median of one value or more with its bootstrap percentile interval.

    The values are in the order of measurement. Neighbours may depend on one another, so whole blocks are
    drawn (Kuensch 1989), as long as suits the series: see :func:`block`. The share of resamples whose
    median is at most some value is a binomial tail for single values (Efron 1979), a convolution for
    blocks; it is computed, so no random numbers are needed. One value is its own interval.

    Raises ValueError if there is no value.
    """
    if not values:
        raise ValueError("no value, no median")
    mid = statistics.median(values)
    if min(values) == max(values):
        return Interval(mid, mid, mid)
    ordered = sorted(values)
    resamples = _Resamples(values)
    drawn, tail = resamples.size, (1 - level) / 2
    # An even number of values has its median between two: the interval takes the outer one on each side.
    low = _bisect(len(values), lambda rank: resamples.at_least((drawn + 1) // 2, ordered[rank]) > tail)
    high = _bisect(len(values), lambda rank: resamples.at_least(drawn // 2 + 1, ordered[rank]) >= 1 - tail)
    return Interval(min(ordered[low], mid), mid, max(ordered[high], mid))


def block(values: Sequence[float]) -> int:
    """Return the number of neighbours to draw together; 1 for independent values and for short series.

    Carlstein's (1986) length for an autoregressive series. Its correlation comes from the sides of the
    median that neighbours lie on, so that outliers do not count, by the arcsine law of normal series.
    """
    size = len(values)
    if size < _LONG_ENOUGH:
        return 1
    mid = statistics.median(values)
    sides = [int(value > mid) - int(value < mid) for value in values]
    same = sum(one * other for one, other in itertools.pairwise(sides))
    lag = min(math.sin(math.pi / 2 * same / max(1, sum(map(abs, sides)))), _MOST_LAG)
    if lag <= 1 / math.sqrt(size):
        return 1
    length = math.pow(math.sqrt(6) * lag / (1 - lag * lag), 2 / 3) * math.cbrt(size)
    return max(1, min(size // 4, round(length)))


def mean(values: Sequence[float]) -> Interval:
    """Return the mean of independent values with Student's (1908) 95 % interval; one value has no bounds.

    Raises ValueError if there is no value.
    """
    from hvlab.statistics.functions import student_quantile  # noqa: PLC0415 - it imports numpy, see below

    centre = statistics.fmean(values)
    if len(values) == 1:
        return Interval(-math.inf, centre, math.inf)
    reach = student_quantile(len(values) - 1, 0.975) * statistics.stdev(values) / len(values) ** 0.5
    return Interval(centre - reach, centre, centre + reach)


class _Resamples:
    """All resamples of a series by blocks, and how many of their values are small."""

    def __init__(self, values: Sequence[float]) -> None:
        import numpy  # noqa: PLC0415 - it takes long, and `hvlab bench --help` imports this module

        self._numpy: Any = numpy
        self._values = numpy.asarray(values, dtype=float)
        self._block = block(values)
        self.size = len(values) - (_BLOCKS_FEWER * self._block if self._block > 1 else 0)
        self._length = 1 << self.size.bit_length()

    def at_least(self, count: int, bound: float) -> float:
        """Return the share of resamples with at least ``count`` values up to ``bound``."""
        small = self._values <= bound
        if self._block == 1:
            return _at_least(self.size, int(small.sum()), count)
        before = self._numpy.concatenate(([0], self._numpy.cumsum(small)))
        whole, rest = divmod(self.size, self._block)
        spectrum = self._spectrum(before, self._block) ** whole
        if rest:
            spectrum = spectrum * self._spectrum(before, rest)
        return float(self._numpy.fft.irfft(spectrum, self._length)[count : self.size + 1].sum())

    def _spectrum(self, before: Any, length: int) -> Any:
        """Return the transform of how many values of one block are small."""
        counts = self._numpy.bincount(before[length:] - before[:-length], minlength=length + 1)
        return self._numpy.fft.rfft(counts / counts.sum(), self._length)


@lru_cache(maxsize=10_000)
def _at_least(size: int, small: int, count: int) -> float:
    """Return the share of resamples with ``count`` small values, where ``small`` of ``size`` are."""
    import numpy  # noqa: PLC0415 - as above

    length = 1 << size.bit_length()
    spectrum = numpy.fft.rfft((1 - small / size, small / size), length) ** size
    return float(numpy.fft.irfft(spectrum, length)[count : size + 1].sum())


def _bisect(size: int, holds: Callable[[int], bool]) -> int:
    low, high = 0, size - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


# With fewer figures on a side, the interval is below 95 %.
ENOUGH = 4


def medians(a: Sequence[float], b: Sequence[float]) -> Interval | None:
    """Return the median of ``a`` over that of ``b`` with its 95 % interval; None if one is not above zero.

    The interval is that of Hodges and Lehmann (1963), from the distribution of Mann and Whitney's U; it holds
    for noise of any shape. With fewer than four figures on each side it is the range of all quotients, which
    is less than 95 %.
    """
    if not a or not b or min(*a, *b) <= 0:
        return None
    mid = statistics.median(a) / statistics.median(b)
    quotients = sorted(one / other for one in a for other in b)
    left_out = _count_left_out(len(a), len(b))
    return Interval(min(mid, quotients[left_out]), mid, max(mid, quotients[-1 - left_out]))


def words(ratio: Interval) -> str:
    """Return a ratio as a difference in words, such as ``9.1 % lower (7.3 % to 11.5 %)``."""
    low, mid, high = (100 * (part - 1) for part in (ratio.low, ratio.mid, ratio.high))
    text = f"{abs(mid):.1f} % {'lower' if mid < 0 else 'higher'}"
    if low < 0 < high:
        return f"{text} ({-low:.1f} % lower to {high:.1f} % higher)"
    near, far = sorted((abs(low), abs(high)))
    return f"{text} ({near:.1f} % to {far:.1f} %)"


@cache
def _count_left_out(a: int, b: int) -> int:
    """Return the number of the a x b ordered quotients to leave out at each end."""
    allowed = 0.025 * math.comb(a + b, a)
    small = sum(below <= allowed for below in itertools.accumulate(_ways(a, b)))
    return max(0, small - 1)


def _ways(a: int, b: int) -> list[int]:
    """Return the number of orders of a and b figures for each U: the Gaussian binomial's coefficients."""
    ways = [1] + [0] * (a * b)
    for i in range(1, a + 1):
        for power in range(a * b, b + i - 1, -1):
            ways[power] -= ways[power - b - i]
        for power in range(i, a * b + 1):
            ways[power] += ways[power - i]
    return ways
