"""Trials: a suspect is measured beside controls, one transfer at a time in random order, and judged. Pure."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from hvlab.searches.slow.steps import Cell, ProbeStep, Rates, slowness
from hvlab.searches.slow.suspects import WORK, Kind, Suspect
from hvlab.statistics import interval
from hvlab.statistics.interval import Interval

TRIALS = 6
CONTROLS = 3
# Cells that work at the same time, and the step with their readings.
Cells = tuple[Cell, ...]
Place = tuple[int, Cells]
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One comparison of a suspect with controls within a launch."""

    suspect: Suspect
    own: Place
    controls: tuple[Place, ...]

    def outcome(self, readings: Sequence[Rates]) -> TrialOutcome:
        """Return the slowness of the suspect and of its controls."""
        own, *others = (
            slowness(sum(readings[step][cell] for cell in cells))
            for step, cells in (self.own, *self.controls)
        )
        return TrialOutcome(own, tuple(others))


@dataclass(frozen=True)
class TrialOutcome:
    """Logarithms of times for the same amount."""

    own: float
    controls: tuple[float, ...]


def plan(
    given: Sequence[Suspect], all_suspects: Sequence[Suspect], count: int, draw: random.Random
) -> tuple[list[ProbeStep], list[Trial]]:
    """Return the steps of a launch that tries each of the ``given`` suspects, and the trials in them.

    Nothing else moves during a transfer, so that a shared bottleneck (the uplink of a rack) makes no link
    slow. Computing is compared within one step, in which all hosts compute. Controls are cells that none of
    ``all_suspects``, which include the given ones, affects, if there are enough of them.
    """
    orders = [(suspect, number) for suspect in given for number in range(TRIALS)]
    draw.shuffle(orders)
    affected = Counter(cell for cell in _transfers(count) for suspect in all_suspects if suspect.holds(cell))
    steps: list[ProbeStep] = []
    trials: list[Trial] = []
    working: dict[tuple[Kind, int], int] = {}
    slow_hosts = {suspect.host for suspect in all_suspects if suspect.kind in WORK}
    for suspect, number in orders:
        if suspect.kind in WORK:
            if (suspect.kind, number) not in working:
                working[suspect.kind, number] = len(steps)
                steps.append(ProbeStep(copies=suspect.kind == "copy"))
            others = [host for host in range(count) if host != suspect.host]
            chosen = _few(others, [host for host in others if host not in slow_hosts], draw)
            step = working[suspect.kind, number]
            cells = steps[step].cells(count)
            controls = tuple((step, (cells[host],)) for host in chosen)
            trials.append(Trial(suspect, (step, (suspect.cell,)), controls))
            continue
        if suspect.members:
            transfers = _together(suspect, affected, count, draw)
        else:
            own = _cell(suspect, affected, count, draw)
            transfers = [(cell,) for cell in (own, *_controls(suspect, own, affected, count, draw))]
        order = draw.sample(range(len(transfers)), len(transfers))
        places = [(len(steps) + order.index(place), cells) for place, cells in enumerate(transfers)]
        steps += [ProbeStep(transfers=transfers[place]) for place in order]
        trials.append(Trial(suspect, places[0], tuple(places[1:])))
    return steps, trials


def outcomes(trials: Iterable[Trial], readings: Sequence[Rates]) -> Mapping[Suspect, list[TrialOutcome]]:
    """Return the outcomes of each suspect's trials."""
    by_suspect: dict[Suspect, list[TrialOutcome]] = {}
    for trial in trials:
        by_suspect.setdefault(trial.suspect, []).append(trial.outcome(readings))
    return by_suspect


def _cell(suspect: Suspect, affected: Mapping[Cell, int], count: int, draw: random.Random) -> Cell:
    """Return the transfer of the suspect that the fewest other suspects affect.

    ``affected`` counts the suspects that affect each transfer.
    """
    cells = [cell for cell in _transfers(count) if suspect.holds(cell)]
    fewest = min(affected[cell] for cell in cells)
    return draw.choice([cell for cell in cells if affected[cell] == fewest])


def _transfers(count: int) -> list[Cell]:
    return [(one, other) for one in range(count) for other in range(count) if one != other]


def _controls(
    suspect: Suspect, own: Cell, affected: Mapping[Cell, int], count: int, draw: random.Random
) -> list[Cell]:
    """Return other transfers, first those that share an end with the suspect's own."""
    sender, receiver = own
    cells = [cell for cell in _transfers(count) if not suspect.holds(cell)]
    clean = [cell for cell in cells if not affected[cell]]
    near = [cell for cell in clean if cell[0] == sender or cell[1] == receiver]
    chosen = draw.sample(near, min(CONTROLS, len(near)))
    return _few(cells, clean, draw, chosen)


def _together(suspect: Suspect, affected: Mapping[Cell, int], count: int, draw: random.Random) -> list[Cells]:
    """Return transfers over a shared uplink at once, and as many others at once for each control."""
    every = _transfers(count)
    own = [cell for cell in every if suspect.holds(cell)]
    clean = [cell for cell in every if not affected[cell]]
    sets = [_disjoint(own, draw), *(_disjoint(clean, draw) for _ in range(CONTROLS))]
    size = min(len(cells) for cells in sets)
    return [cells[:size] for cells in sets]


def _disjoint(cells: Sequence[Cell], draw: random.Random) -> Cells:
    """Choose transfers so that no host sends twice and none receives twice."""
    chosen: list[Cell] = []
    for cell in draw.sample(cells, len(cells)):
        if all(cell[0] != one and cell[1] != other for one, other in chosen):
            chosen.append(cell)
    return tuple(chosen)


def _few(
    every: Sequence[T], preferred: Sequence[T], draw: random.Random, chosen: Sequence[T] = ()
) -> list[T]:
    """Choose CONTROLS items, the chosen and the preferred ones first."""
    few = list(chosen)
    for group in (preferred, every):
        rest = [item for item in group if item not in few]
        few += draw.sample(rest, min(max(0, CONTROLS - len(few)), len(rest)))
    return few


State = Literal["slow", "fine", "open"]


@dataclass(frozen=True)
class Judgement:
    """The verdict of the trials on a suspect.

    ``slower`` is its time over that of its controls, with a 95 % interval; ``wins`` counts the ``trials`` in
    which it was slower than all of them by the requested ratio; ``chance`` is the probability of that if it
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
    """Judge whether a suspect takes ``ratio`` times as long as its controls, at the significance ``level``.

    Under the null hypothesis, with the same noise on the suspect and its m controls, its time divided by the
    ratio is the longest of the m + 1 in at most one of m + 1 trials. The chance is that of at least as many
    such trials (binomial; exact for any such noise). It is fine if its median is below the ratio, else open.
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
    """Return the probability of at least this many wins, if each has its own probability."""
    chances = [1.0]
    for share in shares:
        lost = [chance * (1 - share) for chance in chances]
        won = [chance * share for chance in chances]
        chances = [one + other for one, other in zip([*lost, 0.0], [0.0, *won], strict=True)]
    return sum(chances[wins:])
