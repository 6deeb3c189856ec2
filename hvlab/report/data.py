"""The data of a report: a run's records and the files in its folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.answers.shapes import HostAnswer
from hvlab.base.masking import mask, mask_argv
from hvlab.report import tuning
from hvlab.report.tuning import ProvedSearch
from hvlab.results.configurations import Configuration, Repeats, gather
from hvlab.results.samples import samples_of
from hvlab.results.store import UNKNOWN, Record, Run, Store
from hvlab.statistics.sequential import compare_in_looks
from hvlab.statistics.verdict import Pair, Verdict, compare_all, compare_two_runs
from hvlab.workloads.case import InfeasibleCase
from hvlab.workloads.operations import COLLECTIVES
from hvlab.workloads.samples import Iterations

Configurations = Mapping[Configuration, Repeats]
_BADNESS = ("ok", "skipped", "failed")

# The facts of a thousand hosts are in one file.
_LIMIT = 16 * answers.LIMIT
# Placeholder for the case's name in a command that several cases share.
_SHARED = "<case>"
_SEED = "<seed>"


@dataclass(frozen=True)
class Head:
    """A run in figures: ``planned`` cases that are not ok, failed or skipped are pending."""

    run_id: str
    lab: str
    started_at: str
    state: str
    planned: int
    ok: int
    failed: int
    skipped: int

    @property
    def pending(self) -> int:
        """Number of cases not run yet."""
        return max(0, self.planned - self.ok - self.failed - self.skipped)


@dataclass(frozen=True)
class ShownCommand:
    """A command with its cases; ``line`` is its environment and argv."""

    cases: tuple[str, ...]
    line: str


@dataclass(frozen=True)
class ReportData:
    """A run's figures and conditions.

    ``facts`` are by host, ``unreadable`` names damaged files, ``samples`` has the iterations of each
    configuration by repeat, if raw files exist. ``auto``: repeats ended once their question was answered;
    ``sides``: the settings of A and B; ``tuning``: the search that the run proves.
    """

    head: Head
    records: Sequence[Record]
    configurations: Configurations
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    commands: Sequence[ShownCommand] = ()
    infeasible: Sequence[InfeasibleCase] = ()
    unreadable: tuple[str, ...] = ()
    samples: Mapping[Configuration, Mapping[int, Iterations]] = field(default_factory=dict)
    auto: bool = False
    sides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tuning: ProvedSearch | None = None

    @property
    def training(self) -> dict[Configuration, Repeats]:
        """Configurations of training workloads."""
        return {
            one: repeats for one, repeats in self.configurations.items() if one.workload not in COLLECTIVES
        }

    @property
    def collectives(self) -> dict[Configuration, Repeats]:
        """Configurations of collectives."""
        return {one: repeats for one, repeats in self.configurations.items() if one.workload in COLLECTIVES}

    @property
    def virtual(self) -> bool:
        """The hosts share the cores of one machine, as virtual hosts do."""
        return "shared" in self._cores

    @property
    def own_cores(self) -> bool:
        """Hosts of one machine had cores of their own, wherever several took part."""
        return self._cores == {"own"}

    @property
    def _cores(self) -> set[str | None]:
        """How hosts of one machine had its cores: own or shared; None for separate machines."""
        several = [record.stack for record in self.records if len(record.hosts) > 1 and record.metric]
        return {stack.get("cores") for stack in several}

    @property
    def imported(self) -> bool:
        """A figure is from another program's output: its cases took no turns."""
        return any(configuration.launcher == UNKNOWN for configuration in self.configurations)

    def compare(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Return the verdict on each pair; imported figures only differ, auto is judged look by look."""
        if self.imported:
            return compare_two_runs(pairs)
        return compare_in_looks(pairs) if self.auto else compare_all(pairs)

    @property
    def on_gpus(self) -> bool:
        """A rank had a GPU; without, a slot is a process on the CPU."""
        return any(configuration.get("device") == "cuda" for configuration in self.configurations)

    @property
    def stack(self) -> dict[str, Any]:
        """Versions in the records; the last one counts."""
        versions: dict[str, Any] = {}
        merged: set[int] = set()
        for record in self.records:
            if id(record.stack) not in merged:
                merged.add(id(record.stack))
                versions |= record.stack
        return versions


class _LeftOut(HostAnswer):
    case: str
    reason: str


def read(store: Store, run_id: str | None = None) -> ReportData:
    """Return a run, by default the last. Raises UsageError if there is no such run."""
    run = store.run(run_id)
    records, spec = store.records(run.run_id), store.spec(run.run_id)[1]
    files = _Files(store.run_folder(run.run_id))
    facts = files.json("facts.json", {}, dict[str, dict[str, Any]])
    commands = _commands(files)
    infeasible = files.json("left-out.json", [], list[_LeftOut])
    return ReportData(
        head=_head(run, records),
        records=records,
        configurations=gather(records),
        facts=facts,
        commands=commands,
        infeasible=tuple(InfeasibleCase(item["case"], item["reason"]) for item in infeasible),
        unreadable=tuple(files.unreadable),
        samples=samples_of(store, records),
        auto=bool(spec.get("auto")),
        sides=spec.get("sides") or {},
        tuning=tuning.read(store.folder, run.run_id) if spec.get("sides") else None,
    )


def _head(run: Run, records: Sequence[Record]) -> Head:
    worst: dict[str, str] = {}
    for record in records:
        worst[record.case_id] = max(worst.get(record.case_id, "ok"), record.status, key=_BADNESS.index)
    counted = {status: sum(worst_status == status for worst_status in worst.values()) for status in _BADNESS}
    # An imported run has cases that were never planned.
    planned = len(worst.keys() | set(run.planned))
    return Head(run.run_id, run.lab, run.started_at, run.state, planned, **counted)


class _Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unreadable: list[str] = []

    def json(self, name: str, default: Any, shape: Any) -> Any:
        """Return a file's content; ``default`` if it is missing or not of the ``shape``."""
        try:
            return answers.read(self.folder / name, name, shape, limit=_LIMIT)
        except FileNotFoundError:
            return default
        except AnswerError:
            self.unreadable.append(name)
            return default


def _commands(files: _Files) -> tuple[ShownCommand, ...]:
    """Return every command; cases whose commands differ only in case name and seed share one."""
    seeds_by_line: dict[str, dict[str, str]] = {}
    for path in sorted(files.folder.glob("*/argv.json")):
        case = path.parent.name
        argv = [*mask_argv([str(word) for word in files.json(f"{case}/argv.json", [], list[Any])])]
        place = argv.index("--seed") + 1 if "--seed" in argv[:-1] else None
        seed = argv[place] if place else ""
        if place:
            argv[place] = _SEED
        given = mask(files.json(f"{case}/env.json", {}, dict[str, Any]))
        env = [f"{name}={value}" for name, value in given.items()]
        line = shlex.join([*(["env", *env] if env else []), *argv])
        seeds_by_line.setdefault(line.replace(case, _SHARED), {})[case] = seed
    return tuple(_command(line, seeds) for line, seeds in seeds_by_line.items())


def _command(line: str, seeds: Mapping[str, str]) -> ShownCommand:
    if len(seeds) == 1:
        line = line.replace(_SHARED, next(iter(seeds)))
    if len(set(seeds.values())) == 1:
        line = line.replace(shlex.quote(_SEED), next(iter(seeds.values())))
    return ShownCommand(tuple(seeds), line)
