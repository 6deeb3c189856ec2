"""The steps of a launch, and their readings. Pure.

A cell is a sender and a receiver, by their place among the hosts. The cell of a host with itself stands for
its computing, that with DEVICES for copies to and from its devices.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Cell = tuple[int, int]
DEVICES = -1
# Readings of a step: bytes per second of each transfer or copy, or computed blocks per second of a host.
Rates = Mapping[Cell, float]

# One reading of three may be wrong.
SWEEPS = 3
SLICES = 4
# Bytes per second that stand for none at all, which has no logarithm.
STILL = 1.0


@dataclass(frozen=True)
class ProbeStep:
    """Simultaneous work: the given ``transfers``; without any, each host sends to the one ``shift`` on.

    With a shift of 0, each host computes, or ``copies``.
    """

    shift: int = 0
    transfers: tuple[Cell, ...] = ()
    copies: bool = False

    @property
    def moves(self) -> bool:
        """Whether the hosts send in this step."""
        return bool(self.shift or self.transfers)

    def cells(self, count: int) -> tuple[Cell, ...]:
        """Return the readings of this step on ``count`` hosts."""
        if self.copies:
            return tuple((host, DEVICES) for host in range(count))
        return self.transfers or tuple((host, (host + self.shift) % count) for host in range(count))

    def content(self) -> dict[str, Any]:
        """Return the step for the hosts' program, JSON-ready."""
        if self.copies:
            return {"copies": True}
        return {"transfers": self.transfers} if self.transfers else {"shift": self.shift}


def plan_all_hosts(count: int, draw: random.Random, *, copies: bool = False) -> list[ProbeStep]:
    """Return the steps of the first launch: every host takes part in each, and every link is measured.

    A shift is a group test of as many links as there are hosts, since each host sends to one other and
    receives from one other. All count - 1 shifts, in random order, hold every link once.
    """
    steps: list[ProbeStep] = []
    for _ in range(SWEEPS):
        sweep = [ProbeStep(shift) for shift in range(1, count)]
        draw.shuffle(sweep)
        steps += sweep
    for work in [ProbeStep()] * SLICES + [ProbeStep(copies=True)] * SLICES * copies:
        steps.insert(draw.randint(0, len(steps)), work)
    return steps


def plan_each_link(count: int, draw: random.Random) -> list[ProbeStep]:
    """Return a step for each link alone, in random order."""
    cells = [(one, other) for one in range(count) for other in range(count) if one != other]
    return [ProbeStep(transfers=(cell,)) for cell in draw.sample(cells, len(cells))]


def slowness(rate: float) -> float:
    """Return the logarithm of the time that the same amount takes."""
    return -math.log(max(rate, STILL))


def rounds(steps: Sequence[ProbeStep]) -> int:
    """Count the steps that move data."""
    return sum(step.moves for step in steps)
