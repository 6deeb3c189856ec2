"""Which host is slower than its fellows: said only where the launches carry it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hvlab.statistics import interval
from hvlab.statistics.interval import Interval
from hvlab.statistics.permutation import Floats

MATTERS = 0.05
ALARMS = 0.01
_DRAWS = 2000
_FENCE = 3.0
_PAIR = 2

Launch = Mapping[str, float]


@dataclass(frozen=True)
class Laggard:
    """A host whose time is ``slower`` times the median of its fellows', with a 95 % interval."""

    host: str
    slower: Interval
    launches: int


def named(
    groups: Sequence[Sequence[Launch]], *, matters: float = MATTERS, alarms: float = ALARMS
) -> list[Laggard]:
    """Return the hosts that are slower than their fellows, the slowest first.

    A group is repeats of one measurement, a launch each host's time in it, in any unit; only times of one
    launch are compared with each other. If no host differs from the others, at most the share ``alarms`` of
    all labs has a host named: such a one has to be slow in more launches, and by more, than any host would be
    if within each launch the times belonged to other hosts. It has to be slower by ``matters``, too. Then
    the others are looked at without it.
    """
    found: list[Laggard] = []
    while True:
        slowest = slowest_of(groups)
        if slowest is None or slowest.slower.mid < 1 + matters or slowest.slower.low <= 1:
            return found
        hosts = {host for group in groups for launch in group for host in launch}
        if slowest.launches < needed(len(hosts), alarms=alarms) or _chance(groups, slowest.host) > alarms:
            return found
        found.append(slowest)
        groups = [
            [{host: time for host, time in launch.items() if host != slowest.host} for launch in group]
            for group in groups
        ]


def slowest_of(groups: Sequence[Sequence[Launch]]) -> Laggard | None:
    """Return the host with the largest median, be it by chance; None where no two can be compared."""
    quotients: dict[str, list[float]] = {}
    for group in groups:
        for launch in group:
            for host, excess in _excess(launch).items():
                quotients.setdefault(host, []).append(math.exp(excess))
    if not quotients:
        return None
    host = max(quotients, key=lambda name: statistics.median(quotients[name]))
    return Laggard(host, interval.median(quotients[host]), len(quotients[host]))


def needed(hosts: int, *, alarms: float = ALARMS) -> int:
    """Return how many launches of that many hosts can carry a name.

    One host is the slowest of k in all n launches by chance in k^(1-n) of labs. That has to be half of
    ``alarms``, as the chance is counted in draws.
    """
    return 1 + math.ceil(math.log(2 / alarms) / math.log(hosts))


def _excess(launch: Launch) -> dict[str, float]:
    """Return each host's logarithm of its time over the median of the others'; nothing of one host."""
    logs = {host: math.log(time) for host, time in launch.items() if time > 0}
    if len(logs) < _PAIR:
        return {}
    return {
        host: log - statistics.median(other for name, other in logs.items() if name != host)
        for host, log in logs.items()
    }


def _chance(groups: Sequence[Sequence[Launch]], host: str) -> float:
    """Return how often some host would stand out as ``host`` does if the times had other owners."""
    excesses = [[excess for launch in group if (excess := _excess(launch))] for group in groups]
    hosts = sorted({name for group in excesses for excess in group for name in excess})
    draw = np.random.default_rng(0)
    sums, counts = np.zeros((_DRAWS, len(hosts))), np.zeros(len(hosts))
    for group in excesses:
        for excess in _scaled(group):
            columns = [hosts.index(name) for name in excess]
            values = np.array(list(excess.values()))
            orders = np.argsort(draw.random((_DRAWS, len(values))), axis=1)
            orders[0] = np.arange(len(values))  # as measured
            sums[:, columns] += values[orders]
            counts[columns] += 1
    standing: Floats = sums / np.sqrt(counts)
    return float((standing.max(axis=1) >= standing[0, hosts.index(host)] - 1e-9).mean())


def _scaled(group: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Return excesses in robust standard deviations of their group, cut off at three, so that none rules."""
    values = [value for excess in group for value in excess.values()]
    if not values:
        return []
    spread = 1.4826 * statistics.median(map(abs, values)) or 1.0
    return [
        {host: max(-_FENCE, min(_FENCE, value / spread)) for host, value in excess.items()}
        for excess in group
    ]
