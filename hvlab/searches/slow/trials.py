"""How a suspect is measured beside others: one transfer at a time, in random order. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hvlab.searches.slow.steps import Cell, ProbeStep, Rates, slowness
from hvlab.searches.slow.suspects import Suspect

TRIALS = 6
CONTROLS = 3
# A cell, and the step that it is read of.
Place = tuple[int, Cell]
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One comparison of a suspect with controls, all read of one launch."""

    suspect: Suspect
    own: Place
    controls: tuple[Place, ...]

    def outcome(self, readings: Sequence[Rates]) -> TrialOutcome:
        """Return the slowness of the suspect and of its controls."""
        own, *others = (slowness(readings[step])[cell] for step, cell in (self.own, *self.controls))
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

    Nothing else moves during a transfer, so what several links share (an uplink of a rack) makes none of
    them slow. Computing is compared within one step, in which all hosts compute. Controls come from what none
    of ``all_suspects``, the given ones among them, affects, where there is enough of that.
    """
    orders = [(suspect, number) for suspect in given for number in range(TRIALS)]
    draw.shuffle(orders)
    affected = Counter(cell for cell in _transfers(count) for suspect in all_suspects if suspect.holds(cell))
    steps: list[ProbeStep] = []
    trials: list[Trial] = []
    computing: dict[int, int] = {}
    slow_hosts = {suspect.host for suspect in all_suspects if suspect.kind == "host"}
    for suspect, number in orders:
        if suspect.kind == "host":
            if number not in computing:
                computing[number] = len(steps)
                steps.append(ProbeStep())
            others = [host for host in range(count) if host != suspect.host]
            chosen = _few(others, [host for host in others if host not in slow_hosts], draw)
            step = computing[number]
            controls = tuple((step, (host, host)) for host in chosen)
            trials.append(Trial(suspect, (step, suspect.cell), controls))
            continue
        own = _cell(suspect, affected, count, draw)
        transfers = [own, *_controls(suspect, own, affected, count, draw)]
        order = draw.sample(transfers, len(transfers))
        places = {cell: (len(steps) + order.index(cell), cell) for cell in transfers}
        steps += [ProbeStep(transfers=(cell,)) for cell in order]
        trials.append(Trial(suspect, places[own], tuple(places[cell] for cell in transfers[1:])))
    return steps, trials


def outcomes(trials: Iterable[Trial], readings: Sequence[Rates]) -> Mapping[Suspect, list[TrialOutcome]]:
    """Return the outcomes of each suspect's trials."""
    by_suspect: dict[Suspect, list[TrialOutcome]] = {}
    for trial in trials:
        by_suspect.setdefault(trial.suspect, []).append(trial.outcome(readings))
    return by_suspect


def _cell(suspect: Suspect, affected: Mapping[Cell, int], count: int, draw: random.Random) -> Cell:
    """Return a transfer of the suspect, one that the fewest other suspects affect.

    ``affected`` is how many suspects affect each transfer.
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


def _few(
    every: Sequence[T], preferred: Sequence[T], draw: random.Random, chosen: Sequence[T] = ()
) -> list[T]:
    """Return as many as there are controls, the chosen and the preferred ones first."""
    few = list(chosen)
    for group in (preferred, every):
        rest = [item for item in group if item not in few]
        few += draw.sample(rest, min(max(0, CONTROLS - len(few)), len(rest)))
    return few
