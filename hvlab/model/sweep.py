"""Sweeps of collectives: the points that one fit is made from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hvlab.model.costs import COLLECTIVES
from hvlab.results.configurations import Configuration, Param, Repeats

Topology = Literal["inside", "across"]
TOPOLOGIES: tuple[Topology, ...] = ("inside", "across")


@dataclass(frozen=True)
class SweepPoint:
    """The median over the repeats of one configuration, in seconds."""

    ranks: int
    size_bytes: int
    seconds: float
    repeats: int = 1


@dataclass(frozen=True)
class Sweep:
    """Points that differ only in ranks and size; ``params`` are without the size.

    ``topology`` is inside (one host, several ranks) or across (several hosts, a rank on each); the points
    of a single rank belong to both.
    """

    collective: str
    backend: str
    launcher: str
    topology: Topology
    params: tuple[tuple[str, Param], ...]
    points: tuple[SweepPoint, ...]
    failed: int = 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the numbers of ranks measured, except 1."""
        return tuple(sorted({point.ranks for point in self.points if point.ranks > 1}))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes measured on several ranks, in bytes."""
        return tuple(sorted({point.size_bytes for point in self.points if point.ranks > 1}))

    def below(self, ranks: int) -> Sweep:
        """Return the sweep without the points of that many ranks or more."""
        return replace(self, points=tuple(point for point in self.points if point.ranks < ranks))


def topologies(configuration: Configuration) -> tuple[Topology, ...]:
    """Return the topologies of a configuration; several ranks on each of several hosts have none."""
    if configuration.ranks == 1:
        return TOPOLOGIES
    if len(configuration.hosts) == 1:
        return ("inside",)
    return ("across",) if configuration.slots == 1 else ()


def sweeps(configurations: Mapping[Configuration, Repeats], *, collective: str = "allreduce") -> list[Sweep]:
    """Return every sweep of a collective in the order of the configurations.

    Configurations that failed are counted where their backend has no figures at all in that topology.
    """
    points: dict[tuple[str, str, Topology, tuple[tuple[str, Param], ...]], list[SweepPoint]] = {}
    failed: dict[tuple[str, str, Topology], int] = {}
    for configuration, repeats in configurations.items():
        if configuration.workload != collective or collective not in COLLECTIVES:
            continue
        point = _point(configuration, repeats)
        for topology in topologies(configuration):
            if point:
                key = (
                    configuration.backend,
                    configuration.launcher,
                    topology,
                    configuration.without("size_bytes"),
                )
                points.setdefault(key, []).append(point)
            elif repeats.errors:
                place = (configuration.backend, configuration.launcher, topology)
                failed[place] = failed.get(place, 0) + 1
    whole = [Sweep(collective, *key, tuple(points)) for key, points in points.items()]
    known = {key[:3] for key in points}
    return whole + [
        Sweep(collective, *place, (), (), number) for place, number in failed.items() if place not in known
    ]


def _point(configuration: Configuration, repeats: Repeats) -> SweepPoint | None:
    size = configuration.get("size_bytes")
    times = repeats.of("time_median") or repeats.of("time")
    times = tuple(time for time in times if math.isfinite(time) and time > 0)
    if not isinstance(size, int) or size <= 0 or not times:
        return None
    return SweepPoint(configuration.ranks, size, statistics.median(times) * 1e-6, len(times))
