"""Speed-up, efficiency and slow-down of trainings.

Speed-up of N ranks is throughput(N) / throughput(1), efficiency is speed-up / N; in weak scaling the batch of
each rank is constant, in strong scaling that of all ranks together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hvlab.lab.backends import SERIAL
from hvlab.results.configurations import Configuration, Param, Repeats
from hvlab.statistics import ratio
from hvlab.statistics.interval import Interval

# One rank alone sends nothing, so these do not matter to it.
_OF_SENDING = (
    "compression",
    "fusion_threshold",
    "cycle_time",
    "cache_capacity",
    "hierarchical_allreduce",
)

_Params: TypeAlias = tuple[tuple[str, Param], ...]
_Key: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True)
class CurvePoint:
    """One configuration of a curve; ``speedup`` is None without a base or without figures."""

    configuration: Configuration
    speedup: Interval | None

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.configuration.ranks

    @property
    def efficiency(self) -> Interval | None:
        """Return speed-up over ranks."""
        return _times(self.speedup, 1 / self.ranks) if self.speedup else None


@dataclass(frozen=True)
class Curve:
    """One training over one backend at growing numbers of ranks, the fewest first.

    ``scaling`` is weak or strong, and empty for a command of the user's own, of which only the user knows.
    ``params`` are without it. ``base`` is the configuration of one rank that speed-ups are over:
    of the same backend, else one that differs only in how data are sent, else one process without Horovod;
    None where none of them was measured.
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
    """How much longer a step takes with ``ranks`` ranks than with one, for the same work of each rank.

    ``inside`` is of all ranks on one host, ``between`` of each on a host of its own; None: not measured.
    ``repeats`` is the smallest number of repeats among what is compared.
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
            key = (
                configuration.workload,
                configuration.backend,
                configuration.launcher,
                str(configuration.get("scaling") or ""),
            )
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
        factor = ratio.medians(step, alone)
        if factor:
            factors.setdefault(point.ranks, {})["inside" if point.configuration.inside else "between"] = (
                factor
            )
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
    workload, backend, launcher, scaling = key
    first = next((configuration.hosts[:1] for configuration in members if configuration.ranks > 1), ())
    base = next(_bases(members[0], first, configurations), None)
    ordered = sorted(members, key=lambda configuration: (configuration.ranks, len(configuration.hosts)))
    points = tuple(_point(configuration, base, configurations) for configuration in ordered)
    return Curve(workload, backend, launcher, scaling, params, base, points)


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
    return CurvePoint(configuration, ratio.medians(*throughputs))


def _times(interval: Interval, factor: float) -> Interval:
    return Interval(interval.low * factor, interval.mid * factor, interval.high * factor)
