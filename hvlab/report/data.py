"""All that a report is drawn from: a run's records and the files in its folder. Of no language."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvlab.model.costs import COLLECTIVES
from hvlab.report.blocks import Command
from hvlab.results.configurations import Cell, Measured, gather
from hvlab.results.store import Record, Run, Store
from hvlab.workloads.case import Infeasible

Cells = Mapping[Cell, Measured]
_BADNESS = ("ok", "skipped", "failed")

# Stands for a case's name in a command that several cases share.
_SHARED = "<case>"
_SEED = "<seed>"


@dataclass(frozen=True)
class Head:
    """A run in short. ``planned`` cases are done (``ok``, ``failed``, ``skipped``) or not reached."""

    run_id: str
    lab: str
    started_at: str
    state: str
    planned: int
    ok: int
    failed: int
    skipped: int

    @property
    def lacking(self) -> int:
        """Return how many cases were not reached."""
        return max(0, self.planned - self.ok - self.failed - self.skipped)


@dataclass(frozen=True)
class ReportData:
    """A run's figures and conditions. ``facts`` are of each host, ``commands`` those that started cases."""

    head: Head
    records: Sequence[Record]
    cells: Cells
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    commands: Sequence[Command] = ()
    infeasible: Sequence[Infeasible] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def training(self) -> dict[Cell, Measured]:
        """Return the cells of training workloads."""
        return {cell: found for cell, found in self.cells.items() if cell.workload not in COLLECTIVES}

    @property
    def collectives(self) -> dict[Cell, Measured]:
        """Return the cells of collectives."""
        return {cell: found for cell, found in self.cells.items() if cell.workload in COLLECTIVES}

    @property
    def virtual(self) -> bool:
        """Return whether hosts are containers or virtual machines of one machine, whose cores they share."""
        return any((found.get("hvlab") or {}).get("container") for found in self.facts.values())

    @property
    def on_gpus(self) -> bool:
        """Return whether a rank had a GPU: else a slot is a process on the CPU."""
        return any(cell.get("device") == "cuda" for cell in self.cells)

    @property
    def stack(self) -> dict[str, Any]:
        """Return the versions that records tell of, the last said counts."""
        told: dict[str, Any] = {}
        seen: set[int] = set()
        for record in self.records:
            if id(record.stack) not in seen:
                seen.add(id(record.stack))
                told |= record.stack
        return told


def read(store: Store, run_id: str | None = None) -> ReportData:
    """Return what there is of a run, by default the last. Raises UsageError where there is no such run."""
    run = store.run(run_id)
    records = store.records(run.run_id)
    files = _Files(store.run_folder(run.run_id))
    facts = files.json("facts.json", {})
    commands = _commands(files)
    infeasible = files.json("left-out.json", [])
    return ReportData(
        head=_head(run, records),
        records=records,
        cells=gather(records),
        facts=facts,
        commands=commands,
        infeasible=tuple(Infeasible(**item) for item in infeasible),
        unreadable=tuple(files.unreadable),
    )


def _head(run: Run, records: Sequence[Record]) -> Head:
    worst: dict[str, str] = {}
    for record in records:
        worst[record.case_id] = max(worst.get(record.case_id, "ok"), record.status, key=_BADNESS.index)
    counted = {status: sum(found == status for found in worst.values()) for status in _BADNESS}
    # A run that was read from elsewhere has cases that nobody planned.
    planned = len(worst.keys() | set(run.planned))
    return Head(run.run_id, run.lab, run.started_at, run.state, planned, **counted)


class _Files:
    """The files of a run; those that cannot be read are kept in mind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unreadable: list[str] = []

    def json(self, name: str, otherwise: Any) -> Any:
        """Return a file's content; ``otherwise`` where there is none, or nothing of that kind."""
        try:
            content = json.loads((self.folder / name).read_text("utf-8"))
        except FileNotFoundError:
            return otherwise
        except (OSError, ValueError):
            content = None
        if isinstance(content, type(otherwise)):
            return content
        self.unreadable.append(name)
        return otherwise


def _commands(files: _Files) -> tuple[Command, ...]:
    """Return every command; cases whose commands differ in their own name and seed only share one."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(files.folder.glob("*/argv.json")):
        case = path.parent.name
        argv = [str(word) for word in files.json(f"{case}/argv.json", [])]
        place = argv.index("--seed") + 1 if "--seed" in argv[:-1] else None
        seed = argv[place] if place else ""
        if place:
            argv[place] = _SEED
        env = [f"{name}={value}" for name, value in files.json(f"{case}/env.json", {}).items()]
        line = shlex.join([*(["env", *env] if env else []), *argv])
        found.setdefault(line.replace(case, _SHARED), {})[case] = seed
    return tuple(_command(line, seeds) for line, seeds in found.items())


def _command(line: str, seeds: Mapping[str, str]) -> Command:
    """Return a command of the cases that ``seeds`` names, with the case and the seed where there is one."""
    if len(seeds) == 1:
        line = line.replace(_SHARED, next(iter(seeds)))
    if len(set(seeds.values())) == 1:
        line = line.replace(shlex.quote(_SEED), next(iter(seeds.values())))
    return Command(tuple(seeds), line)
