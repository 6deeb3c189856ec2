"""What the first launches point at: suspects, and groups of hosts that are far from each other. Pure.

A suspect is not slow yet: it is measured again, alone, by a launch that knows nothing of the first one. So
nothing here has to be strict, and what is missed here is missed for good. A rack behind a narrow uplink is a
group: no host of it is slow, and no pair, but the way between.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hvlab.searches.slow.steps import DEVICES, Cell, ProbeStep, Rates, slowness

# A host that computes slowly, or copies slowly to and from its devices; what a host sends, or receives, is
# slow; one host to one other is slow; what leaves a group of hosts at once, or enters it, is slow.
Kind = Literal["host", "copy", "up", "down", "pair", "out", "in"]
# What a host does alone, beside others that do the same at the same time.
WORK: tuple[Kind, ...] = ("host", "copy")

MOST = 8
# Share of the requested ratio's logarithm, and multiple of the robust standard deviation of all.
SHARE = 0.7
_DEVIATIONS = 3.0
# Where links differ so much that one this many times as slow would not stand out, they are measured alone.
_HIDDEN = 2.0
# Share of an end's links that may be fast though the end is slow: a reading may be wrong.
_NEARLY_NONE = 0.1
# Steps in which two means settle.
_MEANS = 10


@dataclass(frozen=True)
class Suspect:
    """What may be slow; of a host or an end, both places of ``cell`` are the host's.

    ``size`` is the logarithm of how many times as long it took as the others in the first launch. ``members``
    are the hosts behind a shared uplink, ``cell`` then the first one.
    """

    kind: Kind
    cell: Cell
    size: float
    members: tuple[int, ...] = ()

    @property
    def host(self) -> int:
        """Return the host itself; of a pair, the sender."""
        return self.cell[0]

    def holds(self, cell: Cell) -> bool:
        """Return whether a transfer is affected by it, or may be: one that a slow host takes part in may."""
        sender, receiver = cell
        if self.kind == "pair":
            return cell == self.cell
        if self.members:
            near, far = (sender, receiver) if self.kind == "out" else (receiver, sender)
            return near in self.members and far not in self.members
        if self.kind in WORK:
            return self.host in cell
        return sender != receiver and self.host == (sender if self.kind == "up" else receiver)


def relative(steps: Sequence[ProbeStep], readings: Sequence[Rates]) -> dict[Cell, list[float]]:
    """Return each cell's slowness over the median of its step, one value for each time it was measured.

    What a step does to all of them, such as load from outside, is so taken out.
    """
    values: dict[Cell, list[float]] = {}
    for rates in (rates for step, rates in zip(steps, readings, strict=True) if not step.transfers):
        slow = {cell: slowness(rate) for cell, rate in rates.items()}
        middle = statistics.median(slow.values())
        for cell, value in slow.items():
            values.setdefault(cell, []).append(value - middle)
    return values


def relative_alone(readings: Sequence[Rates]) -> dict[Cell, list[float]]:
    """Return each link's slowness over the median of all, of a launch in which each was alone."""
    slow = {cell: slowness(rate) for rates in readings for cell, rate in rates.items()}
    middle = statistics.median(slow.values())
    return {cell: [value - middle] for cell, value in slow.items()}


def suspects(
    values: Mapping[Cell, Sequence[float]], count: int, *, ratio: float, between: Collection[Cell] = ()
) -> list[Suspect]:
    """Return all that may take at least ``ratio`` times as long as the others: hosts and ends, then pairs.

    Of one sort, the slowest is first. ``values`` is what :func:`relative` returns of ``count`` hosts. Links
    ``between`` groups that are far from each other are no suspects, and no measure of what differs by chance.
    """
    sized = sizes(values, count, ratio=ratio)
    sized["pair"] = {cell: size for cell, size in sized["pair"].items() if cell not in between}
    chosen = []
    for kind, cells in sized.items():
        least = max(SHARE * math.log(ratio), _DEVIATIONS * _deviation(cells.values())) if cells else math.inf
        chosen += [Suspect(kind, cell, size) for cell, size in cells.items() if size > least]
    return sorted(chosen, key=lambda suspect: (suspect.kind == "pair", -suspect.size))


def crowded(pairs: Mapping[Cell, float], *, ratio: float) -> int:
    """Return how many pairs are slow by the ratio, if links differ so much that none stands out; else 0."""
    if _DEVIATIONS * _deviation(pairs.values()) < math.log(_HIDDEN):
        return 0
    return sum(size > math.log(ratio) for size in pairs.values())


def sizes(
    values: Mapping[Cell, Sequence[float]], count: int, *, ratio: float
) -> dict[Kind, dict[Cell, float]]:
    """Return the slowdown of each host, end and pair, as a logarithm; see :func:`suspects`.

    A link is as slow as the slowest of its sender, its receiver and itself: what an end explains is not the
    pair's.
    """
    least = SHARE * math.log(ratio)
    hosts = range(count)
    mean = {cell: statistics.fmean(each) for cell, each in values.items()}
    computing = {(host, host): statistics.median(values[host, host]) for host in hosts}
    copying = {cell: statistics.median(each) for cell, each in values.items() if cell[1] == DEVICES}
    up = {
        (host, host): _end([mean[host, other] for other in hosts if other != host], least) for host in hosts
    }
    down = {
        (host, host): _end([mean[other, host] for other in hosts if other != host], least) for host in hosts
    }
    pairs = {
        (one, other): min(values[one, other]) - max(0.0, up[one, one], down[other, other])
        for one in hosts
        for other in hosts
        if one != other
    }
    return {"host": computing, "copy": copying, "up": up, "down": down, "pair": pairs}


