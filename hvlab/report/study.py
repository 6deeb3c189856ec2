"""Trainings gathered as the lab sheet's tables have them: all backends of one workload together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hvlab import scaling
from hvlab.report import labels, spread
from hvlab.report.data import ReportData
from hvlab.report.spread import Spread
from hvlab.results.configurations import Cell, Measured
from hvlab.scaling import Curve, Point


@dataclass(frozen=True)
class Row:
    """One line: a backend on some hosts. Step time is in seconds; ``speedup`` is None without a base.

    ``named`` tells that the cell repeats another one on other hosts, as a search for slow hosts does.
    """

    cell: Cell
    measured: Measured
    step: Spread | None
    throughput: Spread | None
    speedup: Spread | None
    efficiency: Spread | None
    named: bool = False

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.cell.ranks

    @property
    def compression(self) -> str:
        """Return how the gradients were compressed: none, or how."""
        return str(self.cell.get("compression") or "none")

    @property
    def layout(self) -> tuple[int, int]:
        """Return the number of servers and of ranks on each."""
        return len(self.cell.hosts), self.cell.slots


@dataclass(frozen=True)
class Study:
    """One workload with its parameters, weak or strong; ``params`` are without scaling and compression.

    ``curves`` has one for each backend, launcher and compression, ``rows`` all their points.
    """

    workload: str
    scaling: str
    params: labels.Params
    curves: tuple[Curve, ...]
    rows: tuple[Row, ...]

    def pick(self, wanted: Callable[[Row], bool]) -> tuple[Row, ...]:
        """Return some of the rows."""
        return tuple(row for row in self.rows if wanted(row))


def studies(data: ReportData) -> list[Study]:
    """Return every training of the run, strong scaling after weak of the same workload."""
    groups: dict[tuple[str, labels.Params, str], list[Curve]] = {}
    for curve in scaling.curves(data.training):
        params = tuple(item for item in curve.params if item[0] != "compression")
        groups.setdefault((curve.workload, params, curve.scaling), []).append(curve)
    made = [
        Study(workload, kind, params, tuple(curves), _rows(curves, data))
        for (workload, params, kind), curves in groups.items()
    ]
    return sorted(made, key=lambda study: (study.workload, str(study.params), study.scaling != "weak"))


def _rows(curves: list[Curve], data: ReportData) -> tuple[Row, ...]:
    """Return the rows of all curves; of equal shapes, the first one's hosts are the usual ones."""
    points = [point for curve in curves for point in curve.points]
    points.sort(key=lambda point: _place(point.cell))
    seen: set[tuple[str, str, str, int, int]] = set()
    rows = []
    for point in points:
        cell = point.cell
        shape = (cell.backend, cell.launcher, str(cell.get("compression")), len(cell.hosts), cell.slots)
        rows.append(_row(point, data.cells[cell], named=shape in seen))
        seen.add(shape)
    return tuple(rows)


def _place(cell: Cell) -> tuple[tuple[int, str], bool, str, int, int]:
    compression = str(cell.get("compression") or "none")
    return labels.order(cell.backend), compression != "none", compression, len(cell.hosts), cell.slots


def _row(point: Point, measured: Measured, *, named: bool) -> Row:
    return Row(
        point.cell,
        measured,
        step=spread.of(measured, "step_time"),
        throughput=spread.of(measured, "throughput"),
        speedup=spread.from_interval(point.speedup),
        efficiency=spread.from_interval(point.efficiency),
        named=named,
    )
