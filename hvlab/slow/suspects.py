"""What the first launch points at. Pure.

A suspect is not slow yet: it is measured again, alone, by a launch that knows nothing of the first one.
So nothing here has to be strict, and what is missed here is missed for good.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hvlab.slow.steps import Cell, ProbeStep, Rates, slowness

# A host that computes slowly; what a host sends, or receives, is slow; one host to one other is slow.
Kind = Literal["host", "up", "down", "pair"]

MOST = 8
# Of the requested ratio's logarithm, and of the robust standard deviation of all.
_SHARE = 0.7
_DEVIATIONS = 3.0


@dataclass(frozen=True)
class Suspect:
    """What may be slow; of a host or an end, both places of ``cell`` are the host's.

    ``size`` is the logarithm of how many times as long it took as the others in the first launch.
    """

    kind: Kind
    cell: Cell
    size: float

    @property
    def host(self) -> int:
        """Return the host itself; of a pair, the sender."""
        return self.cell[0]

    def holds(self, cell: Cell) -> bool:
        """Return whether a transfer is affected by it."""
        sender, receiver = cell
        if self.kind == "pair":
            return cell == self.cell
        return sender != receiver and self.host == (sender if self.kind == "up" else receiver)


def relative(steps: Sequence[ProbeStep], readings: Sequence[Rates]) -> dict[Cell, list[float]]:
    """Return each cell's slowness over the median of its step, one value for each time it was measured.

    What a step does to all of them, such as load from outside, is so taken out.
    """
    values: dict[Cell, list[float]] = {}
    for rates in (rates for step, rates in zip(steps, readings, strict=True) if not step.transfers):
        slow = slowness(rates)
        middle = statistics.median(slow.values())
        for cell, value in slow.items():
            values.setdefault(cell, []).append(value - middle)
    return values


def relative_alone(readings: Sequence[Rates]) -> dict[Cell, list[float]]:
    """Return each link's slowness over the median of all, of a launch in which each was alone."""
    slow = {cell: value for rates in readings for cell, value in slowness(rates).items()}
    middle = statistics.median(slow.values())
    return {cell: [value - middle] for cell, value in slow.items()}


def suspects(values: Mapping[Cell, Sequence[float]], count: int, *, ratio: float) -> list[Suspect]:
    """Return what may take ``ratio`` times as long as the others or more: hosts and ends first, then pairs.

    Of one sort, the slowest is first.

    ``values`` is what :func:`relative` returns of ``count`` hosts. A link is as slow as the slowest of its
    sender, its receiver and itself: what an end explains is not the pair's.
    """
    least = _SHARE * math.log(ratio)
    hosts = range(count)
    mean = {cell: statistics.fmean(each) for cell, each in values.items()}
    computing = {(host, host): statistics.median(values[host, host]) for host in hosts}
    # The lower median: one slow pair among two must not make a slow end.
    up = {
        (host, host): statistics.median_low([mean[host, other] for other in hosts if other != host])
        for host in hosts
    }
    down = {
        (host, host): statistics.median_low([mean[other, host] for other in hosts if other != host])
        for host in hosts
    }
    pairs = {
        (one, other): min(values[one, other]) - max(0.0, up[one, one], down[other, other])
        for one in hosts
        for other in hosts
        if one != other
    }
    groups: Iterable[tuple[Kind, Mapping[Cell, float]]] = (
        ("host", computing),
        ("up", up),
        ("down", down),
        ("pair", pairs),
    )
    chosen = [
        Suspect(kind, cell, size)
        for kind, sizes in groups
        for cell, size in sizes.items()
        if size > max(least, _DEVIATIONS * _deviation(sizes.values()))
    ]
    return sorted(chosen, key=lambda suspect: (suspect.kind == "pair", -suspect.size))


def _deviation(values: Iterable[float]) -> float:
    """Return the robust standard deviation: 1.4826 times the median distance from the median."""
    listed = list(values)
    middle = statistics.median(listed)
    return 1.4826 * statistics.median(abs(value - middle) for value in listed)
