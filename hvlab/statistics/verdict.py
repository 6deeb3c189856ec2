"""Whether A is faster than B: said only where the difference is statistically significant."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hvlab.statistics import interval, permutation, welch
from hvlab.statistics.interval import Interval

Kind = Literal["faster", "slower", "same", "unclear", "too_few", "differs"]
Better = Literal["low", "high"]
MATTERS = 0.02
ALPHA = 0.01
_LEAST = 3


@dataclass(frozen=True)
class Pair:
    """Two sides of one comparison: the figure of each successful repeat, by its number.

    ``launches`` names the launches of A and of B, one a repeat: all sizes of a case come from the
    same launches and share their noise. Without, a pair has launches of its own.
    """

    a: Mapping[int, float]
    b: Mapping[int, float]
    better: Better = "low"
    launches: tuple[Hashable, Hashable] | None = None


@dataclass(frozen=True)
class Verdict:
    """How A stands to B. ``faster`` is better, be the figure a time, a throughput or an accuracy.

    ``same`` means equal within what matters, ``unclear`` not distinguishable, ``differs`` that the figures of
    two runs do, perhaps only because of the time of measurement. ``ratio`` is A's median over B's with its
    95 % interval, of figures without the effect of their rounds; None if a side has no figure above zero.
    ``reason`` is the basis of the kind. ``needed`` is the number of repeats of each that a verdict takes if
    they are too few, else 0. ``chance``: of as much anywhere in the comparison by noise alone.
    """

    kind: Kind
    ratio: Interval | None
    reason: str
    needed: int = 0
    chance: float | None = None


def compare_all(pairs: Sequence[Pair], *, matters: float = MATTERS, alpha: float = ALPHA) -> list[Verdict]:
    """Return the verdict on each pair; all pairs are one family of tests.

    Repeats are independent of each other, and are compared by their logarithms. Figures of one number on
    both sides are of one round; its effect on all launches alike is taken out, where it has 16 or more
    (:func:`hvlab.statistics.welch.shared`). ``faster`` and ``slower`` take all of these:

    - the chance by :func:`hvlab.statistics.permutation.chances` is at most ``alpha``: if nothing differs, at
      most that share of families holds any such verdict, for noise that is alike on both sides. Where what
      rounds share was taken out, that holds nearly: the noise of the round's value is left in both sides;
    - so is the chance by :func:`hvlab.statistics.welch.chances` with Holm's adjustment, for noise that is
      not alike. With very unlike spreads up to 1.5 % of simulated families held a false verdict;
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
    """Return the verdict on figures that cannot be tested; None if they can."""
    a, b = tuple(pair.a.values()), tuple(pair.b.values())
    needed = permutation.count_needed(alpha)
    if min(len(a), len(b)) < min(_LEAST, needed) or permutation.least_chance(len(a), len(b)) > alpha:
        reason = f"{_counts(pair)}, a verdict needs {needed}"
        return Verdict("too_few", interval.medians(a, b), reason, needed)
    if min(*a, *b) <= 0:
        if len({*a, *b}) == 1:
            return Verdict("same", None, f"{_counts(pair)}, all equal")
        return Verdict("unclear", None, "figures of zero or below have no ratio")
    return None


def _counts(pair: Pair) -> str:
    a, b = len(pair.a), len(pair.b)
    return f"{a} and {b} repeats" if a != b else f"{a} repeats each" if a != 1 else "1 repeat each"


def _without_rounds(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs, each figure divided by the effect of its round on all of them."""
    if not pairs:
        return []
    numbers = sorted({number for pair in pairs for side in (pair.a, pair.b) for number in side})
    a, b = (_table(side, numbers) for side in _sides(pairs))
    effects = welch.round_effects(a, b, _launches(pairs))
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
    """Return the chance, for each pair, of as large a difference in any of them by noise alone."""
    if not pairs:
        return []
    a, b = (_table(side, sorted({number for values in side for number in values})) for side in _sides(pairs))
    guard = welch.holm(welch.chances(a, b, _launches(pairs)))
    chances: list[float] = np.maximum(permutation.chances(a, b), guard).tolist()
    return chances


def _launches(pairs: Sequence[Pair]) -> NDArray[np.int_]:
    """Return the number of each launch: a row for each side, a column for each pair."""
    names = [pair.launches or (object(), object()) for pair in pairs]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(itertools.chain(*names)))}
    return np.array([[numbers[name] for name in sides] for sides in zip(*names, strict=True)])


def _sides(pairs: Sequence[Pair]) -> tuple[list[Mapping[int, float]], list[Mapping[int, float]]]:
    return [pair.a for pair in pairs], [pair.b for pair in pairs]


def _table(side: Sequence[Mapping[int, float]], numbers: Sequence[int]) -> permutation.Floats:
    """Return the logarithms: a row for each number of a repeat, a column for each pair."""
    return np.log([[values.get(number, math.nan) for values in side] for number in numbers])


def _verdict(pair: Pair, chance: float, *, matters: float, alpha: float) -> Verdict:
    quotient = interval.medians(tuple(pair.a.values()), tuple(pair.b.values()))
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


PERHAPS = "perhaps only because of the time of measurement"


def compare_two_runs(
    pairs: Sequence[Pair], *, matters: float = MATTERS, alpha: float = ALPHA
) -> list[Verdict]:
    """Return the verdict on each pair of which A and B were measured at different times.

    The repeats of a run share its conditions, which repeats cannot show. So nothing is "faster" or "slower",
    but "differs", and what is "same" may be so by those conditions. Two runs have no round in common.
    """
    apart = [
        dataclasses.replace(pair, b={~repeat: value for repeat, value in pair.b.items()}) for pair in pairs
    ]
    return [_weaken(judged) for judged in compare_all(apart, matters=matters, alpha=alpha)]


def _weaken(judged: Verdict) -> Verdict:
    if judged.kind not in ("faster", "slower", "same"):
        return judged
    kind: Kind = "same" if judged.kind == "same" else "differs"
    return dataclasses.replace(judged, kind=kind, reason=f"{judged.reason}; {PERHAPS}")
