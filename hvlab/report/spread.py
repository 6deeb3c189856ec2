"""A figure with its spread: over the repeats, or of the one there is, over its own steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hvlab.report.blocks import NOTHING, Number, Range, Say, Several, Value
from hvlab.results.configurations import Measured
from hvlab.statistics.interval import Interval, median

_SEVERAL = 2


@dataclass(frozen=True)
class Spread:
    """A median and its 95 % interval; ``within`` tells that it is of one repeat's own iterations or steps."""

    low: float
    mid: float
    high: float
    within: bool = False

    def times(self, factor: float) -> Spread:
        """Return it in another unit."""
        return Spread(self.low * factor, self.mid * factor, self.high * factor, self.within)


def of(measured: Measured, metric: str) -> Spread | None:
    """Return a metric's spread; None where it was not measured."""
    values = tuple(value for value in measured.of(metric) if math.isfinite(value))
    if not values:
        return None
    if len(values) >= _SEVERAL:
        return from_interval(median(values))
    low, high = measured.of(f"{metric}_low"), measured.of(f"{metric}_high")
    if low and high:
        return Spread(min(low[0], values[0]), values[0], max(high[0], values[0]), within=True)
    return Spread(values[0], values[0], values[0])


def from_interval(found: Interval | None) -> Spread | None:
    """Return an interval as a spread."""
    return Spread(found.low, found.mid, found.high) if found else None


def number(spread: Spread | None, unit: str, digits: int = 3) -> Value:
    """Return the median as a cell."""
    return Number(spread.mid, unit, digits) if spread else NOTHING


def span(spread: Spread | None, unit: str, digits: int = 3) -> Value:
    """Return the interval as a cell; nothing where one value is all there is."""
    if spread is None or spread.low == spread.high:
        return NOTHING
    return Range(spread.low, spread.high, unit, digits)


def both(spread: Spread | None, unit: str) -> Value:
    """Return the median with its interval in brackets."""
    if spread is None:
        return NOTHING
    if spread.low == spread.high:
        return Number(spread.mid, unit)
    return Say("spread", {"mid": Number(spread.mid, unit), "span": Range(spread.low, spread.high, unit)})


def count(measured: Measured | None) -> Value:
    """Return how many repeats went well, of how many."""
    if measured is None:
        return NOTHING
    return Say("scaling.of", {"ok": len(measured.ok), "all": measured.repeats})


def listed(values: Sequence[Value], between: str = "list.comma") -> Value:
    """Return values one after another, or nothing."""
    return Several(tuple(values), between) if values else NOTHING
