"""When a suspect is slow. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hvlab.searches.slow.suspects import Suspect
from hvlab.searches.slow.trials import TrialOutcome
from hvlab.statistics import interval
from hvlab.statistics.interval import Interval

State = Literal["slow", "fine", "open"]


@dataclass(frozen=True)
class Judgement:
    """What the trials say of a suspect.

    ``slower`` is how many times as long it takes as its controls, with a 95 % interval; ``wins`` in how many
    of ``trials`` it was slower than all of them by the requested ratio; ``chance`` how likely that is if it
    is not that slow. ``rate`` and ``others`` are the medians of its own rates and of its controls', in the
    unit of :data:`hvlab.searches.slow.steps.Rates`.
    """

    suspect: Suspect
    state: State
    slower: Interval
    wins: int
    trials: int
    chance: float
    rate: float
    others: float


def judge(suspect: Suspect, outcomes: Sequence[TrialOutcome], *, ratio: float, level: float) -> Judgement:
    """Return whether a suspect takes ``ratio`` times as long as its controls, at a chance of ``level``.

    If it is slower than none of its controls by that ratio, and noise falls on all of them alike, it is the
    slowest of itself and m controls, its own time divided by the ratio, in one of m + 1 trials at most. The
    chance is that of as many such trials or more (binomial; exact for all noise that does so). It is fine
    when its median is below the ratio, else open.
    """
    margin = math.log(ratio)
    wins = sum(outcome.own - margin > max(outcome.controls) for outcome in outcomes)
    chance = _tail([1 / (len(outcome.controls) + 1) for outcome in outcomes], wins)
    slower = interval.median(
        [math.exp(outcome.own - statistics.median(outcome.controls)) for outcome in outcomes]
    )
    state: State = "slow" if chance <= level else "fine" if slower.mid < ratio else "open"
    return Judgement(
        suspect,
        state,
        slower,
        wins,
        len(outcomes),
        chance,
        rate=math.exp(-statistics.median(outcome.own for outcome in outcomes)),
        others=math.exp(-statistics.median(value for outcome in outcomes for value in outcome.controls)),
    )


def _tail(shares: Sequence[float], wins: int) -> float:
    """Return the chance of so many wins or more, if each is won with its own share."""
    chances = [1.0]
    for share in shares:
        lost = [chance * (1 - share) for chance in chances]
        won = [chance * share for chance in chances]
        chances = [one + other for one, other in zip([*lost, 0.0], [0.0, *won], strict=True)]
    return sum(chances[wins:])
