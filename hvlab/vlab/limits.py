"""A node's share of this machine: cores, memory, CPU weight. Control groups of version 1 and 2.

Where systemd runs this machine, the node is a unit of it, and systemd sets the limits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hvlab.base.errors import HvlabError
from hvlab.base.paths import lab_runtime_dir
from hvlab.base.ranges import format_ranges
from hvlab.lab.cores import HostCores
from hvlab.vlab import reality
from hvlab.vlab.controller import run
from hvlab.vlab.topology import FULL_WEIGHT

_CPUS = Path("/sys/devices/system/cpu")
_PROC = Path("/proc")
# cpu.shares of a group of full weight in version 1 (kernel, sched/fair: NICE_0_LOAD); in version 2 it is 100.
_FULL_SHARES = 1024
CONTROLLERS = ("cpuset", "cpu", "memory")


@dataclass(frozen=True)
class NodeLimits:
    """``cpus`` that its processes may use; ``memory`` in bytes, None for all; ``weight``, normally 100."""

    cpus: tuple[int, ...]
    memory: int | None = None
    weight: int = FULL_WEIGHT


@dataclass(frozen=True)
class Controller:
    """Where a controller of control groups is mounted, and whether as version 1 or 2."""

    mount: Path
    version: int


def machine_cpus() -> tuple[int, ...]:
    """Return the CPUs that this process may use, those of one core and one package side by side."""
    return tuple(sorted(os.sched_getaffinity(0), key=_place))


def _place(cpu: int) -> tuple[int, int, int]:
    topology = _CPUS / f"cpu{cpu}/topology"
    try:
        package, core = (int((topology / name).read_text()) for name in ("physical_package_id", "core_id"))
    except (OSError, ValueError):
        return 0, cpu, cpu
    return package, core, cpu


def host_cores(lab: str) -> dict[str, HostCores]:
    """Return the cores of each node of a lab that runs, as the kernel has them; it needs no root."""
    cores_of = {}
    for name, pids in reality.supervisors(lab_runtime_dir(lab) / "nodes").items():
        leader = reality.leader(pids[0])
        with suppress(OSError):
            if leader:
                cores_of[name] = HostCores("this machine", tuple(sorted(os.sched_getaffinity(leader))))
    return cores_of


def keep_off(hosts: Iterable[HostCores]) -> None:
    """Move this process off the cores of these hosts, where a core is left; what it starts goes along."""
    free = os.sched_getaffinity(0) - {cpu for host in hosts for cpu in host.cpus}
    if free:
        os.sched_setaffinity(0, free)


def controllers(mountinfo: str) -> dict[str, Controller]:
    """Return the controllers of this machine, by the text of /proc/self/mountinfo."""
    known: dict[str, Controller] = {}
    for line in mountinfo.splitlines():
        mounted, _, kind = line.partition(" - ")
        mount = Path(mounted.split()[4])
        if kind.startswith("cgroup "):
            known |= {
                name: Controller(mount, 1) for name in kind.split()[-1].split(",") if name in CONTROLLERS
            }
        elif kind.startswith("cgroup2 "):
            try:
                names = (mount / "cgroup.controllers").read_text().split()
            except OSError:
                names = []
            known |= {name: Controller(mount, 2) for name in names if name in CONTROLLERS}
    return known


def settings(limits: NodeLimits) -> dict[tuple[str, int], tuple[str, str]]:
    """Return the file and its content for each controller and version. Pure."""
    cpus = format_ranges(limits.cpus)
    shares = max(2, _FULL_SHARES * limits.weight // FULL_WEIGHT)
    memory = limits.memory
    return {
        ("cpuset", 1): ("cpuset.cpus", cpus),
        ("cpuset", 2): ("cpuset.cpus", cpus),
        ("cpu", 1): ("cpu.shares", str(shares)),
        ("cpu", 2): ("cpu.weight", str(limits.weight)),
        ("memory", 1): ("memory.limit_in_bytes", str(-1 if memory is None else memory)),
        ("memory", 2): ("memory.max", "max" if memory is None else str(memory)),
    }


def properties(limits: NodeLimits) -> list[str]:
    """Return the limits as properties of a unit of systemd. Pure."""
    memory = "infinity" if limits.memory is None else str(limits.memory)
    cpus = format_ranges(limits.cpus)
    return [f"AllowedCPUs={cpus}", f"MemoryMax={memory}", f"CPUWeight={limits.weight}"]


def write(group: str, limits: NodeLimits, known: Mapping[str, Controller]) -> list[str]:
    """Write the limits of a control group; return the controllers that could not be set.

    ``group`` is its path below each mount. Version 2 passes a controller on only where each group above says
    so.
    """
    failed = []
    for (name, version), (file, content) in settings(limits).items():
        controller = known.get(name)
        if controller is None or controller.version != version:
            failed += [name] if controller is None and name not in failed else []
            continue
        try:
            if version == 2:  # noqa: PLR2004
                _pass_on(controller.mount, Path(group), name)
            (controller.mount / group / file).write_text(content, encoding="ascii")
        except OSError:
            failed.append(name)
    return failed


def _pass_on(mount: Path, group: Path, controller: str) -> None:
    for above in reversed(group.parents):
        control = mount / above / "cgroup.subtree_control"
        if controller not in control.read_text(encoding="ascii").split():
            control.write_text(f"+{controller}", encoding="ascii")


def blocking(mount: Path, group: str, controller: str) -> Path | None:
    """Return the group above this one that does not pass a controller on, in version 2; None if all do."""
    for above in reversed(Path(group).parents):
        control = mount / above / "cgroup.subtree_control"
        if control.exists() and controller not in control.read_text(encoding="ascii").split():
            return mount / above
    return None


def unit_of(cgroup: str) -> str | None:
    """Return the unit of systemd that a process belongs to, by the text of its /proc/<pid>/cgroup. Pure.

    The innermost: where this machine is a container, the units around it stand before its own.
    """
    for line in cgroup.splitlines():
        for part in reversed(line.split(":", 2)[-1].split("/")):
            if part.endswith((".scope", ".service")) and part != "init.scope":
                return part
    return None


def apply(name: str, group: str, leader: int, limits: NodeLimits, *, unit: bool) -> list[str]:
    """Give a node its limits; return those of cpuset, cpu and memory that failed.

    ``leader`` is the pid of its PID 1; ``unit``: systemd runs this machine. The kernel has the last word:
    whether the cores hold is read back from the node.
    Raises HvlabError if memory cannot be limited: a host promised less might take all.
    """
    known: Mapping[str, Controller] = {}
    if unit:
        own_unit = unit_of((_PROC / str(leader) / "cgroup").read_text(encoding="utf-8"))
        failed = [] if own_unit else list(CONTROLLERS)
        if own_unit:
            run(["systemctl", "set-property", "--runtime", own_unit, *properties(limits)])
    else:
        known = controllers((_PROC / "self/mountinfo").read_text(encoding="utf-8"))
        failed = write(group, limits, known)
    if "memory" in failed and limits.memory is not None:
        raise HvlabError(
            f"{name}: its memory cannot be limited to {limits.memory} bytes",
            remedy=_memory_remedy(known.get("memory"), group),
        )
    held = os.sched_getaffinity(leader) == set(limits.cpus)
    failed = [part for part in failed if part != "cpuset"] + ([] if held else ["cpuset"])
    relevant = {"cpuset": True, "cpu": limits.weight != FULL_WEIGHT, "memory": limits.memory is not None}
    return [part for part in failed if relevant[part]]


def _memory_remedy(controller: Controller | None, group: str) -> str:
    folder = None
    if controller and controller.version == 2:  # noqa: PLR2004
        folder = blocking(controller.mount, group, "memory")
    if folder:
        return (
            "the kernel passes limits on only from a control group without processes of its own: move those "
            f"in {folder / 'cgroup.procs'} to a new group below it, or leave --memory and lab_memory out"
        )
    return (
        "set a limit above what it uses now, or leave --memory and lab_memory out; "
        "a lab that an earlier hvlab booted needs `hvlab lab down` first"
    )


def remarks(failed: Sequence[str], limits: NodeLimits) -> str:
    """Return a warning about limits that are not in force; empty if all are. Pure."""
    texts = {
        "cpuset": f"could not be kept on the cores {format_ranges(limits.cpus)}",
        "cpu": f"could not be given the CPU weight {limits.weight}",
    }
    return "; ".join(texts[part] for part in failed if part in texts)
