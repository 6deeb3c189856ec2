"""Stragglers, from every kind of data that compares the hosts of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from hvlab.analysis.compare.measurements import primary
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics import straggler
from hvlab.statistics.straggler import ALPHA, Straggler

Source = Literal["compute", "each", "pairs"]
_PAIR = 2

# The times of each host, by what was measured and by repeat.
_Launches = dict[tuple[object, ...], dict[int, dict[str, list[float]]]]


@dataclass(frozen=True)
class HostCheck:
    """What one kind of data says of ``hosts``: which are ``stragglers``, the slowest first.

    ``slowest`` is the host with the largest figures, be it by chance. ``launches`` is the most that any host
    took part in, ``needed`` how many it takes to name a straggler at all.
    """

    source: Source
    hosts: tuple[str, ...]
    stragglers: tuple[Straggler, ...]
    slowest: Straggler
    launches: int
    needed: int

    @property
    def decided(self) -> bool:
        """Return whether there are enough launches to name a straggler."""
        return self.launches >= self.needed


def check_hosts(
    configurations: Mapping[Configuration, Repeats],
) -> list[HostCheck]:
    """Return a check of the hosts for each kind of data that the run has.

    ``compute`` compares what the ranks of each host computed in the same training, ``each`` the cases of
    every host alone, ``pairs`` those of the first host with each other host, so that the first is not
    compared. If no host differs, at most 1 % of runs has a straggler; see
    :func:`hvlab.statistics.straggler.stragglers`.
    """
    readers: Mapping[Source, Callable[[Mapping[Configuration, Repeats]], _Launches]] = {
        "compute": _compute,
        "each": lambda given: _alike_but_last(given, 1),
        "pairs": lambda given: _alike_but_last(given, _PAIR),
    }
    data = {source: _groups(read(configurations)) for source, read in readers.items()}
    data = {source: groups for source, groups in data.items() if groups}
    return [_check(source, groups, ALPHA / len(data)) for source, groups in data.items()]


def _check(source: Source, groups: list[list[dict[str, float]]], alpha: float) -> HostCheck:
    hosts = sorted({host for group in groups for launch in group for host in launch})
    slowest = straggler.slowest(groups)
    if slowest is None:
        raise ValueError("launches of single hosts compare nothing")
    launches = max(sum(host in launch for group in groups for launch in group) for host in hosts)
    slow = straggler.stragglers(groups, alpha=alpha)
    needed = straggler.launches_needed(len(hosts), alpha=alpha)
    return HostCheck(source, tuple(hosts), tuple(slow), slowest, launches, needed)


def _groups(launches: _Launches) -> list[list[dict[str, float]]]:
    """Return the times of launches with two hosts or more; for several sizes their geometric mean."""
    groups = []
    for by_repeat in launches.values():
        group = [
            {host: math.exp(statistics.fmean(map(math.log, times))) for host, times in hosts.items()}
            for hosts in by_repeat.values()
            if len(hosts) >= _PAIR
        ]
        if group:
            groups.append(group)
    return groups


def _compute(configurations: Mapping[Configuration, Repeats]) -> _Launches:
    launches: _Launches = {}
    for configuration, repeats in configurations.items():
        for host, metrics in repeats.hosts.items():
            for repeat, seconds in metrics.get("host_compute_time", {}).items():
                _add(launches, (configuration,), repeat, host, seconds)
    return launches


def _alike_but_last(configurations: Mapping[Configuration, Repeats], count: int) -> _Launches:
    """Return the times of configurations of ``count`` hosts that differ in the last one only."""
    launches: _Launches = {}
    for configuration, repeats in configurations.items():
        if len(configuration.hosts) != count:
            continue
        key = (
            configuration.workload,
            configuration.backend,
            configuration.launcher,
            configuration.slots,
            configuration.hosts[:-1],
            configuration.without("size_bytes"),
        )
        for repeat, time in repeats.values.get(primary(configuration), {}).items():
            _add(launches, key, repeat, configuration.hosts[-1], time)
    return launches


def _add(launches: _Launches, key: tuple[object, ...], repeat: int, host: str, time: float) -> None:
    if time > 0:
        launches.setdefault(key, {}).setdefault(repeat, {}).setdefault(host, []).append(time)
