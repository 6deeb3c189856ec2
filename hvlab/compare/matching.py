"""Which cells of two runs are the same measurement, and what else differs between the runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from hvlab.compare.measurements import Measurements, whole
from hvlab.results.configurations import Cell, Measured


@dataclass(frozen=True)
class Match:
    """A cell with what either run measured of it; ``cell`` is as A has it."""

    cell: Cell
    a: Measured
    b: Measured


@dataclass(frozen=True)
class Matches:
    """The cells of two runs: those of both, and those of only one."""

    both: tuple[Match, ...]
    only_a: tuple[Cell, ...]
    only_b: tuple[Cell, ...]


def match(a: Measurements, b: Measurements) -> Matches:
    """Return the cells of two runs side by side.

    They are the same if all that was asked for is; between runs that share no host, if as many hosts took
    part; where one was imported, if they have the same backend and the parameters that both runs tell. A case
    that failed before its first size is matched with every size the other run has of it.
    """
    left, right = _keyed(a, b), _keyed(b, a)
    found = [(cell, right.get(key) or right.get(whole(key))) for key, cell in left.items()]
    pairs = [(cell, other) for cell, other in found if other is not None]
    pairs += [
        (left[whole(key)], cell) for key, cell in right.items() if key not in left and whole(key) in left
    ]
    used_a, used_b = {one for one, _ in pairs}, {other for _, other in pairs}
    return Matches(
        tuple(Match(_sized(one, other), a.cells[one], b.cells[other]) for one, other in pairs),
        tuple(cell for cell in a.cells if cell not in used_a),
        tuple(cell for cell in b.cells if cell not in used_b),
    )


def differences(a: Measurements, b: Measurements) -> list[str]:
    """Return in words what differs between two runs beside what is compared."""
    return [
        *([f"lab: {a.lab} in A, {b.lab} in B"] if a.lab != b.lab else []),
        *_of_hosts(a, b),
        *_of_origin(a, b),
        *_of_stacks(a, b),
        *_of_parameters(a, b),
    ]


def _keyed(run: Measurements, other: Measurements) -> dict[Cell, Cell]:
    """Return the cells by what has to be the same; the first of several that are alike but for the rest."""
    told = _told(run), _told(other)
    found: dict[Cell, Cell] = {}
    for cell in run.cells:
        key = cell
        if not run.hosts & other.hosts:
            key = dataclasses.replace(key, hosts=("",) * len(cell.hosts))
        if run.imported or other.imported:
            silent = told[0].get(cell.workload, set()) ^ told[1].get(cell.workload, set())
            key = dataclasses.replace(key, launcher="", params=key.without(*silent))
        found.setdefault(key, cell)
    return found


def _told(run: Measurements) -> dict[str, set[str]]:
    """Return the names of the parameters that a run tells, by workload."""
    found: dict[str, set[str]] = {}
    for cell in run.cells:
        found.setdefault(cell.workload, set()).update(name for name, _ in cell.params if name != "size_bytes")
    return found


def _sized(a: Cell, b: Cell) -> Cell:
    """Return A's cell, with the size where only B's has one."""
    size = b.get("size_bytes")
    if size is None or a.get("size_bytes") is not None:
        return a
    return dataclasses.replace(a, params=tuple(sorted((*a.params, ("size_bytes", size)))))


def _of_hosts(a: Measurements, b: Measurements) -> Iterator[str]:
    if not a.hosts & b.hosts:
        names = [", ".join(sorted(side.hosts)) for side in (a, b)]
        yield f"hosts: {names[0]} in A, {names[1]} in B; cells are matched by the number of hosts"


def _of_origin(a: Measurements, b: Measurements) -> Iterator[str]:
    imported = " and ".join(name for name, run in (("A", a), ("B", b)) if run.imported)
    if imported:
        yield f"imported: {imported}; cells are matched by backend, size and what else both runs tell"


def _of_stacks(a: Measurements, b: Measurements) -> Iterator[str]:
    for part in sorted(a.stack.keys() | b.stack.keys()):
        one, other = (" and ".join(side.stack.get(part, ())) or "none" for side in (a, b))
        if one != other:
            yield f"{part}: {one} in A, {other} in B"


def _of_parameters(a: Measurements, b: Measurements) -> Iterator[str]:
    """Yield the parameters that no case of A has in common with a case of B: those keep cells apart."""
    known = _values(a), _values(b)
    for workload, name in sorted(known[0].keys() | known[1].keys()):
        one, other = (side.get((workload, name), set()) for side in known)
        measured = workload in {key[0] for key in known[0]} & {key[0] for key in known[1]}
        if measured and not one & other:
            told = [", ".join(sorted(values)) or "none" for values in (one, other)]
            yield f"{workload}: {name} is {told[0]} in A, {told[1]} in B"


def _values(run: Measurements) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for cell in run.cells:
        for name, value in cell.params:
            if name != "size_bytes":
                found.setdefault((cell.workload, name), set()).add(str(value))
    return found
