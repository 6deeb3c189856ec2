"""A figure with its spread over the repeats; with one repeat, over its own steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hvlab.report.blocks import NOTHING, Number, Range, Say, Value
from hvlab.results.configurations import Repeats
from hvlab.statistics.interval import Interval, median

_SEVERAL = 2


@dataclass(frozen=True)
class Spread:
    """A median and its 95 % interval; ``within`` means over one repeat's own steps."""

    low: float
    mid: float
    high: float
    within: bool = False

    def times(self, factor: float) -> Spread:
        """Return it in another unit."""
        return Spread(self.low * factor, self.mid * factor, self.high * factor, self.within)


def of(repeats: Repeats, metric: str) -> Spread | None:
    """Return a metric's spread; None where it was not measured."""
    values = tuple(value for value in repeats.of(metric) if math.isfinite(value))
    if not values:
        return None
    if len(values) >= _SEVERAL:
        return from_interval(median(values))
    within = [repeats.of(f"{metric}_{part}") for part in ("low", "median", "high")]
    if all(within):
        low, mid, high = (part[0] for part in within)
        return Spread(low, mid, high, within=True)
    return Spread(values[0], values[0], values[0])


def from_interval(interval: Interval | None) -> Spread | None:
    """Return an interval as a spread."""
    return Spread(interval.low, interval.mid, interval.high) if interval else None


def number(spread: Spread | None, unit: str, digits: int = 3) -> Value:
    """Return the median as a cell."""
    return Number(spread.mid, unit, digits) if spread else NOTHING


def span(spread: Spread | None, unit: str, digits: int = 3) -> Value:
    """Return the interval as a cell; nothing for a single value."""
    if spread is None or spread.low == spread.high:
        return NOTHING
    return Range(spread.low, spread.high, unit, digits)


def interval(values: Sequence[float], unit: str) -> Value:
    """Return the interval of the median of several repeats as a cell."""
    if len(values) < _SEVERAL:
        return NOTHING
    bounds = median(values)
    return Range(bounds.low, bounds.high, unit)


def both(spread: Spread | None, unit: str) -> Value:
    """Return the median with its interval in brackets."""
    if spread is None:
        return NOTHING
    if spread.low == spread.high:
        return Number(spread.mid, unit)
    return Say("spread", {"mid": Number(spread.mid, unit), "span": Range(spread.low, spread.high, unit)})


def count(repeats: Repeats | None) -> Value:
    """Return how many repeats succeeded, of how many."""
    if repeats is None:
        return NOTHING
    return Say("scaling.of", {"ok": len(repeats.ok), "all": repeats.tried})
