"""What one run measured, as far as it can be compared with another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.results.configurations import Cell, Measured, gather
from hvlab.results.store import UNKNOWN, Record, Run
from hvlab.workloads import WORKLOADS


@dataclass(frozen=True)
class Measurements:
    """A run's cells; ``stack`` holds for each part of the stack every version that a host had of it."""

    run_id: str
    lab: str
    started_at: str
    stack: Mapping[str, tuple[str, ...]]
    cells: Mapping[Cell, Measured]

    @property
    def hosts(self) -> set[str]:
        """Return the names of the hosts that took part."""
        return {host for cell in self.cells for host in cell.hosts}

    @property
    def imported(self) -> bool:
        """Return whether another program's output is all there is, which tells less than our own."""
        return bool(self.cells) and {cell.launcher for cell in self.cells} == {UNKNOWN}


def measurements(run: Run, records: Sequence[Record]) -> Measurements:
    """Return what a run measured."""
    return Measurements(run.run_id, run.lab, run.started_at, _stack(records), folded(gather(records)))


def folded(cells: Mapping[Cell, Measured]) -> dict[Cell, Measured]:
    """Return the cells with repeats that failed before any size counted at every size of their case."""
    sized: dict[Cell, list[Cell]] = {}
    for cell in cells:
        if cell.get("size_bytes") is not None:
            sized.setdefault(whole(cell), []).append(cell)
    found = {cell: measured for cell, measured in cells.items() if cell not in sized}
    for case, members in sized.items():
        failed = cells.get(case, Measured())
        for cell in members:
            measured = cells[cell]
            found[cell] = dataclasses.replace(
                measured,
                errors={**failed.errors, **measured.errors},
                skipped={**failed.skipped, **measured.skipped},
            )
    return found


def whole(cell: Cell) -> Cell:
    """Return the cell of a case as a whole, without a size."""
    return dataclasses.replace(cell, params=cell.without("size_bytes"))


def primary(cell: Cell) -> str:
    """Return the metric that is compared unless another is asked for."""
    return WORKLOADS[cell.workload].primary if cell.workload in WORKLOADS else "time"


def _stack(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for record in records:
        for part, value in record.stack.items():
            found.setdefault(part, set()).update(_versions(value))
    return {part: tuple(sorted(values)) for part, values in found.items()}


def _versions(value: Any) -> set[str]:
    """Return the versions of a part of the stack, which are by host where they differ."""
    return {str(item) for item in value.values()} if isinstance(value, Mapping) else {str(value)}
