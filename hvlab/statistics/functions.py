"""Special functions that numpy lacks. scipy has them, and is larger than all else that a report needs."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Bernoulli's numbers of even index from 2 on.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
# From here on their series is exact to a double's last digits.
_FAR = 10
_STEPS, _EXACT = 100_000, 1e-14

_log_gamma = np.vectorize(math.lgamma, otypes=[float])


def polygamma(order: int, x: ArrayLike) -> Floats:
    """Return the digamma function (0) of numbers above zero, or its derivative of this order.

    By recurrence and asymptotic series (Abramowitz, Stegun: 6.4.6, 6.4.11).
    """
    near = np.asarray(x, dtype=float)
    far = 1 / (near + _FAR)
    total = math.factorial(order - 1) * far**order if order else np.log(far)
    total = total + math.factorial(order) * far ** (order + 1) / 2
    for index, number in enumerate(_BERNOULLI, start=1):
        factor = math.factorial(2 * index + order - 1) / math.factorial(2 * index)
        total = total + number * factor * far ** (2 * index + order)
    total = total + math.factorial(order) * sum((near + step) ** -(order + 1) for step in range(_FAR))
    values: Floats = (-1) ** (order + 1) * total
    return values


def student_tail(freedom: ArrayLike, t: ArrayLike) -> Floats:
    """Return the chance that Student's t lies beyond these numbers of 0 and above.

    Half the incomplete beta function I(v/2, 1/2) of v/(v + t^2) (Abramowitz, Stegun: 26.7.1, 26.5.8).
    """
    v, square = np.broadcast_arrays(np.asarray(freedom, dtype=float), np.square(np.asarray(t, dtype=float)))
    a, x, rest = v / 2, v / (v + square), square / (v + square)
    with np.errstate(divide="ignore"):
        logs = a * -np.log1p(square / v) + np.log(rest) / 2
    part = np.exp(_log_gamma(a + 0.5) - _log_gamma(a) - _log_gamma(0.5) + logs)
    # Each side of this converges fast where the other is slow.
    outer = x < (a + 1) / (a + 2.5)
    first, second = np.where(outer, a, 0.5), np.where(outer, 0.5, a)
    share = part / first * _fraction(first, second, np.where(outer, x, rest))
    chance: Floats = np.where(outer, share, 1 - share) / 2
    return chance


def _fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    above, below = np.ones_like(x), 1 / (1 - (a + b) * x / (a + 1))
    total = below
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = total
        for step in (even, odd):
            below, above = 1 / (1 + step * below), 1 + step / above
            total = total * above * below
        if np.all(np.abs(total - before) <= _EXACT * np.abs(total)):
            break
    return total


@cache
def student_quantile(freedom: float, share: float) -> float:
    """Return below which number Student's t lies with this chance, which is above one half.

    Newton's method, from the normal quantile: it is smaller, and the function is concave.
    """
    log = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    t = NormalDist().inv_cdf(share)
    for _ in range(_STEPS):
        density = math.exp(log - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (float(student_tail(freedom, t)) - (1 - share)) / density
        t += step
        if abs(step) <= 1e-12 * t:
            break
    return t


@np.vectorize
def normal(x: float) -> float:
    """Return the chance that a standard normal number lies below."""
    return math.erfc(-x / math.sqrt(2)) / 2
