"""Verdicts at several looks: repeats end where the question is answered, and looking often stays honest.

Looking after every repeat and stopping at the first significant difference is wrong far more often than
the level says. So there are a few looks, and each may spend its own part of alpha (Pocock 1977; the union
bound, whatever the looks have in common).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from hvlab.statistics import permutation
from hvlab.statistics.interval import Interval
from hvlab.statistics.looks import LOOKS, Look
from hvlab.statistics.verdict import ALPHA, MATTERS, Better, Pair, Verdict, compare_all

# What is left of a difference that lies within it is not worth more repeats.
NARROW = 0.05
_DECIDED = "decided after "


def compare_in_looks(
    pairs: Sequence[Pair], *, matters: float = MATTERS, looks: Sequence[Look] = LOOKS
) -> list[Verdict]:
    """Return the verdict on each pair of a run that was looked at while it was measured.

    At each look all pairs are one family (:func:`hvlab.statistics.verdict.compare_all`), with the repeats so
    far and the look's own part of alpha; so about the sum of these parts, 1 %, is the share of runs with a
    false verdict if nothing differs. The first "faster" or "slower" of a pair stays, beside the ratio of all
    repeats; its reason says so, and whether they still show it. Any other is replaced by that of a later
    look that has new repeats of both sides. The interval of a ratio is not adjusted for the number of looks.
    """
    verdicts: list[Verdict] = []
    before: Look | None = None
    for look in looks:
        verdicts = at_look(pairs, look, before=before, verdicts=verdicts, matters=matters)
        before = look
    return verdicts


def at_look(
    pairs: Sequence[Pair],
    look: Look,
    *,
    before: Look | None = None,
    verdicts: Sequence[Verdict] = (),
    matters: float = MATTERS,
) -> list[Verdict]:
    """Return the verdicts after one more look, given those of the look ``before``; see compare_in_looks."""
    fresh = [before is None or _has_fresh(pair, before, look) for pair in pairs]
    if not any(fresh):
        return list(verdicts)
    judged = compare_all([_until(pair, look) for pair in pairs], matters=matters, alpha=look.alpha)
    if before is None:
        return judged
    return [
        _keep(old, new, pair, before) if is_decided(old) else new if more else old
        for old, new, more, pair in zip(verdicts, judged, fresh, pairs, strict=True)
    ]


def is_decided(verdict: Verdict) -> bool:
    """Whether one side is faster."""
    return verdict.kind in ("faster", "slower")


def is_answered(verdict: Verdict) -> bool:
    """Whether more repeats are not worth their time: decided, the same, or within 5 % of that.

    Too few repeats answer nothing: a ratio without an interval is as narrow as can be.
    """
    ratio, open_ = verdict.ratio, verdict.kind == "unclear"
    return is_decided(verdict) or verdict.kind == "same" or (open_ and ratio is not None and is_narrow(ratio))


def is_narrow(ratio: Interval) -> bool:
    """Whether a ratio's interval lies within 5 % of 1."""
    return ratio.low >= 1 / (1 + NARROW) and ratio.high <= 1 + NARROW


def holds(verdict: Verdict, better: Better = "low") -> bool:
    """Whether the ratio still shows what was decided, perhaps at an earlier look."""
    ratio = verdict.ratio
    if ratio is None or not is_decided(verdict):
        return False
    return ratio.high < 1 if (verdict.kind == "faster") == (better == "low") else ratio.low > 1


def _keep(old: Verdict, new: Verdict, pair: Pair, before: Look) -> Verdict:
    """Keep an earlier decision, with the ratio of a later look if that has new repeats."""
    if new.ratio is None or max(*pair.a, *pair.b) <= before.repeats:
        return old
    counts = old.reason.removeprefix(_DECIDED).partition(",")[0]
    kept = dataclasses.replace(old, ratio=new.ratio, reason=f"{_DECIDED}{counts}")
    if holds(kept, pair.better):
        return kept
    return dataclasses.replace(kept, reason=f"{kept.reason}, but all repeats together do not show it")


def _until(pair: Pair, look: Look) -> Pair:
    a, b = ({number: side[number] for number in side if number <= look.repeats} for side in (pair.a, pair.b))
    return dataclasses.replace(pair, a=a, b=b)


def _has_fresh(pair: Pair, before: Look, look: Look) -> bool:
    """Whether both sides have repeats that the previous look lacked."""
    return all(any(before.repeats < number <= look.repeats for number in side) for side in (pair.a, pair.b))


POWER = 0.8
# Beyond that a number of repeats is no plan.
MOST = 200
_A_SPREAD = 2
_NORMAL = NormalDist()


def repeats_to_decide(
    pair: Pair, *, family: int = 1, matters: float = MATTERS, alpha: float = ALPHA
) -> int | None:
    """Return the number of repeats of each side that make a verdict likely; None if no number does.

    It assumes that the measured ratio of the medians and the measured spread are the true ones, so that the
    share POWER of such runs would hold the verdict: two-sided, at ``alpha`` over the number of
    comparisons ``family`` (the worst case of Holm's adjustment), by the normal approximation with the
    correction for few repeats (Guenther 1981). A measured ratio that is nearer to 1 than ``matters`` promises
    no "faster"; then it is how many would show that the two are the same. What was
    measured did not decide it, so it is always more than that.
    With few repeats the answer itself is rough: the spread of five is known to a factor of two.
    """
    sides = [np.log([value for value in side.values() if value > 0]) for side in (pair.a, pair.b)]
    if min(map(len, sides)) < _A_SPREAD:
        return None
    apart = abs(float(np.median(sides[0]) - np.median(sides[1])))
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    variance = squares / sum(len(side) - 1 for side in sides)
    room, power = math.log1p(matters), POWER
    if apart >= room:
        level, distance = alpha / family / 2, apart
        least = permutation.count_needed(alpha)
    else:
        # Both ends of a 95 % interval must lie within what matters.
        level, distance, least = 0.025, room - apart, _A_SPREAD
        power = (1 + power) / 2
    quantile = -_NORMAL.inv_cdf(level)
    if distance <= 0:
        return None
    reach = quantile + _NORMAL.inv_cdf(power)
    count = math.ceil(2 * variance * (reach / distance) ** 2 + quantile**2 / 4)
    least = max(least, 1 + min(len(pair.a), len(pair.b)))
    return max(least, count) if count <= MOST else None
