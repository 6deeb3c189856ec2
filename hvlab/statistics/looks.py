"""The looks at a run while it is measured, and the part of alpha that each may spend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """A look at a run after a number of repeats, and the part of alpha that it may spend."""

    repeats: int
    alpha: float


# Together 1 %. With six repeats a side can show .22 %, with five .79 %.
LOOKS = (Look(6, 0.003), Look(10, 0.003), Look(16, 0.004))
