"""A figure with its spread over the repeats; with one repeat, over its own steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.report.plots import Series
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


def series(name: str, tone: str, points: Sequence[tuple[float, Spread]], **options: Any) -> Series:
    """Return a line through figures over ``x``."""
    xs, spreads = [x for x, _ in points], [each for _, each in points]
    return Series(
        name, tone, tuple(xs), tuple(one.mid for one in spreads), tuple(one.low for one in spreads),
        tuple(one.high for one in spreads), **options,
    )  # fmt: skip
