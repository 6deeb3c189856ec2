"""A mean with its interval, by Student's (1908) distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy import special

from hvlab.statistics.interval import Interval


def mean(values: Sequence[float], *, level: float = 0.95) -> Interval:
    """Return the mean of independent values with Student's interval; that of one value has no bounds.

    Raises ValueError where there is no value.
    """
    mid = statistics.fmean(values)
    if len(values) == 1:
        return Interval(-math.inf, mid, math.inf)
    reach = special.stdtrit(len(values) - 1, (1 + level) / 2) * statistics.stdev(values) / len(values) ** 0.5
    return Interval(mid - reach, mid, mid + reach)
