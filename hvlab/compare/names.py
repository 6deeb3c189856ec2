"""Short names of cells: only what tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hvlab.results.configurations import Cell
from hvlab.workloads.sizes import shown

_SIZE = "size_bytes"


def place(cell: Cell, names: Mapping[Cell, str]) -> dict[str, Any]:
    """Return the columns that say which cell it is."""
    return {
        "workload": cell.workload,
        "backend": cell.backend,
        "hosts": len(cell.hosts),
        "slots": cell.slots,
        "case": names[cell],
    }


def case_names(cells: Iterable[Cell]) -> dict[Cell, str]:
    """Return for each cell its size, and its hosts and parameters where others of its workload differ."""
    members: dict[str, list[Cell]] = {}
    for cell in cells:
        members.setdefault(cell.workload, []).append(cell)
    return {cell: name for alike in members.values() for cell, name in _names(alike)}


def _names(cells: Sequence[Cell]) -> list[tuple[Cell, str]]:
    params = {cell: dict(cell.params) for cell in cells}
    known = sorted({name for given in params.values() for name in given} - {_SIZE})
    varied = [name for name in known if len({given.get(name) for given in params.values()}) > 1]
    sets: dict[tuple[str, int, int], set[tuple[str, ...]]] = {}
    for cell in cells:
        sets.setdefault(_shape(cell), set()).add(cell.hosts)
    return [(cell, " ".join(_parts(cell, varied, several=len(sets[_shape(cell)]) > 1))) for cell in cells]


def _parts(cell: Cell, varied: Sequence[str], *, several: bool) -> Iterator[str]:
    if cell.get(_SIZE) is not None:
        yield shown(cell.get(_SIZE))
    if several:
        yield "+".join(cell.hosts)
    yield from (f"{name}={cell.get(name)}" for name in varied if cell.get(name) is not None)


def _shape(cell: Cell) -> tuple[str, int, int]:
    return (cell.backend, cell.slots, len(cell.hosts))
