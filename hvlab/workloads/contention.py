"""Whether a case had its cores for itself: time taken by others, and ranks without a core."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.answers.shapes import Count, HostAnswer
from hvlab.lab import cores
from hvlab.lab.cores import HostCores
from hvlab.workloads import answered
from hvlab.workloads.case import Case
from hvlab.workloads.outcome import CORES, Figure, Outcome, figure, host_names, output, result

METRIC = "stolen"
# Share of core time (%) from which a case is marked: others took much.
MUCH = 10.0
# Launchers may write the rank before it.
_LINE = re.compile(rf"\b{CORES}(\{{.*\}})$", re.MULTILINE)


class _Printed(HostAnswer):
    rank: Count
    own_s: answered.Change


@dataclass(frozen=True)
class Taken:
    """Time taken by others on some hosts of one machine, each in % of the cores' time.

    ``steal``: by a hypervisor; ``throttled``: by a quota; ``outside``: by other processes.
    """

    hosts: tuple[str, ...]
    steal: float
    throttled: float
    outside: float

    @property
    def total(self) -> float:
        """The sum in %."""
        return self.steal + self.throttled + self.outside


def with_contention(case: Case, outcome: Outcome, folder: Path) -> Outcome:
    """Return the outcome of a case with the sharing of its cores, if known; the same for each size."""
    counters = _read_gathered(case, folder) or _read_printed(case, folder)
    if not counters:
        return outcome
    worst = max((one.total for one in stolen_time(counters)), default=0.0)
    params = {tuple(one.params.items()): one.params for one in outcome.figures if "host" not in one.params}
    figures: list[Figure] = [figure(METRIC, worst, **own) for own in params.values()]
    hosts = {
        host: HostCores(counted["machine"], tuple(map(int, counted["cpus"])))
        for host, counted in counters.items()
    }
    versions = {**outcome.versions, **_sharing(case, hosts)}
    return replace(outcome, versions=versions, figures=(*outcome.figures, *figures))


def _sharing(case: Case, hosts: Mapping[str, HostCores]) -> dict[str, str]:
    """Return whether hosts share cores, and the ranks without a core of their own, for records."""
    if case.params.get("device") != "cpu":
        return {}
    marks = {"cores": cores.sharing(hosts), "oversubscribed": cores.crowding(hosts, case.slots)}
    return {name: text for name, text in marks.items() if text}


def stolen_time(counters: Mapping[str, Mapping[str, Any]]) -> Iterator[Taken]:
    """Yield the time others took on each machine; ``counters`` by host are from the program ``stolen``."""
    machines: dict[str, list[str]] = {}
    for host, counted in counters.items():
        machines.setdefault(counted["machine"], []).append(host)
    for hosts in machines.values():
        every = [counters[host] for host in hosts]
        cpus: dict[str, tuple[float, float]] = {}
        for counted in every:
            cpus |= counted["cpus"]
        core_s = len(cpus) * max(counted["seconds"] for counted in every)
        if not core_s:
            continue
        busy = sum(busy for busy, _ in cpus.values()) - sum(counted["own_s"] for counted in every)
        parts = (
            sum(steal for _, steal in cpus.values()),
            sum(counted["throttled_s"] for counted in every),
            busy,
        )
        # Ticks are coarse: the case's own time may slightly exceed the counted one.
        yield Taken(tuple(hosts), *(min(100.0, max(0.0, 100 * part / core_s)) for part in parts))


def _read_gathered(case: Case, folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the counters of each host under the inventory's name, which the host might not know."""
    try:
        written = result(case, folder)
    except AnswerError:
        return {}
    names = host_names(case, written)
    return {names.get(node, node): counted for node, counted in (written.get("stolen") or {}).items()}


def _read_printed(case: Case, folder: Path) -> dict[str, Mapping[str, Any]]:
    counters: dict[str, dict[str, Any]] = {}
    computed: dict[str, float] = {}
    for line in _LINE.findall(output(folder)):
        try:
            counted = answers.load(line, "a rank", _Printed)
            host = case.hosts[counted["rank"] // case.slots]
            computed[host] = computed.get(host, 0.0) + counted["own_s"]
        except (AnswerError, IndexError):
            # The script's own output may be mixed into the line.
            return {}
        if answers.mismatch(counted, answered.Counted) is None:
            counters[host] = counted
    if counters.keys() != set(case.hosts):
        return {}
    return {host: {**counted, "own_s": computed[host]} for host, counted in counters.items()}
