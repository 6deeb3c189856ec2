"""Speed-up, efficiency and slow-down of trainings.

Speed-up of N ranks is throughput(N) / throughput(1), efficiency is speed-up / N; in weak scaling the batch of
each rank is constant, in strong scaling that of all ranks together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hvlab.results.configurations import Cell, Measured, Param
from hvlab.statistics import interval, ratio
from hvlab.statistics.interval import Interval

# What one rank alone has no use for: it sends nothing.
_OF_SENDING = (
    "compression",
    "fusion_threshold",
    "cycle_time",
    "cache_capacity",
    "hierarchical_allreduce",
)
_SERIAL = "serial"

_Params: TypeAlias = tuple[tuple[str, Param], ...]
_Key: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True)
class Point:
    """One cell of a curve. ``ok`` of ``tried`` repeats went well; what was not measured is None.

    ``step_time`` is in seconds, ``throughput`` in samples a second; both are medians of the repeats.
    """

    cell: Cell
    ok: int
    tried: int
    step_time: Interval | None
    throughput: Interval | None
    speedup: Interval | None

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.cell.ranks

    @property
    def efficiency(self) -> Interval | None:
        """Return speed-up over ranks."""
        return _times(self.speedup, 1 / self.ranks) if self.speedup else None


@dataclass(frozen=True)
class Curve:
    """One training over one backend at growing numbers of ranks, the fewest first.

    ``params`` are without ``scaling``. ``base`` is the cell of one rank that speed-ups are over: that of the
    same backend, else one that differs in what only matters when sending, else that of one process without
    Horovod; None where there is none.
    """

    workload: str
    backend: str
    launcher: str
    scaling: str
    params: _Params
    base: Cell | None
    points: tuple[Point, ...]

    @property
    def inside(self) -> tuple[Point, ...]:
        """Return the points inside one host."""
        return tuple(point for point in self.points if point.cell.inside)

    @property
    def across(self) -> tuple[Point, ...]:
        """Return the points of one rank on each host."""
        return tuple(point for point in self.points if point.cell.across)


@dataclass(frozen=True)
class Slowdown:
    """How much longer a step takes with ``ranks`` ranks than with one, for the same work of each rank.

    ``inside`` is of all ranks on one host, ``between`` of each on a host of its own; None: not measured.
    ``repeats`` is how many there were at least of what is compared.
    """

    ranks: int
    inside: Interval | None
    between: Interval | None
    repeats: int


def curves(cells: Mapping[Cell, Measured]) -> list[Curve]:
    """Return the curves of every training in ``cells``, in their order."""
    groups: dict[_Key, dict[_Params, list[Cell]]] = {}
    for cell, measured in cells.items():
        if cell.get("scaling") is not None or measured.of("throughput"):
            key = (cell.workload, cell.backend, cell.launcher, str(cell.get("scaling", "weak")))
            groups.setdefault(key, {}).setdefault(cell.without("scaling"), []).append(cell)
    return [
        _curve(key, params, members, cells)
        for key, by_params in groups.items()
        for params, members in by_params.items()
    ]


def slowdowns(curve: Curve, cells: Mapping[Cell, Measured]) -> list[Slowdown]:
    """Return the slow-down of a curve at each number of ranks, split by where the ranks were.

    Inside a host it is step(1 host x N) / step(1 x 1), between hosts step(N hosts x 1) / step(1 x 1). In
    strong scaling the step of N ranks counts N times, as each has an Nth of the work.
    """
    if curve.base is None:
        return []
    alone = cells[curve.base].of("step_time")
    found: dict[int, dict[str, Interval]] = {}
    repeats: dict[int, int] = {}
    for point in reversed(curve.points):
        if point.ranks == 1 or not (point.cell.inside or point.cell.across):
            continue
        work = point.ranks if curve.scaling == "strong" else 1
        step = [seconds * work for seconds in cells[point.cell].of("step_time")]
        lost = ratio.medians(step, alone)
        if lost:
            found.setdefault(point.ranks, {})["inside" if point.cell.inside else "between"] = lost
            repeats[point.ranks] = min(repeats.get(point.ranks, len(alone)), len(step))
    return [
        Slowdown(ranks, parts.get("inside"), parts.get("between"), repeats[ranks])
        for ranks, parts in sorted(found.items())
    ]


def _curve(
    key: _Key,
    params: _Params,
    members: Sequence[Cell],
    cells: Mapping[Cell, Measured],
) -> Curve:
    workload, backend, launcher, scaling = key
    first = next((cell.hosts[:1] for cell in members if cell.ranks > 1), ())
    base = next(_bases(members[0], first, cells), None)
    ordered = sorted(members, key=lambda cell: (cell.ranks, len(cell.hosts)))
    points = tuple(_point(cell, base, cells) for cell in ordered)
    return Curve(workload, backend, launcher, scaling, params, base, points)


def _bases(member: Cell, hosts: tuple[str, ...], cells: Mapping[Cell, Measured]) -> Iterator[Cell]:
    """Yield the cells of one rank that a member's curve can be over, the best first."""
    alone = [
        cell
        for cell, measured in cells.items()
        if cell.ranks == 1 and cell.workload == member.workload and measured.of("throughput")
    ]
    alone.sort(key=lambda cell: cell.hosts != hosts)
    for backend in (member.backend, _SERIAL):
        for ignored in (("scaling",), ("scaling", *_OF_SENDING)):
            yield from (
                cell
                for cell in alone
                if cell.backend == backend and cell.without(*ignored) == member.without(*ignored)
            )


def _point(cell: Cell, base: Cell | None, cells: Mapping[Cell, Measured]) -> Point:
    measured = cells[cell]
    steps, throughputs = measured.of("step_time"), measured.of("throughput")
    speedup = None
    if base is not None:
        over = ratio.medians(throughputs, cells[base].of("throughput"))
        speedup = Interval(1.0, 1.0, 1.0) if cell == base else over
    return Point(
        cell,
        len(measured.ok),
        measured.repeats,
        interval.median(steps) if steps else None,
        interval.median(throughputs) if throughputs else None,
        speedup,
    )


def _times(found: Interval, factor: float) -> Interval:
    return Interval(found.low * factor, found.mid * factor, found.high * factor)
