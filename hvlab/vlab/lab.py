"""The virtual lab as a whole: up, down, status. Each starts from the lab's real state and completes it."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from hvlab.base.errors import HvlabError, UnreachableError, UsageError
from hvlab.base.files import lock
from hvlab.base.paths import trust_dir
from hvlab.base.sudo import as_caller
from hvlab.lab.inventory import Lab
from hvlab.vlab import boot, enter_cgroup, keys, limits, links, network, reality, ssh
from hvlab.vlab import node as machines
from hvlab.vlab.boot import Boot, Report
from hvlab.vlab.controller import discard
from hvlab.vlab.node import Node
from hvlab.vlab.plan import LabPlan, check_machine, check_names


@dataclass(frozen=True)
class NodeStatus:
    """The state of a node: up, down or half. ``since`` is in seconds since the epoch.

    ``cores`` are those that its processes may use, read from its PID 1, and ``shared_with`` the other nodes
    that may use some of them. ``memory`` is in bytes. None means unlimited. ``link_lost``: the link
    lost its limits or its rack since ``up``, as when the host rebooted itself; they are None then.
    """

    host: str
    address: str
    state: str
    pid: int | None
    since: float | None
    release: str | None
    cores: tuple[int, ...] | None = None
    shared_with: tuple[str, ...] = ()
    memory: int | None = None
    cpu_weight: int | None = None
    up: str | None = None
    down: str | None = None
    delay: str | None = None
    loss: str | None = None
    rack: str | None = None
    link_lost: bool = False


def up(plan: LabPlan, *, report: Report) -> list[str]:
    """Boot the nodes of the plan that do not run yet; called again it repairs what is not right.

    Returns the limits not in force, a line each. ``report`` gets (host, step), the host "" being the lab.
    Raises HvlabError.
    """
    check_machine()
    allowed = plan.limits(limits.machine_cpus())
    links.check(plan.topology)
    check_names(plan)
    os.umask(0o022)
    with _disk_errors(), _lock_lab(plan, report):
        routes = network.is_router(plan.runtime.parent)
        network.ensure(plan.lab, plan.network, routes=routes, racks=len(plan.topology.racks))
        network.set_kernel(plan.runtime.parent)
        report("", "network is up")
        return Boot(plan, allowed, report).all()


def down(lab: Lab, plan: LabPlan, *, report: Report) -> bool:
    """Remove everything ``up`` made, even by a killed call; return whether there was anything."""
    check_machine()
    existed = plan.runtime.exists() or network.exists(plan.lab)
    with _disk_errors(), _lock_lab(plan, report):
        nodes = _existing_nodes(plan)
        for node in nodes:
            report(node.name, "stop")
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(machines.stop, nodes))
        machines.unmount(plan.runtime)
        network.remove(plan.lab)
        for hierarchy in enter_cgroup.hierarchies():
            machines.remove_group(hierarchy / "hvlab" / plan.lab)
            with suppress(OSError):
                (hierarchy / "hvlab").rmdir()
        discard(plan.runtime)
        network.restore_kernel(plan.runtime.parent)
    if all(host.virtual for host in lab.hosts):
        forget(plan.lab)
    return existed


def forget(lab: str) -> None:
    """Remove a lab's keys, with the rights of the person in whose home they are."""
    with as_caller():
        shutil.rmtree(trust_dir(lab), ignore_errors=True)


def _existing_nodes(plan: LabPlan) -> list[Node]:
    """Return the nodes with anything left, whatever the inventory says now."""
    nodes = plan.runtime / "nodes"
    names = {*reality.supervisors(nodes), *reality.members(nodes), *(path.name for path in nodes.glob("*"))}
    return [Node(plan.lab, name, "", 0, nodes / name) for name in sorted(names)]


def _lock_lab(plan: LabPlan, report: Report) -> AbstractContextManager[None]:
    return lock(plan.runtime, waiting=lambda: report("", "wait for another hvlab on this lab"))


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HvlabError(
            f"this machine: {error.filename or 'a file'}: {error.strerror}",
            remedy="free some space or correct the permissions, then run the command again: it resumes here",
        ) from error


def status(plan: LabPlan) -> list[NodeStatus]:
    """Return the state of each node; it needs no root."""
    running = reality.supervisors(plan.runtime / "nodes")
    settings = boot.read_settings(plan.runtime)
    with ThreadPoolExecutor(max_workers=32) as pool:
        rows = list(pool.map(lambda node: _status(node, running.get(node.name, [])), plan.nodes))
    cores_of = {host: held.cpus for host, held in limits.host_cores(plan.lab).items()}
    return [_add_limits(row, cores_of, settings.get(row.host, {})) for row in rows]


def _add_limits(
    row: NodeStatus, cores_of: Mapping[str, tuple[int, ...]], settings: Mapping[str, Any]
) -> NodeStatus:
    own = cores_of.get(row.host)
    if row.pid is None or own is None:
        return row
    others = (host for host, cores in cores_of.items() if host != row.host and set(own) & set(cores))
    lost = boot.has_lost_link(settings)
    names = ("memory", "cpu_weight") if lost else ("memory", "cpu_weight", *boot.OF_LINK)
    known: dict[str, Any] = {name: settings.get(name) for name in names}
    return replace(row, cores=own, shared_with=tuple(sorted(others)), link_lost=lost, **known)


def _status(node: Node, pids: list[int]) -> NodeStatus:
    pid = pids[0] if pids else None
    if pid is not None and ssh.listens(node):
        state = "up"
    else:
        state = "half" if pid is not None or node.record() else "down"
    return NodeStatus(
        host=node.name,
        address=node.address,
        state=state,
        pid=pid,
        since=time.time() - reality.age(pid) if pid is not None else None,
        release=node.record().get("release") or None,
    )


def ssh_argv(plan: LabPlan, host: str, command: tuple[str, ...]) -> list[str]:
    """Return the ssh command that logs in to a node as root, strictly, and runs ``command`` there.

    Raises UsageError for a host that is not a virtual one, UnreachableError for one that is not up.
    """
    node = next((node for node in plan.nodes if node.name == host), None)
    if node is None:
        known = ", ".join(node.name for node in plan.nodes)
        raise UsageError(f"{host} is not a virtual host of this inventory", remedy=f"choose one of {known}")
    directory = plan.runtime / "ssh"
    key = directory / keys.LOGIN_KEY
    running = host in reality.supervisors(plan.runtime / "nodes")
    # A machine that runs may be slow to answer where much else runs, and its sshd may just be restarting.
    if not directory.exists() or not running or not ssh.listens(node, seconds=30, patience=5):
        raise UnreachableError(f"{host} ({node.address}) is not up", remedy="run `hvlab lab up`")
    if not os.access(key, os.R_OK):
        raise HvlabError(
            f"the lab's key {key} belongs to another user",
            remedy="run this as the user that ran `hvlab lab up`, or with sudo",
        )
    options = [f"UserKnownHostsFile={directory / ssh.KNOWN_HOSTS}", "GlobalKnownHostsFile=none"]
    options += ["StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "PasswordAuthentication=no"]
    options += ["ConnectionAttempts=5"]
    argv = ["ssh", "-F", "none", "-i", str(key), "-p", str(node.port)]
    argv += [word for option in options for word in ("-o", option)]
    # ssh joins its words with spaces, and the shell there splits them again. One word alone is a line for it.
    line = command if len(command) <= 1 else (shlex.join(command),)
    return [*argv, f"root@{node.address}", *line]
