"""How the iterations of launches are distributed: mean, median, percentiles, histogram. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# A percentile lies within the values only where one of them is beyond it: of fewer, it would be a maximum.
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
    equal widths after Freedman and Diaconis (1981). Raises ValueError where there is no value.
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
    """Return ``p95`` or ``p99`` of values in ascending order; None where they are too few for it."""
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
