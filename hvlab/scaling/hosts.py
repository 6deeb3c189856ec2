"""The host that is slower than its fellows, from all that tells the hosts of a run apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Literal

from hvlab.compare.measurements import primary
from hvlab.results.configurations import Cell, Measured
from hvlab.statistics import laggard
from hvlab.statistics.interval import Interval
from hvlab.statistics.laggard import ALARMS, MATTERS

Source = Literal["compute", "each", "pairs"]
_TOLD: Mapping[Source, str] = {
    "compute": "by what the ranks of each host computed in the same steps",
    "each": "each host measured alone",
    "pairs": "the first host measured with each other",
}
_PAIR = 2

# A launch's times by host, kept apart by what was measured, which repeat it was, and how.
_Launches = dict[tuple[object, ...], dict[int, dict[str, list[float]]]]


@dataclass(frozen=True)
class SlowHost:
    """A host, its time over the median of its fellows' with a 95 % interval, and the data that show it."""

    host: str
    slower: Interval
    source: Source
    launches: int

    @property
    def reason(self) -> str:
        """Return it as a sentence."""
        low, mid, high = (100 * (bound - 1) for bound in astuple(self.slower))
        told = f"{mid:.1f} % slower than its fellows ({low:.1f} % to {high:.1f} %)"
        return f"{self.host} is {told}, {_TOLD[self.source]} ({self.launches} launches)"


@dataclass(frozen=True)
class HostCheck:
    """What one kind of data says of ``hosts``: ``slow`` are named, the slowest first.

    ``slowest`` is the host with the largest figures, be it by chance. ``launches`` is the most that any host
    took part in, ``needed`` how many can carry a name at all.
    """

    source: Source
    hosts: tuple[str, ...]
    slow: tuple[SlowHost, ...]
    slowest: SlowHost
    launches: int
    needed: int

    @property
    def decided(self) -> bool:
        """Return whether there are launches enough to name a host."""
        return self.launches >= self.needed


def slow_hosts(
    cells: Mapping[Cell, Measured], *, matters: float = MATTERS, alarms: float = ALARMS
) -> list[HostCheck]:
    """Return what each kind of data in a run says of its hosts, none where it has no such data.

    ``compute`` are the times that each host's ranks computed in one training, ``each`` the cases of every
    host alone, ``pairs`` those of the first host with each other: they tell the other hosts apart only. If
    no host differs, at most the share ``alarms`` of runs has one named; see
    :func:`hvlab.statistics.laggard.named`.
    """
    readers: Mapping[Source, Callable[[Mapping[Cell, Measured]], _Launches]] = {
        "compute": _compute,
        "each": _each,
        "pairs": _pairs,
    }
    known = {source: _groups(read(cells)) for source, read in readers.items()}
    known = {source: groups for source, groups in known.items() if groups}
    return [_check(source, groups, matters, alarms / len(known)) for source, groups in known.items()]


def _check(source: Source, groups: list[list[dict[str, float]]], matters: float, alarms: float) -> HostCheck:
    hosts = sorted({host for group in groups for launch in group for host in launch})
    seen = laggard.slowest_of(groups)
    if seen is None:
        raise ValueError("launches of single hosts compare nothing")
    launches = max(sum(host in launch for group in groups for launch in group) for host in hosts)
    slow = laggard.named(groups, matters=matters, alarms=alarms)
    return HostCheck(
        source,
        tuple(hosts),
        tuple(SlowHost(one.host, one.slower, source, one.launches) for one in slow),
        SlowHost(seen.host, seen.slower, source, seen.launches),
        launches,
        laggard.needed(len(hosts), alarms=alarms),
    )


def _groups(launches: _Launches) -> list[list[dict[str, float]]]:
    """Return the times of each launch that has two hosts or more; of several sizes their geometric mean."""
    found = []
    for repeats in launches.values():
        group = [
            {host: math.exp(statistics.fmean(map(math.log, times))) for host, times in hosts.items()}
            for hosts in repeats.values()
            if len(hosts) >= _PAIR
        ]
        if group:
            found.append(group)
    return found


def _compute(cells: Mapping[Cell, Measured]) -> _Launches:
    found: _Launches = {}
    for cell, measured in cells.items():
        for host, metrics in measured.hosts.items():
            for repeat, seconds in metrics.get("host_compute_time", {}).items():
                _add(found, (cell,), repeat, host, seconds)
    return found


def _each(cells: Mapping[Cell, Measured]) -> _Launches:
    return _told_apart(cells, 1)


def _pairs(cells: Mapping[Cell, Measured]) -> _Launches:
    return _told_apart(cells, _PAIR)


def _told_apart(cells: Mapping[Cell, Measured], count: int) -> _Launches:
    """Return the times of cells that are alike but for their last host, of ``count``."""
    found: _Launches = {}
    for cell, measured in cells.items():
        if len(cell.hosts) != count:
            continue
        key = (
            cell.workload,
            cell.backend,
            cell.launcher,
            cell.slots,
            cell.hosts[:-1],
            cell.without("size_bytes"),
        )
        for repeat, time in measured.values.get(primary(cell), {}).items():
            _add(found, key, repeat, cell.hosts[-1], time)
    return found


def _add(found: _Launches, key: tuple[object, ...], repeat: int, host: str, time: float) -> None:
    if time > 0:
        found.setdefault(key, {}).setdefault(repeat, {}).setdefault(host, []).append(time)
