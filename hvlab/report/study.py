"""Trainings as the lab sheet's tables show them: all backends of one workload together."""

from __future__ import annotations

from dataclasses import dataclass

from hvlab.analysis import scaling
from hvlab.analysis.scaling import Curve, CurvePoint
from hvlab.report import labels, spread
from hvlab.report.data import ReportData
from hvlab.report.spread import Spread
from hvlab.results.configurations import Configuration, Repeats


@dataclass(frozen=True)
class StudyRow:
    """A backend on some hosts. Step time is in seconds; ``speedup`` is None without a base.

    ``named`` means that another row has the same shape on other hosts, as in a search for stragglers.
    """

    configuration: Configuration
    repeats: Repeats
    step: Spread | None
    throughput: Spread | None
    speedup: Spread | None
    efficiency: Spread | None
    named: bool = False

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.configuration.ranks

    @property
    def compression(self) -> str:
        """Return how the gradients were compressed: none, or how."""
        return str(self.configuration.get("compression") or "none")

    @property
    def layout(self) -> tuple[int, int]:
        """Return the number of servers and of ranks on each."""
        return len(self.configuration.hosts), self.configuration.slots


@dataclass(frozen=True)
class Study:
    """One workload with its parameters, weak or strong; ``params`` are without scaling and compression.

    ``curves`` has one for each backend, launcher and compression, ``rows`` all their points.
    """

    workload: str
    scaling: str
    params: labels.Params
    curves: tuple[Curve, ...]
    rows: tuple[StudyRow, ...]


def studies(data: ReportData) -> list[Study]:
    """Return every training of the run, strong scaling after weak of the same workload."""
    groups: dict[tuple[str, labels.Params, str], list[Curve]] = {}
    for curve in scaling.curves(data.training):
        params = tuple(item for item in curve.params if item[0] != "compression")
        groups.setdefault((curve.workload, params, curve.scaling), []).append(curve)
    unsorted = [
        Study(workload, kind, params, tuple(sorted(curves, key=_first)), _rows(curves, data))
        for (workload, params, kind), curves in groups.items()
    ]
    return sorted(unsorted, key=lambda study: (study.workload, str(study.params), study.scaling != "weak"))


def _rows(curves: list[Curve], data: ReportData) -> tuple[StudyRow, ...]:
    """Return the rows of all curves; of rows of the same shape, the first is the usual one."""
    points = [(point, curve.base) for curve in curves for point in curve.points]
    points.sort(key=lambda item: _place(item[0].configuration))
    shapes: set[tuple[str, str, str, int, int]] = set()
    rows = []
    for point, base in points:
        configuration = point.configuration
        shape = (
            configuration.backend,
            configuration.launcher,
            str(configuration.get("compression")),
            len(configuration.hosts),
            configuration.slots,
        )
        rows.append(_row(point, base, data.configurations[configuration], named=shape in shapes))
        shapes.add(shape)
    return tuple(rows)


def _first(curve: Curve) -> tuple[tuple[int, str], bool, str, int, int]:
    return _place(curve.points[0].configuration)


def _place(configuration: Configuration) -> tuple[tuple[int, str], bool, str, int, int]:
    compression = str(configuration.get("compression") or "none")
    return (
        labels.order(configuration.backend),
        compression != "none",
        compression,
        len(configuration.hosts),
        configuration.slots,
    )


def _row(point: CurvePoint, base: Configuration | None, repeats: Repeats, *, named: bool) -> StudyRow:
    throughput = spread.of(repeats, "throughput")
    own = relative(throughput) if point.configuration == base else None
    return StudyRow(
        point.configuration,
        repeats,
        step=spread.of(repeats, "step_time"),
        throughput=throughput,
        speedup=own or spread.from_interval(point.speedup),
        efficiency=own or spread.from_interval(point.efficiency),
        named=named,
    )


def relative(figure: Spread | None) -> Spread | None:
    """Return a figure over its own median: 1, with its interval. That of the base is otherwise not shown."""
    return figure.times(1 / figure.mid) if figure and figure.mid > 0 else None
