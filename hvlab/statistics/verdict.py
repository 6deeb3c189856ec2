"""Whether A is faster than B: said only where the repeats carry it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hvlab.statistics import permutation, ratio, welch
from hvlab.statistics.interval import Interval

Kind = Literal["faster", "slower", "same", "unclear", "too_few"]
Better = Literal["low", "high"]
MATTERS = 0.02
ALARMS = 0.01
_LEAST = 3


@dataclass(frozen=True)
class Pair:
    """What two sides measured of one thing: the figure of each repeat that went well, by its number."""

    a: Mapping[int, float]
    b: Mapping[int, float]
    better: Better = "low"


@dataclass(frozen=True)
class Verdict:
    """How A stands to B. ``faster`` is better, be the figure a time, a throughput or an accuracy.

    ``ratio`` is A's median over B's with its 95 % interval, None where a side has no figure above zero; in
    words it is :func:`hvlab.statistics.ratio.words`. ``reason`` is what the kind rests on, such as
    ``5 runs each: not told from noise``. ``needed`` is how many repeats of each would do where there are too
    few, else 0. ``chance`` is how often noise alone would show as much anywhere in the comparison.
    """

    kind: Kind
    ratio: Interval | None
    reason: str
    needed: int = 0
    chance: float | None = None


def compare(
    a: Sequence[float],
    b: Sequence[float],
    *,
    better: Better = "low",
    matters: float = MATTERS,
    alarms: float = ALARMS,
) -> Verdict:
    """Return the verdict on one thing alone, from one figure a repeat: see :func:`compare_all`."""
    pair = Pair(dict(enumerate(a)), dict(enumerate(b)), better)
    return compare_all([pair], matters=matters, alarms=alarms)[0]


def compare_all(pairs: Sequence[Pair], *, matters: float = MATTERS, alarms: float = ALARMS) -> list[Verdict]:
    """Return the verdict on each pair, all pairs being one comparison.

    Figures are those of independent launches, compared by their logarithms. ``faster`` and ``slower`` are
    said where all of these hold:

    - the chance of :func:`hvlab.statistics.permutation.chances` is at most ``alarms``. If nothing differs,
      at most that share of comparisons holds any such word, whatever the noise, if it is alike on both
      sides;
    - so is that of Welch's test, adjusted by Holm, for noise that is not;
    - the interval of the ratio leaves out 1, and the ratio differs from it by ``matters`` or more.

    ``same`` is said where the interval lies within ``matters``.
    """
    told = [_untold(pair, alarms) for pair in pairs]
    chances = iter(_chances([pair for pair, known in zip(pairs, told, strict=True) if not known], matters))
    return [
        known or _verdict(pair, next(chances), matters=matters, alarms=alarms)
        for pair, known in zip(pairs, told, strict=True)
    ]


def _untold(pair: Pair, alarms: float) -> Verdict | None:
    """Return the verdict where the figures cannot be tested; None where they can."""
    a, b = tuple(pair.a.values()), tuple(pair.b.values())
    needed = permutation.needed(alarms)
    if min(len(a), len(b)) < min(_LEAST, needed) or permutation.least_chance(len(a), len(b)) > alarms:
        reason = f"{_runs(pair)}: repeat {needed} times for a verdict"
        return Verdict("too_few", ratio.medians(a, b), reason, needed)
    if min(*a, *b) <= 0:
        if len({*a, *b}) == 1:
            return Verdict("same", None, f"{_runs(pair)}, all alike")
        return Verdict("unclear", None, "figures of zero or below have no ratio")
    return None


def _runs(pair: Pair) -> str:
    a, b = len(pair.a), len(pair.b)
    return f"{a} and {b} runs" if a != b else f"{a} runs each" if a != 1 else "1 run each"


def _chances(pairs: Sequence[Pair], matters: float) -> list[float]:
    """Return for each pair the chance that noise shows as much in any of them."""
    if not pairs:
        return []
    a, b = _table([pair.a for pair in pairs]), _table([pair.b for pair in pairs])
    swapped = permutation.chances(a, b, floor=math.log1p(matters) / 2)
    apart = welch.holm([welch.chance(_logs(pair.a), _logs(pair.b)) for pair in pairs])
    return [max(float(one), other) for one, other in zip(swapped, apart, strict=True)]


def _logs(values: Mapping[int, float]) -> list[float]:
    return [math.log(value) for value in values.values()]


def _table(side: Sequence[Mapping[int, float]]) -> permutation.Floats:
    """Return the logarithms: a row for each repeat that any pair has, a column for each pair."""
    repeats = sorted({repeat for values in side for repeat in values})
    return np.log([[values.get(repeat, math.nan) for values in side] for repeat in repeats])


def _verdict(pair: Pair, chance: float, *, matters: float, alarms: float) -> Verdict:
    found = ratio.medians(tuple(pair.a.values()), tuple(pair.b.values()))
    if found is None:
        raise ValueError("figures of zero or below have no ratio")
    told = _runs(pair)
    carried = chance <= alarms and not found.low <= 1 <= found.high
    if carried and abs(math.log(found.mid)) >= math.log1p(matters):
        better = (found.mid < 1) == (pair.better == "low")
        return Verdict("faster" if better else "slower", found, told, chance=chance)
    matter = f"the {100 * matters:g} % that matter"
    if 1 / (1 + matters) <= found.low and found.high <= 1 + matters:
        return Verdict("same", found, f"{told}: within {matter}", chance=chance)
    why = f"less than {matter}" if carried else "not told from noise"
    return Verdict("unclear", found, f"{told}: {why}", chance=chance)
