"""Suspects after the first launches, and groups of hosts that are far from each other. Pure.

A suspect is measured again, alone and independently, before it is called slow. So nothing here has to be
strict, but whatever is missed here is missed for good. A rack behind a narrow uplink is a group: none of its
hosts or pairs is slow, only the uplink.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hvlab.searches.slow.steps import DEVICES, Cell, ProbeStep, Rates, slowness

# A host computes slowly, or copies slowly to and from its devices; it sends slowly, or receives slowly; one
# link is slow; a group of hosts sends slowly at once, or receives slowly.
Kind = Literal["host", "copy", "up", "down", "pair", "out", "in"]
# Work without a network; all hosts do it at the same time.
WORK: tuple[Kind, ...] = ("host", "copy")

MOST = 8
# Share of the logarithm of the requested ratio, and multiple of the robust standard deviation.
SHARE = 0.7
_DEVIATIONS = 3.0
# If even a link this many times as slow would not stand out, links are measured alone.
_HIDDEN = 2.0
# Share of a slow end's links that may seem fast: a reading may be wrong.
_NEARLY_NONE = 0.1
# Steps in which two means settle.
_MEANS = 10


@dataclass(frozen=True)
class Suspect:
    """A host, end, pair or uplink that may be slow; for a host or an end, ``cell`` holds the host twice.

    ``size`` is the logarithm of its time over the others' in the first launch. ``members`` are the hosts
    behind a shared uplink, and ``cell`` is the first one.
    """

    kind: Kind
    cell: Cell
    size: float
    members: tuple[int, ...] = ()

    @property
    def host(self) -> int:
        """The host itself; for a pair, the sender."""
        return self.cell[0]

    def holds(self, cell: Cell) -> bool:
        """Whether it may affect a transfer; a slow host may affect all that it takes part in."""
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

    This removes effects on a whole step, such as load from outside.
    """
    values: dict[Cell, list[float]] = {}
    for rates in (rates for step, rates in zip(steps, readings, strict=True) if not step.transfers):
        slow = {cell: slowness(rate) for cell, rate in rates.items()}
        middle = statistics.median(slow.values())
        for cell, value in slow.items():
            values.setdefault(cell, []).append(value - middle)
    return values


def relative_alone(readings: Sequence[Rates]) -> dict[Cell, list[float]]:
    """Return each link's slowness over the median of all, from a launch in which each was alone."""
    slow = {cell: slowness(rate) for rates in readings for cell, rate in rates.items()}
    middle = statistics.median(slow.values())
    return {cell: [value - middle] for cell, value in slow.items()}


def suspects(
    values: Mapping[Cell, Sequence[float]], count: int, *, ratio: float, between: Collection[Cell] = ()
) -> list[Suspect]:
    """Return all that may take at least ``ratio`` times as long as the others: hosts and ends, then pairs.

    The slowest come first. ``values`` are those of :func:`relative` for ``count`` hosts. Links ``between``
    groups that are far from each other are no suspects, and do not count in the deviation.
    """
    sized = sizes(values, count, ratio=ratio)
    sized["pair"] = {cell: size for cell, size in sized["pair"].items() if cell not in between}
    chosen = []
    for kind, cells in sized.items():
        least = max(SHARE * math.log(ratio), _DEVIATIONS * _deviation(cells.values())) if cells else math.inf
        chosen += [Suspect(kind, cell, size) for cell, size in cells.items() if size > least]
    return sorted(chosen, key=lambda suspect: (suspect.kind == "pair", -suspect.size))


def count_crowded(pairs: Mapping[Cell, float], *, ratio: float) -> int:
    """Count the pairs that are slow by the ratio, if links vary so much that none stands out; else 0."""
    if _DEVIATIONS * _deviation(pairs.values()) < math.log(_HIDDEN):
        return 0
    return sum(size > math.log(ratio) for size in pairs.values())


def sizes(
    values: Mapping[Cell, Sequence[float]], count: int, *, ratio: float
) -> dict[Kind, dict[Cell, float]]:
    """Return the slowdown of each host, end and pair, as a logarithm; see :func:`suspects`.

    A link is as slow as the slowest of its sender, its receiver and itself: a slow end clears its pairs.
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
        (one, other): statistics.median_low(values[one, other]) - max(0.0, up[one, one], down[other, other])
        for one in hosts
        for other in hosts
        if one != other
    }
    return {"host": computing, "copy": copying, "up": up, "down": down, "pair": pairs}


def _end(links: Sequence[float], least: float) -> float:
    """Return the slowdown of an end, given those of its links.

    It is the lower median: one slow pair of two must not make a slow end. But a slow end is slow to nearly
    all hosts: if some links are not even half as slow, these count instead. A host behind a rack's narrow
    uplink is slow to most hosts, and fast to its neighbours.
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

    ``pairs`` is the slowdown of each link, a logarithm. The two groups with the least median between them are
    merged, until that exceeds ``least`` (hierarchical clustering; by the median, neither outliers nor a host
    that is near to all join two groups).
    """
    groups: list[tuple[int, ...]] = [(host,) for host in range(count)]
    while len(groups) > 1:
        distances = {
            (one, other): statistics.median(pairs[cell] for cell in _pair_both_ways(one, other))
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
    return [cell for one, other in itertools.combinations(groups, 2) for cell in _pair_both_ways(one, other)]


def _pair_both_ways(one: Sequence[int], other: Sequence[int]) -> list[Cell]:
    pairs = list(itertools.product(one, other))
    return pairs + [(there, here) for here, there in pairs]


def sharing_groups(slow: Mapping[Cell, float], count: int, *, ratio: float) -> Groups:
    """Return the groups of hosts whose links to all others are slow while all hosts send at once.

    ``slow`` is the slowness of each link at that time; alone they are not slow.
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


