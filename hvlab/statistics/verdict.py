"""Whether A is faster than B: said only where the difference is statistically significant."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hvlab.statistics import permutation, ratio, rounds, welch
from hvlab.statistics.interval import Interval

Kind = Literal["faster", "slower", "same", "unclear", "too_few", "differs"]
Better = Literal["low", "high"]
MATTERS = 0.02
ALPHA = 0.01
_LEAST = 3


@dataclass(frozen=True)
class Pair:
    """Two sides of one comparison: the figure of each successful repeat, by its number."""

    a: Mapping[int, float]
    b: Mapping[int, float]
    better: Better = "low"


@dataclass(frozen=True)
class Verdict:
    """How A stands to B. ``faster`` is better, be the figure a time, a throughput or an accuracy.

    ``same`` means equal within what matters, ``unclear`` not distinguishable, ``differs`` that the figures of
    two runs do, be it for their hour. ``ratio`` is A's median over
    B's with its 95 % interval, of figures without what their rounds did; None where a side has no figure
    above zero. ``reason`` is what the kind rests on. ``needed`` is how many repeats of each it takes where
    there are too few, else 0. ``chance`` is how often noise alone would show as much anywhere in the
    comparison.
    """

    kind: Kind
    ratio: Interval | None
    reason: str
    needed: int = 0
    chance: float | None = None


def compare_all(pairs: Sequence[Pair], *, matters: float = MATTERS, alpha: float = ALPHA) -> list[Verdict]:
    """Return the verdict on each pair; all pairs are one family of tests.

    Figures come from independent launches and are compared by their logarithms. Figures of one number on
    both sides are of one round; what a round does to all comparisons alike is taken out, from eight
    comparisons on (:func:`hvlab.statistics.rounds.shared`). ``faster`` and ``slower`` take all of these:

    - the chance by :func:`hvlab.statistics.permutation.chances` is at most ``alpha``: if nothing differs, at
      most that share of families holds any such verdict, for any noise that is alike on both sides;
    - so is the chance by :func:`hvlab.statistics.welch.chances` with Holm's adjustment, for noise that is
      not alike;
    - the interval of the ratio excludes 1, and the ratio differs from 1 by ``matters`` or more.

    ``same`` takes an interval within ``matters``.
    """
    untestable = [_untestable(pair, alpha) for pair in pairs]
    tested = _without_rounds([pair for pair, verdict in zip(pairs, untestable, strict=True) if not verdict])
    judged = iter(
        _verdict(pair, chance, matters=matters, alpha=alpha)
        for pair, chance in zip(tested, _chances(tested), strict=True)
    )
    return [verdict or next(judged) for verdict in untestable]


def _untestable(pair: Pair, alpha: float) -> Verdict | None:
    """Return the verdict on figures that cannot be tested; None where they can."""
    a, b = tuple(pair.a.values()), tuple(pair.b.values())
    needed = permutation.needed(alpha)
    if min(len(a), len(b)) < min(_LEAST, needed) or permutation.least_chance(len(a), len(b)) > alpha:
        reason = f"{_counts(pair)}, a verdict needs {needed}"
        return Verdict("too_few", ratio.medians(a, b), reason, needed)
    if min(*a, *b) <= 0:
        if len({*a, *b}) == 1:
            return Verdict("same", None, f"{_counts(pair)}, all equal")
        return Verdict("unclear", None, "figures of zero or below have no ratio")
    return None


def _counts(pair: Pair) -> str:
    a, b = len(pair.a), len(pair.b)
    return f"{a} and {b} repeats" if a != b else f"{a} repeats each" if a != 1 else "1 repeat each"


def _without_rounds(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs, each figure over what its round did to all of them."""
    if len(pairs) < rounds.ENOUGH:
        return list(pairs)
    numbers = sorted({number for pair in pairs for side in (pair.a, pair.b) for number in side})
    effects = rounds.shared(*(_table(side, numbers) for side in _sides(pairs)))
    usual = dict(zip(numbers, np.exp(effects).tolist(), strict=True))
    return [
        dataclasses.replace(
            pair,
            a={number: value / usual[number] for number, value in pair.a.items()},
            b={number: value / usual[number] for number, value in pair.b.items()},
        )
        for pair in pairs
    ]


def _chances(pairs: Sequence[Pair]) -> list[float]:
    """Return for each pair how often noise alone would show as much in any of them."""
    if not pairs:
        return []
    a, b = (_table(side, sorted({number for values in side for number in values})) for side in _sides(pairs))
    chances: list[float] = np.maximum(permutation.chances(a, b), welch.holm(welch.chances(a, b))).tolist()
    return chances


def _sides(pairs: Sequence[Pair]) -> tuple[list[Mapping[int, float]], list[Mapping[int, float]]]:
    return [pair.a for pair in pairs], [pair.b for pair in pairs]


def _table(side: Sequence[Mapping[int, float]], numbers: Sequence[int]) -> permutation.Floats:
    """Return the logarithms: a row for each number of a repeat, a column for each pair."""
    return np.log([[values.get(number, math.nan) for values in side] for number in numbers])


def _verdict(pair: Pair, chance: float, *, matters: float, alpha: float) -> Verdict:
    quotient = ratio.medians(tuple(pair.a.values()), tuple(pair.b.values()))
    if quotient is None:
        raise ValueError("figures of zero or below have no ratio")
    counts = _counts(pair)
    significant = chance <= alpha and not quotient.low <= 1 <= quotient.high
    if significant and abs(math.log(quotient.mid)) >= math.log1p(matters):
        better = (quotient.mid < 1) == (pair.better == "low")
        return Verdict("faster" if better else "slower", quotient, counts, chance=chance)
    if 1 / (1 + matters) <= quotient.low and quotient.high <= 1 + matters:
        return Verdict("same", quotient, f"{counts}: within {100 * matters:g} %", chance=chance)
    why = f"significant, but below {100 * matters:g} %" if significant else "not distinguishable from noise"
    return Verdict("unclear", quotient, f"{counts}: {why}", chance=chance)
