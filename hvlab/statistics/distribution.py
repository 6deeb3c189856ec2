"""How the iterations of launches are distributed, and where their warm-up ends. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

# A percentile lies within the values only where one of them is beyond it; with fewer, it would be a maximum.
ENOUGH = {"p95": 20, "p99": 100}
_SHARE = {"p95": 0.95, "p99": 0.99}
_FEWEST_BINS, _MOST_BINS = 5, 40
# Bins end there; whatever is beyond lies in the last one, so that one long pause does not hide the rest.
_FENCES = 6.0


@dataclass(frozen=True)
class Distribution:
    """Values in one unit; ``p95`` and ``p99`` are None below 20 and 100 of them.

    The histogram has ``counts[i]`` values from ``edges[i]`` to ``edges[i + 1]``; the last bin holds all
    that is beyond, up to ``highest``.
    """

    count: int
    mean: float
    median: float
    p95: float | None
    p99: float | None
    lowest: float
    highest: float
    edges: tuple[float, ...]
    counts: tuple[int, ...]


def distribution(values: Sequence[float]) -> Distribution:
    """Summarise the distribution of one or more values.

    Percentiles are interpolated between the two values around them (Hyndman and Fan 1996, type 7). Bins have
    equal widths after Freedman and Diaconis (1981). Raises ValueError if there is no value.
    """
    if not values:
        raise ValueError("no value, no distribution")
    ordered = sorted(values)
    edges, counts = _histogram(ordered)
    return Distribution(
        len(values),
        statistics.fmean(values),
        statistics.median(ordered),
        percentile(ordered, "p95"),
        percentile(ordered, "p99"),
        ordered[0],
        ordered[-1],
        edges,
        counts,
    )


def percentile(ordered: Sequence[float], name: str) -> float | None:
    """Return ``p95`` or ``p99`` of values in ascending order; None if they are too few for it."""
    return None if len(ordered) < ENOUGH[name] else _quantile(ordered, _SHARE[name])


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _histogram(ordered: Sequence[float]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    lowest, highest = ordered[0], ordered[-1]
    if lowest == highest:
        return (lowest, highest), (len(ordered),)
    lower, upper = _quantile(ordered, 0.25), _quantile(ordered, 0.75)
    end = min(highest, upper + _FENCES * (upper - lower)) if upper > lower else highest
    width = 2 * (upper - lower) / math.cbrt(len(ordered))
    most = math.ceil((end - lowest) / width) if width > 0 else _FEWEST_BINS
    bins = max(_FEWEST_BINS, min(_MOST_BINS, most))
    edges = (*(lowest + (end - lowest) * number / bins for number in range(bins)), end)
    counts = [0] * bins
    for value in ordered:
        counts[min(bins - 1, int((value - lowest) / (end - lowest) * bins))] += 1
    return edges, tuple(counts)


_SHORTEST = 10
_FENCE = 3.0
_USUAL = 0.9
_APART = 1.0
_APART_ALONE = 6.0
_SETTLED = 1 / 3
_COARSE = 1e-3


def warmup_length(series: Sequence[float]) -> int:
    """Return the number of leading warm-up iterations: 0 for short or flat series, at most half.

    MSER (White 1997): cut where the rest has the smallest standard error of its mean. To tolerate outliers,
    distances from the median are clipped at three robust standard deviations, and a single one between usual
    neighbours does not count. A cut needs evidence: most of what is cut lies beyond nine tenths of the rest,
    clearly apart from it, and the rest has settled. So a series that drifts to its end has no warm-up.
    """
    if len(series) < _SHORTEST or min(series) == max(series):
        return 0
    # Distances from the median of the second half, in its robust standard deviations.
    half = series[len(series) // 2 :]
    centre = statistics.median(half)
    # Most values may be alike where the clock is coarse: below a thousandth no difference counts.
    spread = max(1.4826 * statistics.median(abs(value - centre) for value in half), _COARSE * abs(centre))
    scores = [(value - centre) / (spread or 1.0) for value in series]
    threes = zip(scores, scores[1:], scores[2:], strict=False)
    smooth = [scores[0], *map(statistics.median, threes), scores[-1]]
    errors = _errors([max(-_FENCE, min(_FENCE, score)) for score in smooth])
    cuts = [cut for side in (1, -1) for cut in _cuts([side * score for score in scores])]
    for cut in sorted(set(cuts), key=errors.__getitem__):
        if errors[cut] < errors[0] and _is_significant(scores, cut):
            return cut
    return 0


def _errors(scores: Sequence[float]) -> list[float]:
    sums = list(accumulate(reversed(scores)))
    squares = list(accumulate(score * score for score in reversed(scores)))
    return [(squares[left - 1] - sums[left - 1] ** 2 / left) / left**2 for left in range(len(scores), 1, -1)]


def _cuts(scores: Sequence[float]) -> Iterator[int]:
    """Yield the cuts just behind an unusually high score, most of what is cut being such."""
    half = sorted(scores[len(scores) // 2 :])
    usual = half[int(_USUAL * (len(half) - 1))]
    high = 0
    for cut, score in enumerate(scores[: len(scores) // 2], start=1):
        high += score > usual
        if score > usual and 2 * high > cut:
            yield cut


def _is_significant(scores: Sequence[float], cut: int) -> bool:
    """Whether the cut part is clearly apart from the rest, and the rest has settled."""
    lead, rest = scores[:cut], sorted(scores[cut:])
    middle = statistics.median(rest)
    spread = 1.4826 * statistics.median(abs(score - middle) for score in rest)
    excess = statistics.median(lead) - middle
    if abs(excess) <= max(_APART, _APART_ALONE / cut**0.5) * spread:
        return False
    size = len(rest)
    usual = rest[int(_USUAL * (size - 1))] if excess > 0 else rest[size - 1 - int(_USUAL * (size - 1))]
    if (excess > 0) != (statistics.median(lead) > usual):
        return False
    third = -(-size // 3)
    trend = statistics.median(scores[cut : cut + third]) - statistics.median(scores[-third:])
    return abs(trend) <= _SETTLED * abs(excess)