def uplinks(slow: Mapping[Cell, float], count: int, *, ratio: float) -> list[Suspect]:
    """Return the groups whose shared uplink is slow, by direction, unless half of the hosts are behind such.

    ``slow`` is the slowness of each link while all hosts send at once. The group that explains most is taken
    out, then the next. One of a single host is a slow end; one with another inside is several racks.
    """
    found: list[Suspect] = []
    left = dict(slow)
    while len(found) < count and (group := _narrowest(left, range(count), ratio)):
        found.append(group)
        left = {cell: value - group.size * group.holds(cell) for cell, value in left.items()}
    behind = {kind: sum(len(each.members) for each in found if each.kind == kind) for kind in ("out", "in")}
    return [each for each in found if 2 * behind[each.kind] <= count and _is_one(each, slow, ratio)]


def _is_one(group: Suspect, slow: Mapping[Cell, float], ratio: float) -> bool:
    """Whether hosts share one uplink: links between them are usual, and no part of them is narrower still."""
    inside = {cell: value for cell, value in slow.items() if set(cell) <= set(group.members)}
    if not inside:
        return False
    usual = statistics.median(value for cell, value in slow.items() if not group.holds(cell))
    part = _narrowest(inside, group.members, ratio)
    several = part is not None and len(part.members) > 1 and part.size > group.size
    return statistics.median(inside.values()) - usual < group.size / 2 and not several


def _narrowest(slow: Mapping[Cell, float], hosts: Sequence[int], ratio: float) -> Suspect | None:
    """Return the group whose leaving or arriving links differ most from all others, if not by chance."""
    ways: tuple[Kind, Kind] = ("out", "in")
    explained, group = max((_climb(slow, kind, hosts) for kind in ways), key=lambda each: each[0])
    held = {cell: value for cell, value in slow.items() if group.holds(cell)}
    others = [value for cell, value in slow.items() if cell not in held]
    size = statistics.median(held.values()) - statistics.median(others)
    noise = _deviation([*(value - size for value in held.values()), *others])
    # The largest of 2^N squares of normal variables is about 2 N log 2.
    chance = 2 * len(hosts) * math.log(2) * noise**2
    return replace(group, size=size) if explained > chance and size > SHARE * math.log(ratio) else None


def _climb(slow: Mapping[Cell, float], kind: Kind, hosts: Sequence[int]) -> tuple[float, Suspect]:
    """Return the group, of half the hosts at most, whose links explain the largest sum of squares, and that.

    From each host on, hosts are added and removed one by one, while it grows.
    """
    directed = {cell if kind == "out" else cell[::-1]: value for cell, value in slow.items()}
    both = {cell: value + directed[cell[::-1]] for cell, value in directed.items()}
    rows = {host: sum(directed[host, each] for each in hosts if each != host) for host in hosts}
    total = sum(slow.values())

    def explained(leaving: float, size: int) -> float:
        links = size * (len(hosts) - size)
        if not 0 < size <= len(hosts) // 2:
            return 0.0
        further = leaving / links - (total - leaving) / (len(slow) - links)
        return links * (1 - links / len(slow)) * max(0.0, further) ** 2

    def climb(host: int) -> tuple[float, list[int]]:
        members: set[int] = set()
        # What joining adds to the sum over leaving links, and leaving the group takes from it.
        gain = dict(rows)
        leaving, now, more = 0.0, 0.0, explained(rows[host], 1)
        while more > now:
            way = -1 if host in members else 1
            now, leaving, members = more, leaving + way * gain[host], members ^ {host}
            gain |= {each: gain[each] - way * both[each, host] for each in hosts if each != host}
            ways = {each: -1 if each in members else 1 for each in hosts}
            more, host = max(
                (explained(leaving + way * gain[each], len(members) + way), each)
                for each, way in ways.items()
            )
        return now, sorted(members)

    most, group = max(climb(host) for host in hosts)
    members = tuple(group or hosts[:1])
    return most, Suspect(kind, (members[0], members[0]), 0.0, members)
