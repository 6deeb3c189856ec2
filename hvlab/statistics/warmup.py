"""Where the warm-up of a series ends: found from the series, not guessed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import accumulate

_SHORTEST = 10
_FENCE = 3.0
_USUAL = 0.9
_APART = 1.0
_APART_ALONE = 6.0
_SETTLED = 1 / 3
_COARSE = 1e-3


def length(series: Sequence[float]) -> int:
    """Return how many leading iterations are warm-up: 0 for short or flat series, at most half.

    MSER (White 1997): cut where the rest has the smallest standard error of its mean. To tolerate outliers,
    distances from the median are clipped at three robust standard deviations, and a single one between usual
    neighbours does not count. A cut needs evidence: most of what is cut lies beyond nine tenths of the rest,
    clearly apart from it, and the rest has settled. So a series that drifts to its end has no warm-up.
    """
    if len(series) < _SHORTEST or min(series) == max(series):
        return 0
    scores = _scores(series)
    smooth = [scores[0], *map(_middle, scores, scores[1:], scores[2:]), scores[-1]]
    errors = _errors([max(-_FENCE, min(_FENCE, score)) for score in smooth])
    cuts = [cut for side in (1, -1) for cut in _cuts([side * score for score in scores])]
    for cut in sorted(set(cuts), key=errors.__getitem__):
        if errors[cut] < errors[0] and _significant(scores, cut):
            return cut
    return 0


def _scores(series: Sequence[float]) -> list[float]:
    """Return the distances from the median of the second half, in its robust standard deviations."""
    half = series[len(series) // 2 :]
    centre = statistics.median(half)
    # Most values may be alike where the clock is coarse: below a thousandth no difference counts.
    spread = max(1.4826 * statistics.median(abs(value - centre) for value in half), _COARSE * abs(centre))
    return [(value - centre) / (spread or 1.0) for value in series]


def _middle(*three: float) -> float:
    return sorted(three)[1]


def _errors(scores: Sequence[float]) -> list[float]:
    """Return for each cut the squared standard error of the mean of what it leaves."""
    sums = list(accumulate(reversed(scores)))
    squares = list(accumulate(score * score for score in reversed(scores)))
    return [(squares[left - 1] - sums[left - 1] ** 2 / left) / left**2 for left in range(len(scores), 1, -1)]


def _cuts(scores: Sequence[float]) -> Iterator[int]:
    """Yield the cuts just behind an unusually high score, most of what is cut being such."""
    half = sorted(scores[len(scores) // 2 :])
    usual = half[int(_USUAL * (len(half) - 1))]
    high = 0
    for cut, score in enumerate(scores[: len(scores) // 2], start=1):
        high += score > usual
        if score > usual and 2 * high > cut:
            yield cut


def _significant(scores: Sequence[float], cut: int) -> bool:
    """Return whether what is cut is clearly apart from the rest, and the rest has settled."""
    lead, rest = scores[:cut], sorted(scores[cut:])
    middle = statistics.median(rest)
    spread = 1.4826 * statistics.median(abs(score - middle) for score in rest)
    excess = statistics.median(lead) - middle
    if abs(excess) <= max(_APART, _APART_ALONE / cut**0.5) * spread:
        return False
    size = len(rest)
    usual = rest[int(_USUAL * (size - 1))] if excess > 0 else rest[size - 1 - int(_USUAL * (size - 1))]
    if (excess > 0) != (statistics.median(lead) > usual):
        return False
    third = -(-size // 3)
    trend = statistics.median(scores[cut : cut + third]) - statistics.median(scores[-third:])
    return abs(trend) <= _SETTLED * abs(excess)
