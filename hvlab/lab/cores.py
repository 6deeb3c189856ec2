"""Which cores each virtual host gets, and whether ranks have a core each. Pure.

A core is one CPU as Linux numbers them, a hardware thread where the processor has several to a core.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvlab.base.errors import UsageError
from hvlab.base.groups import grouped

ALL = "all"


def deal(requested: Mapping[str, int | str | None], cpus: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the cores of each host, in the order of the hosts, while there are enough.

    ``requested`` is a number of cores, ``all``, or None for an equal part (at least one core). Beyond the
    cores, a number of them is dealt again from the first, which is steadiest (docs/virtual-lab.md), and None
    gets all cores: builds run there, and use them.
    Raises UsageError if a host asks for more cores than there are.
    """
    for host, count in requested.items():
        if isinstance(count, int) and count > len(cpus):
            raise UsageError(
                f"{host}: {count} cores requested, this machine has {len(cpus)}",
                remedy=f"set --cpus or lab_cpus to at most {len(cpus)}, or to all",
            )
    rest = len(cpus) - sum(count for count in requested.values() if isinstance(count, int))
    unset = sum(count is None for count in requested.values())
    part = max(1, rest // unset) if unset else 1
    cores: dict[str, tuple[int, ...]] = {}
    used = 0
    for host, count in requested.items():
        number = count if isinstance(count, int) else part
        if count == ALL or (count is None and used + number > len(cpus)):
            cores[host] = tuple(cpus)
        else:
            cores[host] = tuple(sorted(cpus[place % len(cpus)] for place in range(used, used + number)))
            used += number
    return cores


def fair_shares(cores: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Return the part of a core that one busy thread of each host gets on average."""
    return {
        host: statistics.mean(
            _fair_share([len(held) for other, held in cores.items() if other != host and cpu in held])
            for cpu in cpus
        )
        for host, cpus in cores.items()
    }


def _fair_share(others: Sequence[int]) -> float:
    # Chances that 0, 1, ... of the others are on this core.
    chances = [1.0]
    for count in others:
        away, here = [*chances, 0.0], [0.0, *chances]
        chances = [(away[n] * (count - 1) + here[n]) / count for n in range(len(away))]
    return sum(chance / (1 + n) for n, chance in enumerate(chances))


@dataclass(frozen=True)
class HostCores:
    """The cores that the processes of a host may use; hosts of one ``machine`` share its CPUs."""

    machine: str
    cpus: tuple[int, ...]


def crowding(hosts: Mapping[str, HostCores], slots: int) -> str | None:
    """Return a case's shortage of cores, such as ``3 ranks on 2 cores (n1, n2, n3)``; None without one.

    ``hosts`` are those of the case, each with ``slots`` ranks. Cores may be short on one host alone, or on
    all hosts of one machine together.
    """
    groups: list[dict[str, HostCores]] = [{host: cores} for host, cores in hosts.items()]
    machines: dict[str, dict[str, HostCores]] = {}
    for host, cores in hosts.items():
        machines.setdefault(cores.machine, {})[host] = cores
    worst: tuple[float, str] | None = None
    for group in [*machines.values(), *groups]:
        count = len({cpu for cores in group.values() for cpu in cores.cpus})
        ranks = slots * len(group)
        if count and ranks > count and (worst is None or ranks / count > worst[0]):
            noun = "core" if count == 1 else "cores"
            worst = ranks / count, f"{ranks} ranks on {count} {noun} ({', '.join(group)})"
    return worst[1] if worst else None


def sharing(hosts: Mapping[str, HostCores]) -> str | None:
    """Return own or shared: whether hosts of one machine have cores in common.

    None where no machine has several hosts.
    """
    by_machine = grouped((cores.machine, set(cores.cpus)) for cores in hosts.values())
    groups = [sets for sets in by_machine.values() if len(sets) > 1]
    if not groups:
        return None
    distinct = all(len(set().union(*sets)) == sum(map(len, sets)) for sets in groups)
    return "own" if distinct else "shared"
