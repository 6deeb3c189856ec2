"""The figures of one run, in the form in which runs are compared and baselines kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.results.configurations import Configuration, Repeats, gather
from hvlab.results.store import UNKNOWN, Record, Run
from hvlab.workloads import WORKLOADS
from hvlab.workloads.command import COMMAND


@dataclass(frozen=True)
class Measurements:
    """A run's configurations; ``stack`` holds, for each part, every version that a host had."""

    run_id: str
    lab: str
    started_at: str
    stack: Mapping[str, tuple[str, ...]]
    configurations: Mapping[Configuration, Repeats]

    @property
    def hosts(self) -> set[str]:
        """Return the names of the hosts that took part."""
        return {host for configuration in self.configurations for host in configuration.hosts}

    @property
    def imported(self) -> bool:
        """Return whether the run was imported from another program's output."""
        return bool(self.configurations) and {
            configuration.launcher for configuration in self.configurations
        } == {UNKNOWN}


def measurements(run: Run, records: Sequence[Record]) -> Measurements:
    """Return what a run measured."""
    return Measurements(run.run_id, run.lab, run.started_at, _stack(records), folded(gather(records)))


def folded(configurations: Mapping[Configuration, Repeats]) -> dict[Configuration, Repeats]:
    """Return the configurations; a repeat that failed before any size counts at every size of its case."""
    sized: dict[Configuration, list[Configuration]] = {}
    for configuration in configurations:
        if configuration.get("size_bytes") is not None:
            sized.setdefault(whole(configuration), []).append(configuration)
    counted = {
        configuration: repeats
        for configuration, repeats in configurations.items()
        if configuration not in sized
    }
    for case, members in sized.items():
        failed = configurations.get(case, Repeats())
        for configuration in members:
            repeats = configurations[configuration]
            counted[configuration] = dataclasses.replace(
                repeats,
                errors={**failed.errors, **repeats.errors},
                skipped={**failed.skipped, **repeats.skipped},
            )
    return counted


def whole(configuration: Configuration) -> Configuration:
    """Return the configuration of a case as a whole, without a size."""
    return dataclasses.replace(configuration, params=configuration.without("size_bytes"))


def primary(configuration: Configuration, *measured: Repeats) -> str:
    """Return the metric that is compared unless another is asked for.

    The throughput that a command prints comes before the time of its launch, where all ``measured`` have it.
    """
    command = configuration.workload == COMMAND.name
    if command and measured and all(each.of("throughput") for each in measured):
        return "throughput"
    return WORKLOADS[configuration.workload].primary if configuration.workload in WORKLOADS else "time"


def _stack(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    versions: dict[str, set[str]] = {}
    for record in records:
        for part, value in record.stack.items():
            versions.setdefault(part, set()).update(_versions(value))
    return {part: tuple(sorted(values)) for part, values in versions.items()}


def _versions(value: Any) -> set[str]:
    """Return the versions of a part of the stack, which are by host where they differ."""
    return {str(item) for item in value.values()} if isinstance(value, Mapping) else {str(value)}
