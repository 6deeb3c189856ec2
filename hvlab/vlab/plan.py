"""The virtual lab that a call asks for, and whether this machine can run it. Changes nothing."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from hvlab.base.errors import UsageError
from hvlab.base.paths import lab_runtime_dir
from hvlab.lab import cores
from hvlab.lab.inventory import Host, Lab
from hvlab.vlab import names, topology
from hvlab.vlab.controller import PATH
from hvlab.vlab.limits import NodeLimits
from hvlab.vlab.node import Node
from hvlab.vlab.topology import FULL_WEIGHT, LinkLimits, Topology

_INTERFACE = "host0"
# Minimum number of nodes for which common files should exist only once.
_MANY = 8
_TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "ip": "iproute2",
    "tc": "iproute2",
    "ssh-keygen": "openssh-client",
    "mount": "mount",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}


@dataclass(frozen=True)
class LabPlan:
    """A virtual lab to boot; ``release`` is None where the lab may keep the one it has.

    ``cores`` are requested: a number, ``all``, or None for an equal part. ``memory`` is in bytes.
    """

    lab: str
    runtime: Path
    network: IPv4Network
    nodes: tuple[Node, ...]
    release: str | None = None
    rate: str | None = None
    topology: Topology = field(default_factory=Topology)
    cores: Mapping[str, int | str | None] = field(default_factory=dict)
    memory: Mapping[str, int | None] = field(default_factory=dict)

    def link(self, host: str) -> LinkLimits:
        """Return the limits of a host's link."""
        return self.topology.links.get(host, LinkLimits()).over(self.topology.link)

    def advice(self) -> list[str]:
        """Return advice that would make this lab faster, a line each."""
        if len(self.nodes) < _MANY or any(
            _packs(self.runtime) in node.shared.values() for node in self.nodes
        ):
            return []
        return [
            f"each of these {len(self.nodes)} hosts gets 1 GB of packs; with `lab_shared_packs: /srv/hvlab` "
            "in the inventory they have one copy together, and are provisioned sooner"
        ]

    def pairs(self, host: str) -> dict[str, str]:
        """Return the rates of what a host sends to single others, by their address."""
        address_of = {node.name: node.address for node in self.nodes}
        return {
            address_of[pair.target]: pair.rate
            for pair in self.topology.pairs
            if pair.source == host and pair.target in address_of
        }

    def limits(self, cpus: tuple[int, ...]) -> dict[str, NodeLimits]:
        """Return each host's share of a machine with these CPUs; raises UsageError."""
        dealt = cores.deal({node.name: self.cores.get(node.name) for node in self.nodes}, cpus)
        weights = self.topology.weights
        return {
            name: NodeLimits(own, self.memory.get(name), weights.get(name, FULL_WEIGHT))
            for name, own in dealt.items()
        }


def make_plan(
    lab: Lab,
    *,
    count: int | None = None,
    release: str | None = None,
    rate: str | None = None,
    cpus: str | None = None,
    memory: str | None = None,
    topology_file: Path | None = None,
) -> LabPlan:
    """Return the lab that the inventory and options ask for; raises one UsageError with all problems."""
    plan = plan_without_limits(lab)
    hosts = [host for host in lab.hosts if host.virtual]
    if count is not None and not 1 <= count <= len(hosts):
        raise UsageError(f"--nodes {count}: the inventory has {len(hosts)} virtual hosts")
    release = release or _text(lab, "lab_release")
    links = _topology(lab, topology_file)
    # An option of the command line outranks the file, the file an inventory's variable.
    rate = rate or links.link.up or _text(lab, "lab_rate")
    if rate:
        names.rate(rate)
    booted = hosts[:count]
    return replace(
        plan,
        nodes=plan.nodes[:count],
        release=names.release(release) if release else None,
        rate=rate,
        topology=replace(links, link=LinkLimits(rate, rate)),
        cores={host.name: _cores(cpus or host.text("lab_cpus")) for host in booted},
        memory={host.name: _memory(memory or host.text("lab_memory")) for host in booted},
    )


def _packs(runtime: Path) -> Path:
    return runtime / "shared/packs"


