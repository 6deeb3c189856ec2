"""Speed-up, efficiency and slow-down of trainings.

Speed-up of N ranks is throughput(N) / throughput(1), efficiency is speed-up / N; weak scaling keeps the batch
of each rank constant, strong scaling that of all ranks together.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hvlab.analysis.compare.comparison import primary, without_size
from hvlab.lab.backends import SERIAL
from hvlab.results.configurations import Configuration, Param, Repeats
from hvlab.statistics import interval, straggler
from hvlab.statistics.interval import Interval
from hvlab.statistics.straggler import ALPHA, Straggler

# One rank alone sends nothing, so these do not matter to it.
_OF_SENDING = (
    *("compression", "fusion_threshold", "cycle_time", "cache_capacity", "hierarchical_allreduce"),
)

_Params: TypeAlias = tuple[tuple[str, Param], ...]
_Key: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True)
class CurvePoint:
    """One configuration of a curve; ``speedup`` is None without a base or figures."""

    configuration: Configuration
    speedup: Interval | None

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.configuration.ranks

    @property
    def efficiency(self) -> Interval | None:
        """Speed-up over ranks."""
        return self.speedup.times(1 / self.ranks) if self.speedup else None


@dataclass(frozen=True)
class Curve:
    """One training over one backend at growing numbers of ranks.

    ``scaling`` is weak or strong, empty for the user's own command; ``params`` are without it. ``base`` is
    the configuration of one rank that speed-ups refer to: of the same backend, else one that differs only in
    how data are sent, else one process without Horovod; None if none was measured.
    """

    workload: str
    backend: str
    launcher: str
    scaling: str
    params: _Params
    base: Configuration | None
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class Slowdown:
    """Step time with ``ranks`` ranks over that with one, for the same work of each rank.

    ``inside``: all ranks on one host, ``between``: each on its own host; None: not measured. ``repeats`` is
    the smallest number of repeats compared.
    """

    ranks: int
    inside: Interval | None
    between: Interval | None
    repeats: int


def curves(configurations: Mapping[Configuration, Repeats]) -> list[Curve]:
    """Return the curves of every training in ``configurations``, in their order."""
    groups: dict[_Key, dict[_Params, list[Configuration]]] = {}
    for configuration, repeats in configurations.items():
        if configuration.get("scaling") is not None or repeats.of("throughput") or repeats.of("real"):
            scaling = str(configuration.get("scaling") or "")
            key = configuration.workload, configuration.backend, configuration.launcher, scaling
            groups.setdefault(key, {}).setdefault(configuration.without("scaling"), []).append(configuration)
    return [
        _curve(key, params, members, configurations)
        for key, by_params in groups.items()
        for params, members in by_params.items()
    ]


def slowdowns(curve: Curve, configurations: Mapping[Configuration, Repeats]) -> list[Slowdown]:
    """Return the slow-down of a curve at each number of ranks, intra-node and inter-node.

    Inside a host it is step(1 host x N) / step(1 x 1), between hosts step(N hosts x 1) / step(1 x 1). In
    strong scaling the step of N ranks counts N times, as each rank has an Nth of the work.
    """
    if curve.base is None:
        return []
    alone = configurations[curve.base].of("step_time")
    factors: dict[int, dict[str, Interval]] = {}
    fewest: dict[int, int] = {}
    for point in reversed(curve.points):
        if point.ranks == 1 or (point.configuration.across and point.configuration.slots > 1):
            continue
        work = point.ranks if curve.scaling == "strong" else 1
        step = [seconds * work for seconds in configurations[point.configuration].of("step_time")]
        factor = interval.medians(step, alone)
        if factor:
            place = "inside" if point.configuration.inside else "between"
            factors.setdefault(point.ranks, {})[place] = factor
            fewest[point.ranks] = min(fewest.get(point.ranks, len(alone)), len(step))
    return [
        Slowdown(ranks, parts.get("inside"), parts.get("between"), fewest[ranks])
        for ranks, parts in sorted(factors.items())
    ]


def _curve(
    key: _Key,
    params: _Params,
    members: Sequence[Configuration],
    configurations: Mapping[Configuration, Repeats],
) -> Curve:
    first = next((configuration.hosts[:1] for configuration in members if configuration.ranks > 1), ())
    base = next(_bases(members[0], first, configurations), None)
    ordered = sorted(members, key=lambda configuration: (configuration.ranks, len(configuration.hosts)))
    points = tuple(_point(configuration, base, configurations) for configuration in ordered)
    return Curve(*key, params, base, points)


def _bases(
    member: Configuration, hosts: tuple[str, ...], configurations: Mapping[Configuration, Repeats]
) -> Iterator[Configuration]:
    """Yield the configurations of one rank that can be the base of a member's curve, the best first."""
    alone = [
        configuration
        for configuration, repeats in configurations.items()
        if configuration.ranks == 1 and configuration.workload == member.workload and repeats.of("throughput")
    ]
    alone.sort(key=lambda configuration: configuration.hosts != hosts)
    for backend in (member.backend, SERIAL):
        for ignored in (("scaling",), ("scaling", *_OF_SENDING)):
            yield from (
                configuration
                for configuration in alone
                if configuration.backend == backend
                and configuration.without(*ignored) == member.without(*ignored)
            )


def _point(
    configuration: Configuration, base: Configuration | None, configurations: Mapping[Configuration, Repeats]
) -> CurvePoint:
    if base is None:
        return CurvePoint(configuration, None)
    if configuration == base:
        return CurvePoint(configuration, Interval(1.0, 1.0, 1.0))
    throughputs = (configurations[one].of("throughput") for one in (configuration, base))
    return CurvePoint(configuration, interval.medians(*throughputs))


Source = Literal["compute", "each", "pairs"]
_PAIR = 2

# The times of each host, by what was measured and by repeat.
_Launches = dict[tuple[object, ...], dict[int, dict[str, list[float]]]]


@dataclass(frozen=True)
class HostCheck:
    """A check of ``hosts`` by one kind of data: their ``stragglers``, the slowest first.

    ``slowest`` has the largest figures, perhaps by chance. ``launches`` is the most launches of any host,
    ``needed`` the number required to name a straggler.
    """

    source: Source
    hosts: tuple[str, ...]
    stragglers: tuple[Straggler, ...]
    slowest: Straggler
    launches: int
    needed: int

    @property
    def decided(self) -> bool:
        """There are enough launches to name a straggler."""
        return self.launches >= self.needed


def check_hosts(configurations: Mapping[Configuration, Repeats]) -> list[HostCheck]:
    """Return a check of the hosts for each kind of data of the run.

    ``compute`` compares the ranks' compute time on each host in the same training, ``each`` the cases of
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
    needed = straggler.count_launches(len(hosts), alpha=alpha)
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
        *others, last = configuration.hosts
        key = dataclasses.replace(without_size(configuration), hosts=tuple(others))
        for repeat, time in repeats.values.get(primary(configuration), {}).items():
            _add(launches, (key,), repeat, last, time)
    return launches


def _add(launches: _Launches, key: tuple[object, ...], repeat: int, host: str, time: float) -> None:
    if time > 0:
        launches.setdefault(key, {}).setdefault(repeat, {}).setdefault(host, []).append(time)
