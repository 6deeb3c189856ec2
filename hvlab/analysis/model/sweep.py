"""Sweeps of allreduce: the points of one fit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hvlab.results.configurations import Configuration, Param, Repeats

Topology = Literal["inside", "across", "both"]
ALLREDUCE = "allreduce"
TOPOLOGIES: tuple[Topology, ...] = ("inside", "across", "both")


@dataclass(frozen=True)
class SweepPoint:
    """The median over the repeats of one configuration, in seconds; ``launches`` has each repeat's."""

    ranks: int
    size_bytes: int
    seconds: float
    launches: Mapping[int, float] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Sweep:
    """Points that differ only in ranks and size; ``params`` are without the size.

    ``topology`` is inside (one host, several ranks), across (several hosts, a rank on each) or both (several
    hosts, ``slots`` ranks on each); points of a single rank belong to inside and across.
    """

    backend: str
    launcher: str
    topology: Topology
    params: tuple[tuple[str, Param], ...]
    points: tuple[SweepPoint, ...]
    failed: int = 0
    slots: int = 1

    @property
    def ranks(self) -> tuple[int, ...]:
        """Numbers of ranks measured, except 1."""
        return tuple(sorted({point.ranks for point in self.points if point.ranks > 1}))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes measured on several ranks, in bytes."""
        return tuple(sorted({point.size_bytes for point in self.points if point.ranks > 1}))

    @property
    def deviations(self) -> list[list[float]]:
        """For each number of ranks, the deviations of its launches' logarithms.

        All sizes of a launch share its noise: its deviation is the mean over them.
        """
        launches: dict[int, dict[int, list[float]]] = {}
        for point in self.points:
            for repeat, seconds in point.launches.items():
                by_repeat = launches.setdefault(point.ranks, {})
                by_repeat.setdefault(repeat, []).append(math.log(seconds / point.seconds))
        return [[statistics.fmean(logs) for logs in by_repeat.values()] for by_repeat in launches.values()]

    def repeats(self, ranks: int) -> int:
        """Return the number of launches at that number of ranks."""
        return max((len(point.launches) for point in self.points if point.ranks == ranks), default=0) or 1

    def below(self, ranks: int) -> Sweep:
        """Return the sweep without the points of that many ranks or more."""
        return replace(self, points=tuple(point for point in self.points if point.ranks < ranks))


def topologies(configuration: Configuration) -> tuple[Topology, ...]:
    """Return the topologies of a configuration: one rank begins those inside and those across."""
    if configuration.ranks == 1:
        return ("inside", "across")
    if configuration.inside:
        return ("inside",)
    return ("across",) if configuration.slots == 1 else ("both",)


def slots(configuration: Configuration, topology: Topology) -> int:
    """Return the constant number of ranks on each host, else 1."""
    return configuration.slots if topology == "both" else 1


def sweeps(configurations: Mapping[Configuration, Repeats]) -> list[Sweep]:
    """Return every sweep, in order; failures count for backends without any figures in their topology."""
    points: dict[tuple[str, str, Topology, tuple[tuple[str, Param], ...], int], list[SweepPoint]] = {}
    failed: dict[tuple[str, str, Topology], int] = {}
    for configuration, repeats in configurations.items():
        if configuration.workload != ALLREDUCE:
            continue
        point = _point(configuration, repeats)
        for topology in topologies(configuration):
            place = (configuration.backend, configuration.launcher, topology)
            if point:
                key = (*place, configuration.without("size_bytes"), slots(configuration, topology))
                points.setdefault(key, []).append(point)
            elif repeats.errors:
                failed[place] = failed.get(place, 0) + 1
    whole = [Sweep(*key[:4], tuple(points), slots=key[4]) for key, points in points.items()]
    known = {key[:3] for key in points}
    return whole + [Sweep(*place, (), (), number) for place, number in failed.items() if place not in known]


def _point(configuration: Configuration, repeats: Repeats) -> SweepPoint | None:
    size = configuration.get("size_bytes")
    times = repeats.values.get("time_median") or repeats.values.get("time") or {}
    seconds = {repeat: time * 1e-6 for repeat, time in times.items() if math.isfinite(time) and time > 0}
    if not isinstance(size, int) or size <= 0 or not seconds:
        return None
    return SweepPoint(configuration.ranks, size, statistics.median(seconds.values()), seconds)