def plan_without_limits(lab: Lab) -> LabPlan:
    """Return the hosts of the inventory and their network alone; raises UsageError like ``make_plan``.

    To look at a lab, or to remove it, nothing has to be right that only ``up`` sets.
    """
    names.check_lab_name(lab.name)
    hosts = [host for host in lab.hosts if host.virtual]
    if not hosts:
        raise UsageError(
            f"the inventory {lab.source} has no virtual hosts",
            remedy="put the hosts that `hvlab lab up` is to boot into the group `virtual`",
        )
    network = IPv4Network(lab.network)
    problems = [problem for host in hosts for problem in _problems(host, network)]
    if problems:
        raise UsageError(f"the inventory {lab.source} cannot be booted:\n" + "\n".join(problems))
    runtime = lab_runtime_dir(lab.name)
    shared = {"/home": runtime / "shared/home"} if lab.shared_home else {}
    if lab.shared_packs:
        shared[lab.shared_packs] = _packs(runtime)
    nodes = tuple(
        Node(lab.name, host.name, host.address, host.port, runtime / "nodes" / host.name, shared)
        for host in hosts
    )
    return LabPlan(lab=lab.name, runtime=runtime, network=network, nodes=nodes)


def _topology(lab: Lab, file: Path | None) -> Topology:
    named = _text(lab, "lab_topology")
    if file is None and named:
        folder = lab.source if lab.source.is_dir() else lab.source.parent
        file = folder / named
    hosts = [host.name for host in lab.hosts if host.virtual]
    return topology.load(file, hosts) if file else Topology()


def _cores(text: str | None) -> int | str | None:
    if text is None or text == cores.ALL:
        return text
    if not re.fullmatch("[0-9]{1,6}", text) or int(text) < 1:
        raise UsageError(
            f"--cpus or lab_cpus is {text!r}", remedy=f"write a whole number of cores, or {cores.ALL}"
        )
    return int(text)


def _memory(text: str | None) -> int | None:
    return None if text is None else names.memory(text)


def check_machine(*, root: bool | None = None, path: str = PATH) -> None:
    """Raise UsageError when hvlab does not run as root, or a program is missing."""
    if not (os.geteuid() == 0 if root is None else root):
        again = shlex.join(["sudo", "-E", sys.executable, "-m", "hvlab", *sys.argv[1:]])
        raise UsageError(
            "the virtual lab needs root: it makes mounts, a network bridge and a firewall table",
            remedy=f"run `{again}`",
        )
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        packages = dict.fromkeys(_TOOLS[tool] for tool in missing)
        raise UsageError(
            f"the virtual lab needs programs that this machine does not have: {', '.join(missing)}",
            remedy=f"run `sudo apt-get install {' '.join(packages)}` (or the like for your distribution)",
        )


def check_names(plan: LabPlan) -> None:
    """Raise UsageError when a machine of another lab has the name of one of the plan's: the two would mix."""
    own = {names.machine(plan.lab, node.name): node.name for node in plan.nodes}
    for directory in sorted(plan.runtime.parent.glob("*/nodes/*")):
        lab, host = directory.parents[1].name, directory.name
        name = names.machine(lab, host)
        if lab != plan.lab and name in own:
            raise UsageError(
                f"{own[name]} of lab {plan.lab} and {host} of lab {lab} would both be the machine {name}",
                remedy=f"choose another lab_name or host name, or remove lab {lab} with `hvlab lab down`",
            )


def _problems(host: Host, network: IPv4Network) -> Iterable[str]:
    try:
        address = IPv4Address(host.address)
    except ValueError:
        yield f"  {host.name}: ansible_host is {host.address}, not an IPv4 address"
        return
    if address not in network:
        yield f"  {host.name}: {address} is not in lab_network {network}"
    elif address in (network.network_address, network.broadcast_address):
        yield f"  {host.name}: {address} is the network's own or broadcast address; choose one between"
    elif str(address) == names.gateway(network):
        yield f"  {host.name}: {address} is the bridge's address (the first of lab_network); choose another"
    interface = host.vars.get("lab_interface", _INTERFACE)
    if interface != _INTERFACE:
        yield f"  {host.name}: lab_interface is {interface}, but a virtual machine's is {_INTERFACE}"


def _text(lab: Lab, name: str) -> str | None:
    """Return a variable of the lab that may stand on the virtual hosts only."""
    values = [host.vars[name] for host in lab.hosts if host.virtual and name in host.vars]
    return str(values[0]) if values else None