def _end(links: Sequence[float], least: float) -> float:
    """Return the slowdown of an end, given those of its links.

    That is the lower median, for one slow pair among two must not make a slow end. But an end is slow to
    nearly all others: where some links are not half as slow, these count. A host behind the narrow uplink of
    a rack is slow to most hosts, and fast to its neighbours.
    """
    ordered = sorted(links)
    middle, low = statistics.median_low(ordered), ordered[int(_NEARLY_NONE * (len(ordered) - 1))]
    return low if middle > least and low < middle / 2 else middle


def _deviation(values: Iterable[float]) -> float:
    """Return the robust standard deviation: 1.4826 times the median distance from the median."""
    listed = list(values)
    middle = statistics.median(listed)
    return 1.4826 * statistics.median(abs(value - middle) for value in listed)


Groups = tuple[tuple[int, ...], ...]


def far_groups(pairs: Mapping[Cell, float], count: int, *, least: float) -> Groups:
    """Return the groups of ``count`` hosts, largest first; none unless two hold several hosts each.

    ``pairs`` is how slow each link is, a logarithm. The two groups with the least median between them are put
    together, until that is above ``least`` (hierarchical clustering; by the median, neither outliers nor a
    host that is near to all join two groups).
    """
    groups: list[tuple[int, ...]] = [(host,) for host in range(count)]
    while len(groups) > 1:
        distances = {
            (one, other): statistics.median(pairs[cell] for cell in _between(one, other))
            for one, other in itertools.combinations(groups, 2)
        }
        nearest = min(distances, key=lambda both: distances[both])
        if distances[nearest] > least:
            break
        groups = [group for group in groups if group not in nearest] + [tuple(sorted(sum(nearest, ())))]
    several = sum(len(group) > 1 for group in groups)
    return tuple(sorted(groups, key=lambda group: (-len(group), group))) if several > 1 else ()


def crossing(groups: Groups) -> list[Cell]:
    """Return all links from one group to another."""
    return [cell for one, other in itertools.combinations(groups, 2) for cell in _between(one, other)]


def _between(one: Sequence[int], other: Sequence[int]) -> list[Cell]:
    pairs = list(itertools.product(one, other))
    return pairs + [(there, here) for here, there in pairs]


def sharing_groups(slow: Mapping[Cell, float], count: int, *, ratio: float) -> Groups:
    """Return the groups of hosts whose links to all others are slow while all hosts send at once.

    ``slow`` is the slowness of each link then, of links that are not slow alone.
    """
    # An uplink may be narrow in one direction only.
    either = {(one, other): max(value, slow[other, one]) for (one, other), value in slow.items()}
    low, high = min(either.values()), max(either.values())
    for _ in range(_MEANS):
        cut = (low + high) / 2
        low = statistics.fmean(value for value in either.values() if value <= cut)
        high = statistics.fmean(value for value in either.values() if value >= cut)
    if high - low < math.log(ratio):
        return ()
    groups = far_groups(either, count, least=cut)
    # Links between neighbouring places are slow in few rounds only, and may join the wrong ones first.
    for _ in range(_MEANS if groups else 0):
        nearest = [min(groups, key=lambda group: _mean_to(host, group, either, cut)) for host in range(count)]
        again = [tuple(host for host in range(count) if nearest[host] == group) for group in groups]
        groups = tuple(sorted(group for group in again if group))
    return groups


def _mean_to(host: int, group: Sequence[int], pairs: Mapping[Cell, float], alone: float) -> float:
    others = [pairs[host, each] for each in group if each != host]
    return statistics.fmean(others) if others else alone


def uplinks(slow: Mapping[Cell, float], groups: Groups, count: int, *, ratio: float) -> list[Suspect]:
    """Return the groups' shared uplinks that are slow, by direction, unless half of the hosts have one.

    Between two groups the uplink of the smaller one stands for both.
    """
    found: list[Suspect] = []
    between = set(crossing(groups))
    usual = statistics.median(value for cell, value in slow.items() if cell not in between)
    ways: tuple[Kind, Kind] = ("out", "in")
    chosen = groups if len(groups) != 2 else (min(groups, key=len),)  # noqa: PLR2004
    for kind in ways:
        own = []
        for group in chosen:
            probe = Suspect(kind, (group[0], group[0]), 0.0, group)
            size = statistics.median(value for cell, value in slow.items() if probe.holds(cell)) - usual
            if size > SHARE * math.log(ratio) and 2 * len(group) <= count:
                own.append(replace(probe, size=size))
        if 2 * sum(len(each.members) for each in own) <= count:
            found += own
    return found
