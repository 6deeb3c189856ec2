"""Bring the nodes of a lab up, all at the same time, and wait until each lets us log in."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hvlab.base.errors import HvlabError, UnreachableError, UsageError
from hvlab.vlab import image, keys, limits, links, names, network, packages, reality, ssh
from hvlab.vlab import node as machines
from hvlab.vlab.controller import close, discard, succeeds, write
from hvlab.vlab.limits import NodeLimits
from hvlab.vlab.node import Node
from hvlab.vlab.packages import NodeConfig
from hvlab.vlab.plan import LabPlan
from hvlab.vlab.topology import LinkLimits

T = TypeVar("T")
Report = Callable[[str, str], None]
# A node needs two on a quiet machine, and far more while others build and boot.
BOOT_SECONDS = 120.0
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.05
# Settings of each node and link by the last `up`, for `status`.
_SETTINGS = "settings.json"
OF_LINK = ("up", "down", "delay", "loss", "rack")


class Boot:
    """One call of ``up`` once the network stands; ``report`` gets (host, step), the host "" being the lab."""

    def __init__(self, plan: LabPlan, allowed: Mapping[str, NodeLimits], report: Report) -> None:
        self.plan = plan
        self.limits = allowed
        self.report = report
        self.ssh = plan.runtime / "ssh"
        self.login = keys.login(self.ssh, lab=plan.lab)
        self.interrupted = threading.Event()

    def all(self) -> list[str]:
        """Start nodes that do not run or answer; return the limits not in force, a line each.

        Raises UnreachableError for the hosts that fail.
        """
        self._close()
        release = self._release()
        running = reality.supervisors(self.plan.runtime / "nodes")
        self._attach(running)
        current = [node for node in self.plan.nodes if node.name in running and self._has_its_address(node)]
        for node in current:
            machines.recover_host_key(node)
            keys.ensure(node.host_key, comment=node.name)
            machines.admit(node, self.login)
        if current:
            ssh.write_known_hosts(self.ssh, self._list_known())
        up = self._map(current, lambda node: self._answers(node, running[node.name][0]))
        stopped = [node for node in self.plan.nodes if not up.get(node.name)]
        if stopped:
            self._start(stopped, release)
        return self._limit()

    def _close(self) -> None:
        """Close folders with hosts' keys and set-uid programs to all but root; an earlier hvlab did not."""
        image.close_all()
        for name in ("nodes", "shared"):
            close(self.plan.runtime / name)
        for directory in {path for node in self.plan.nodes for path in node.shared.values()}:
            with suppress(OSError):
                (self.plan.runtime / directory.name).rename(directory)

    def _attach(self, running: Mapping[str, list[int]]) -> None:
        """Put the links of running nodes on their bridges: a rack's, or one that was lost and made again."""
        for name, pids in running.items():
            leader = reality.leader(pids[0])
            port = links.port_of(leader) if leader else None
            if port:
                rack = self.plan.topology.rack_of(name)
                links.attach(network.bridge_of(self.plan.lab, rack), port)
        # A bridge would look for a moved host behind its earlier rack until that host sends something.
        succeeds(["ip", "neigh", "flush", "dev", names.bridge(self.plan.lab)])

    def _has_its_address(self, node: Node) -> bool:
        recorded = node.record()
        return (recorded.get("address"), recorded.get("port")) == (node.address, str(node.port))

    def _answers(self, node: Node, pid: int) -> bool:
        """Whether a node that runs lets us in; one that has just been started gets time to boot."""
        up = self._wait(node, max(_ANSWER_SECONDS, BOOT_SECONDS - reality.age(pid)), None)
        self.report(node.name, "up" if up else "does not answer")
        return up

    def _start(self, nodes: Sequence[Node], release: str) -> None:
        bases = self._bases(nodes, release)
        config = packages.node_config(release)
        for node in nodes:
            node.directory.mkdir(exist_ok=True)
            machines.recover_host_key(node)
            keys.ensure(node.host_key, comment=node.name)
        ssh.write_known_hosts(self.ssh, self._list_known())
        self._map(nodes, lambda node: self._start_one(node, bases[node.name], config))

    def _start_one(self, node: Node, base: Path, config: NodeConfig) -> None:
        self.report(node.name, "make")
        machines.stop(node)
        machines.assemble(node, base)
        machines.configure(node, self.plan.network, config, login=self.login)
        child, reader = machines.start(node, config)
        self.report(node.name, "boot")
        if not self._wait(node, BOOT_SECONDS, child):
            if child.poll() is not None:
                reader.wait()
            ended = (
                f"ended with {child.returncode}" if child.poll() is not None else "does not accept our login"
            )
            raise UnreachableError(
                f"{node.name} ({node.address}) {ended}. The end of {node.console}:\n{machines.tail(node)}"
            )
        self.report(node.name, "up")

    def _wait(self, node: Node, seconds: float, child: subprocess.Popen[bytes] | None) -> bool:
        """Whether the node lets us log in within ``seconds``; at once when its process ends."""
        deadline = time.monotonic() + seconds
        while not self.interrupted.is_set() and time.monotonic() < deadline:
            if ssh.listens(node) and ssh.log_in(node, self.ssh / keys.LOGIN_KEY):
                return True
            if child is not None and child.poll() is not None:
                return False
            time.sleep(_POLL_SECONDS)
        return False

    def _release(self) -> str:
        requested = self.plan.release
        existing = [
            image.release_of(Path(node.record()["image"])) for node in self._list_known() if node.record()
        ]
        other = next(
            (release for release in existing if release and requested and release != requested), None
        )
        if other:
            raise UsageError(
                f"the lab {self.plan.lab} runs {other}, not {requested}",
                remedy=f"`hvlab lab down` first, or leave --release and lab_release at {other}",
            )
        return requested or next((release for release in existing if release), names.DEFAULT_RELEASE)

    def _bases(self, nodes: Sequence[Node], release: str) -> dict[str, Path]:
        """Return the image each node stands on: the one its files were made over, or a current one."""
        bases = {node.name: Path(node.record().get("image", "")) for node in nodes}
        lost = [node for node in nodes if not image.is_whole(bases[node.name])]
        if lost:
            current = image.ensure(packages.image_config(release), say=lambda step: self.report("", step))
            for node in lost:
                machines.stop(node)
                machines.unmount(node.directory)
                discard(node.directory)
                node.recorded.unlink(missing_ok=True)
                bases[node.name] = current
        return bases

    def _list_known(self) -> list[Node]:
        nodes = {node.name: node for node in self.plan.nodes}
        for directory in sorted((self.plan.runtime / "nodes").glob("*")):
            node = Node(self.plan.lab, directory.name, "", 0, directory)
            recorded = node.record()
            if directory.name not in nodes and recorded:
                address, port = recorded["address"], int(recorded["port"])
                nodes[directory.name] = Node(self.plan.lab, directory.name, address, port, directory)
        return list(nodes.values())

    def _limit(self) -> list[str]:
        lab, running = self.plan.lab, reality.supervisors(self.plan.runtime / "nodes")
        self._attach(running)
        for number, rack in enumerate(self.plan.topology.racks, 1):
            links.shape_uplink(*names.uplink(lab, number), rack.uplink)
        network.trim(lab, racks=len(self.plan.topology.racks))
        ports: dict[str, str] = {}
        remarks: list[str] = []
        for node in self.plan.nodes:
            leader = reality.leader(running[node.name][0])
            port = links.port_of(leader) if leader else None
            if leader and port:
                links.shape(leader, port, self.plan.link(node.name), self.plan.pairs(node.name))
                ports[node.name] = port
                own = self.limits[node.name]
                unit = machines.SYSTEMD_RUNS.is_dir()
                remark = limits.remarks(limits.apply(node.name, node.group, leader, own, unit=unit), own)
                remarks += [f"{node.name}: {remark}"] if remark else []
        _keep_settings(self.plan, self.limits, ports)
        return remarks

    def _map(self, nodes: Sequence[Node], work: Callable[[Node], T]) -> dict[str, T]:
        with ThreadPoolExecutor(max_workers=32) as pool:
            try:
                tasks = {node.name: pool.submit(work, node) for node in nodes}
                errors = [error for task in tasks.values() if (error := task.exception())]
            except BaseException:
                self.interrupted.set()
                raise
        for error in errors:
            if not isinstance(error, HvlabError):
                raise error
        if errors:
            raise UnreachableError(
                "\n".join(str(error) for error in errors),
                remedy="`hvlab lab up` tries again and keeps what works; `hvlab lab down` removes the lab",
            )
        return {name: task.result() for name, task in tasks.items()}


