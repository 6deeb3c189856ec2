"""Records gathered by what was measured: a cell is all repeats of one case. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvlab.results.store import Record

Param = str | int | float | bool | None


@dataclass(frozen=True)
class Cell:
    """What makes two records repeats of the same measurement; ``params`` are sorted by name."""

    workload: str
    backend: str
    launcher: str
    hosts: tuple[str, ...]
    slots: int
    params: tuple[tuple[str, Param], ...] = ()

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return len(self.hosts) * self.slots

    @property
    def inside(self) -> bool:
        """Return whether all ranks share one host."""
        return len(self.hosts) == 1

    @property
    def across(self) -> bool:
        """Return whether each rank has a host of its own."""
        return self.slots == 1

    def get(self, name: str, default: Any = None) -> Any:
        """Return a parameter."""
        return dict(self.params).get(name, default)

    def without(self, *names: str) -> tuple[tuple[str, Param], ...]:
        """Return the parameters but these."""
        return tuple(item for item in self.params if item[0] not in names)


@dataclass
class Measured:
    """What came of a cell: for each metric the value of each repeat that went well, in their order.

    ``hosts`` holds, for each host, the metrics that are of one host.
    """

    values: dict[str, dict[int, float]] = field(default_factory=dict)
    hosts: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    proved: set[str | None] = field(default_factory=set)
    ok: set[int] = field(default_factory=set)
    errors: dict[int, str] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)

    def of(self, metric: str) -> tuple[float, ...]:
        """Return a metric's values, one a repeat; none where it was not measured."""
        found = self.values.get(metric, {})
        return tuple(found[repeat] for repeat in sorted(found))

    @property
    def repeats(self) -> int:
        """Return how many repeats were tried."""
        return len(self.ok | self.errors.keys() | self.skipped.keys())


def gather(records: Iterable[Record]) -> dict[Cell, Measured]:
    """Return every cell with what was measured, in the order of the records.

    A case of several sizes is a cell a size; one that failed before any figure is a cell without a size.
    """
    found: dict[Cell, Measured] = {}
    for record in records:
        params = {name: _plain(value) for name, value in record.params.items() if name != "host"}
        cell = Cell(
            record.workload,
            record.backend,
            record.launcher,
            record.hosts,
            record.slots_per_host,
            tuple(sorted(params.items())),
        )
        measured = found.setdefault(cell, Measured())
        if record.status == "failed":
            measured.errors[record.repeat] = record.error or "no reason told"
        elif record.status == "skipped":
            measured.skipped[record.repeat] = record.error or "no reason told"
        elif record.metric is not None and record.value is not None:
            measured.ok.add(record.repeat)
            measured.proved.add(record.proved_backend)
            host = record.params.get("host")
            table = measured.values if host is None else measured.hosts.setdefault(str(host), {})
            table.setdefault(record.metric, {})[record.repeat] = record.value
    return found


def _plain(value: Any) -> Param:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def where(cells: Mapping[Cell, Measured], **wanted: Any) -> dict[Cell, Measured]:
    """Return the cells whose attributes, or else parameters, have these values."""
    return {
        cell: measured
        for cell, measured in cells.items()
        if all(
            (getattr(cell, name) if name in Cell.__dataclass_fields__ else cell.get(name)) == value
            for name, value in wanted.items()
        )
    }
