"""Which host is slower than the others, by more than chance."""

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
ALPHA = 0.01
_DRAWS = 2000
_FENCE = 3.0
_PAIR = 2

Launch = Mapping[str, float]


@dataclass(frozen=True)
class Straggler:
    """A host whose time is ``slower`` times the median of the others', with a 95 % interval."""

    host: str
    slower: Interval
    launches: int


def stragglers(
    groups: Sequence[Sequence[Launch]], *, matters: float = MATTERS, alpha: float = ALPHA
) -> list[Straggler]:
    """Return the hosts that are slower than the others, the slowest first.

    A group holds the repeats of one measurement; a launch holds the time of each host, in any unit. Only
    times of one launch are compared. If no host differs, at most the share ``alpha`` of labs has a
    straggler: the host has to be slow in more launches, and by more, than any host would be if the times
    within each launch were shuffled. It also has to be slower by ``matters``. It is then left out,
    and the rest are tested again.
    """
    slow: list[Straggler] = []
    while True:
        candidate = slowest(groups)
        if candidate is None or candidate.slower.mid < 1 + matters or candidate.slower.low <= 1:
            return slow
        hosts = {host for group in groups for launch in group for host in launch}
        needed = count_launches(len(hosts), alpha=alpha)
        if candidate.launches < needed or _chance(groups, candidate.host) > alpha:
            return slow
        slow.append(candidate)
        groups = [
            [{host: time for host, time in launch.items() if host != candidate.host} for launch in group]
            for group in groups
        ]


def slowest(groups: Sequence[Sequence[Launch]]) -> Straggler | None:
    """Return the host with the largest median, be it by chance; None without two hosts to compare."""
    quotients: dict[str, list[float]] = {}
    for group in groups:
        for launch in group:
            for host, excess in _excess(launch).items():
                quotients.setdefault(host, []).append(math.exp(excess))
    if not quotients:
        return None
    host = max(quotients, key=lambda name: statistics.median(quotients[name]))
    return Straggler(host, interval.median(quotients[host]), len(quotients[host]))


def count_launches(hosts: int, *, alpha: float = ALPHA) -> int:
    """Return the number of launches of that many hosts that it takes to name a straggler.

    By chance, one host is the slowest of k in all n launches in k^(1-n) of labs. That has to be at most half
    of ``alpha``, because the chance is estimated from draws.
    """
    return 1 + math.ceil(math.log(2 / alpha) / math.log(hosts))


def _excess(launch: Launch) -> dict[str, float]:
    logs = {host: math.log(time) for host, time in launch.items() if time > 0}
    if len(logs) < _PAIR:
        return {}
    return {
        host: log - statistics.median(other for name, other in logs.items() if name != host)
        for host, log in logs.items()
    }


def _chance(groups: Sequence[Sequence[Launch]], host: str) -> float:
    """Return the share of shuffles of the times within launches in which some host stands out as much."""
    excesses = [[excess for launch in group if (excess := _excess(launch))] for group in groups]
    hosts = sorted({name for group in excesses for excess in group for name in excess})
    draw = np.random.default_rng(0)
    sums, counts = np.zeros((_DRAWS, len(hosts))), np.zeros(len(hosts))
    for group in excesses:
        for excess in _scale(group):
            columns = [hosts.index(name) for name in excess]
            values = np.array(list(excess.values()))
            orders = np.argsort(draw.random((_DRAWS, len(values))), axis=1)
            orders[0] = np.arange(len(values))  # as measured
            sums[:, columns] += values[orders]
            counts[columns] += 1
    standing: Floats = sums / np.sqrt(counts)
    return float((standing.max(axis=1) >= standing[0, hosts.index(host)] - 1e-9).mean())


def _scale(group: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Return excesses in robust standard deviations of their group, cut off at three, so that none rules."""
    values = [value for excess in group for value in excess.values()]
    if not values:
        return []
    spread = 1.4826 * statistics.median(map(abs, values)) or 1.0
    return [
        {host: max(-_FENCE, min(_FENCE, value / spread)) for host, value in excess.items()}
        for excess in group
    ]