def _keep_settings(plan: LabPlan, limits: Mapping[str, NodeLimits], ports: Mapping[str, str]) -> None:
    """Keep the limits of the plan's nodes; those of nodes that an earlier call booted stay.

    ``ports`` are the links that were limited, by host.
    """
    settings = read_settings(plan.runtime)
    for node in plan.nodes:
        link, own = plan.link(node.name), limits[node.name]
        rack, port = plan.topology.rack_of(node.name), ports.get(node.name)
        limit = plan.topology.racks[rack - 1].uplink if rack else LinkLimits()
        uplink = min(filter(None, (limit.up, limit.down)), key=names.rate, default=None)
        settings[node.name] = {
            "memory": own.memory,
            "cpu_weight": own.weight,
            **vars(link),
            "pairs": plan.pairs(node.name),
            "rack": plan.topology.racks[rack - 1].name if rack else None,
            "uplink": uplink,
            "port": port,
            "port_index": links.index_of(port) if port else None,
            "bridge": network.bridge_of(plan.lab, rack),
        }
    write(plan.runtime / _SETTINGS, json.dumps(settings, indent=1) + "\n")


def read_settings(runtime: Path) -> dict[str, dict[str, Any]]:
    """Return the recorded settings by host; empty for a lab that is down."""
    try:
        settings: dict[str, dict[str, Any]] = json.loads((runtime / _SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return settings


def has_lost_link(settings: Mapping[str, Any]) -> bool:
    """Whether a host's link has lost its recorded limits or rack.

    Where systemd runs this machine, a host may reboot itself: it gets a new link, with another number, on the
    lab's bridge.
    """
    limited = settings.get("pairs") or any(settings.get(name) is not None for name in OF_LINK)
    # What an earlier hvlab kept names no port.
    if not limited or "port" not in settings:
        return False
    port = settings["port"]
    same = port is not None and links.index_of(port) == settings["port_index"]
    return not (same and links.is_port(settings["bridge"], port))
