"""How far figures scatter, and how long the slowest of several ranks takes. On logarithms where not said."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hvlab.statistics.functions import normal

Values = NDArray[np.float64]

# What launches differ by where too few were measured to tell, and how many degrees of freedom that counts
# for.
_EXPECTED = 0.05
_WEIGHT = 3
_REACH = 9.0


@dataclass(frozen=True)
class Scatter:
    """The standard deviation of single launches, and with how many degrees of freedom it is known."""

    deviation: float
    freedom: float

    def of_median(self, repeats: int) -> float:
        """Return the standard error of the median of normal repeats: sqrt(pi/2n), at most that of one."""
        return self.deviation * math.sqrt(min(1.0, math.pi / 2 / repeats))

    def widened(self, random: np.random.Generator, count: int) -> Values:
        """Return by what the deviation may be larger or smaller in each of so many draws."""
        values: Values = np.sqrt(self.freedom / random.chisquare(self.freedom, size=(count, 1)))
        return values


def pooled(groups: Iterable[Sequence[float]]) -> Scatter:
    """Return the scatter of values about the means of their groups, all groups together.

    Few values tell little, so five percent with three degrees of freedom is added to them (an inverse
    chi-squared prior; Gelman et al.: Bayesian Data Analysis, 3rd ed. 2013, section 2.6).
    """
    total, freedom = _WEIGHT * _EXPECTED**2, float(_WEIGHT)
    for group in groups:
        if len(group) > 1:
            mean = statistics.fmean(group)
            total += sum((value - mean) ** 2 for value in group)
            freedom += len(group) - 1
    return Scatter(math.sqrt(total / freedom), freedom)


def expected_maximum(counts: Iterable[float]) -> Values:
    """Return the expected largest of so many standard normal numbers, for each of the counts.

    The integral of 1 - F(x)^n above zero, less that of F(x)^n below it (David, Nagaraja: Order Statistics,
    3rd ed. 2003, section 3.1): 0 for one, 0.56 for two, 3.2 for 1024.
    """
    x, step = np.linspace(-_REACH, _REACH, 3601, retstep=True)
    below = normal(x)[None, :] ** np.array(list(counts), dtype=float)[:, None]
    # The trapezoidal rule: at zero the integrand jumps by 1, and half of that counts.
    values: Values = (np.where(x > 0, 1 - below, -below).sum(axis=1) + 0.5) * step
    return values
