"""Sweeps of collectives: the points that one fit is made from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hvlab.model.costs import COLLECTIVES
from hvlab.results.configurations import Cell, Measured, Param

Topology = Literal["inside", "across"]
TOPOLOGIES: tuple[Topology, ...] = ("inside", "across")


@dataclass(frozen=True)
class Point:
    """The median over the repeats of one cell, in seconds."""

    ranks: int
    size_bytes: int
    seconds: float
    repeats: int = 1


@dataclass(frozen=True)
class Sweep:
    """Sizes and ranks measured alike; ``params`` are those of the cells but the size.

    ``topology`` is inside (one host, several ranks) or across (several hosts, a rank on each); the points
    of a single rank belong to both.
    """

    collective: str
    backend: str
    launcher: str
    topology: Topology
    params: tuple[tuple[str, Param], ...]
    points: tuple[Point, ...]
    failed: int = 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the numbers of ranks measured, but 1."""
        return tuple(sorted({point.ranks for point in self.points if point.ranks > 1}))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes measured on several ranks, in bytes."""
        return tuple(sorted({point.size_bytes for point in self.points if point.ranks > 1}))

    def below(self, ranks: int) -> Sweep:
        """Return the sweep without the points of that many ranks or more."""
        return replace(self, points=tuple(point for point in self.points if point.ranks < ranks))


def topologies(cell: Cell) -> tuple[Topology, ...]:
    """Return what a cell tells about: several ranks on each of several hosts are a mixture, and none."""
    if cell.ranks == 1:
        return TOPOLOGIES
    if len(cell.hosts) == 1:
        return ("inside",)
    return ("across",) if cell.slots == 1 else ()


def sweeps(cells: Mapping[Cell, Measured], *, collective: str = "allreduce") -> list[Sweep]:
    """Return every sweep of a collective in the order of the cells.

    Cells that failed are counted where their backend has no figures at all in that topology.
    """
    found: dict[tuple[str, str, Topology, tuple[tuple[str, Param], ...]], list[Point]] = {}
    failed: dict[tuple[str, str, Topology], int] = {}
    for cell, measured in cells.items():
        if cell.workload != collective or collective not in COLLECTIVES:
            continue
        point = _point(cell, measured)
        for topology in topologies(cell):
            if point:
                key = (cell.backend, cell.launcher, topology, cell.without("size_bytes"))
                found.setdefault(key, []).append(point)
            elif measured.errors:
                place = (cell.backend, cell.launcher, topology)
                failed[place] = failed.get(place, 0) + 1
    whole = [Sweep(collective, *key, tuple(points)) for key, points in found.items()]
    known = {key[:3] for key in found}
    return whole + [
        Sweep(collective, *place, (), (), number) for place, number in failed.items() if place not in known
    ]


def _point(cell: Cell, measured: Measured) -> Point | None:
    size = cell.get("size_bytes")
    times = measured.of("time_median") or measured.of("time")
    times = tuple(time for time in times if math.isfinite(time) and time > 0)
    if not isinstance(size, int) or size <= 0 or not times:
        return None
    return Point(cell.ranks, size, statistics.median(times) * 1e-6, len(times))
