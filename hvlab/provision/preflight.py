"""Check hosts from their facts before anything is changed. Pure, but for reading the clock."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from hvlab.errors import Problem
from hvlab.lab.inventory_rules import valid_name
from hvlab.resolver import catalogue
from hvlab.resolver.facts import HostFacts, supported_systems, system_of

TMP = "/tmp"  # noqa: S108


@dataclass(frozen=True)
class Node:
    """One host as it was found; `facts` are Ansible's facts without prefix."""

    name: str
    facts: Mapping[str, Any]
    address: str | None
    network: str
    interface: str
    port: int = 22
    # The only host, and the machine the playbook runs on.
    alone: bool = False

    @property
    def seen(self) -> Mapping[str, Any]:
        """Return the facts of our own."""
        found: Mapping[str, Any] = self.facts.get("hvlab", {})
        return found

    @property
    def recorded(self) -> Mapping[str, Any]:
        """Return what the role common wrote down on this host in an earlier run."""
        local = self.facts.get("ansible_local", {}).get("hvlab_common", {})
        return local if isinstance(local, Mapping) else {}

    def on_network(self, interface: str) -> list[str]:
        """Return the addresses an interface has in the lab's network."""
        found = (self.seen.get("interfaces") or {}).get(interface, {})
        network = ipaddress.ip_network(self.network)
        addresses = [cidr.split("/")[0] for cidr in found.get("cidrs", [])]
        return [address for address in addresses if ipaddress.ip_address(address) in network]

    @property
    def lab_address(self) -> str | None:
        """Return the address ranks use: the inventory's where that is in the lab's network."""
        carried = self.on_network(self.interface)
        return self.address if self.address in carried or not carried else carried[0]


@dataclass(frozen=True)
class Limits:
    """What is asked of hosts; disk space in MiB, times in seconds.

    ``supported``: distribution -> versions; without any, the systems of the catalogue.
    """

    clock_offset_max: float = 5.0
    disk_free_mb: Mapping[str, int] = field(default_factory=dict)
    disk_spare_mb: int = 0
    python_min: str = "3.8"
    gcc_skew: str = "warning"
    supported: Mapping[str, list[str]] = field(default_factory=dict)
    names_managed: bool = True


def check_system(nodes: list[Node], limits: Limits) -> Iterator[Problem]:
    """Yield hosts whose operating system or Python is not supported."""
    for node in nodes:
        name, version = node.facts.get("distribution", "?"), node.facts.get("distribution_version", "?")
        major = node.facts.get("distribution_major_version", "?")
        if limits.supported:
            supported = bool({version, major} & set(limits.supported.get(name, [])))
            known = "; ".join(f"{name} {', '.join(versions)}" for name, versions in limits.supported.items())
        else:
            supported = system_of(HostFacts(node.name, name, str(version)), catalogue.load()) is not None
            known = supported_systems(catalogue.load())
        if not supported:
            yield Problem(node.name, f"{name} {version}: unsupported OS", f"supported are: {known}")
        python = str(node.facts.get("python_version", "0"))
        if _numbers(python) < _numbers(limits.python_min):
            remedy = f"install {limits.python_min} or later and set ansible_python_interpreter for the host"
            yield Problem(node.name, f"its Python is {python}", remedy)


def check_names(nodes: list[Node]) -> Iterator[Problem]:
    """Yield machines whose own name is not valid, or another machine's."""
    bearers: dict[str, list[str]] = {}
    for node in nodes:
        bearers.setdefault(str(node.facts.get("hostname", "")).lower(), []).append(node.name)
    for node in nodes:
        name, short = str(node.facts.get("nodename", "")), str(node.facts.get("hostname", "")).lower()
        others = [other for other in bearers[short] if other != node.name]
        remedy = (
            f"give it one of letters, digits and hyphens of its own: hostnamectl set-hostname {node.name}"
        )
        if not valid_name(name) or short == "localhost":
            yield Problem(node.name, f"its own host name is {name!r}", remedy)
        elif others and short != node.name.split(".")[0].lower():
            yield Problem(node.name, f"its own host name {name} is also that of {', '.join(others)}", remedy)


def check_resolution(nodes: list[Node], hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Yield names that resolve to something else than the lab address; unknown names will be written."""
    for node in nodes:
        if node.alone:
            continue
        for peer, addresses in (node.seen.get("resolves") or {}).items():
            wanted = hosts.get(peer, hosts.get(node.name, {})).get("address")
            local = [a for a in addresses or [] if ipaddress.ip_address(a).is_loopback]
            if addresses and wanted and (local or wanted not in addresses):
                seen = f"{peer} resolves to {', '.join(addresses)}, not to {wanted}"
                remedy = "remove that line from /etc/hosts there, or correct its name server"
                yield Problem(node.name, seen, remedy)


def check_clocks(nodes: list[Node], offset_max: float, *, received: float) -> Iterator[Problem]:
    """Yield clocks that are off by more than `offset_max` seconds for certain.

    A node's reading was taken at an unknown moment between the controller's `sent` and `received`.
    """
    timed = [n for n in nodes if n.seen.get("sent") is not None]
    least = {n.name: n.seen["now"] - received for n in timed}
    most = {n.name: n.seen["now"] - n.seen["sent"] for n in timed}
    remedy = "set the clock and keep it so: timedatectl set-ntp true"
    off = False
    for name, ahead in least.items():
        seconds = max(ahead, -most[name])
        if seconds > offset_max:
            off = True
            how = "ahead of" if ahead > 0 else "behind"
            yield Problem(name, f"its clock is at least {seconds:.0f} s {how} the controller's", remedy)
    if timed and not off:
        first, last = max(least, key=least.__getitem__), min(most, key=most.__getitem__)
        if least[first] - most[last] > offset_max:
            seen = f"their clocks are at least {least[first] - most[last]:.0f} s apart"
            yield Problem(f"{first}, {last}", seen, remedy)


def check_tmp(nodes: list[Node]) -> Iterator[Problem]:
    """Yield hosts on which ranks cannot write to /tmp or run from it."""
    for node in nodes:
        tmp = node.seen.get("tmp") or {"writable": False}
        if not tmp["writable"]:
            yield Problem(node.name, f"{TMP} cannot be written", "see df /tmp and findmnt /tmp on it")
            continue
        if tmp["noexec"]:
            yield Problem(
                node.name, f"{TMP} is mounted noexec", "mount -o remount,exec /tmp, and mend /etc/fstab"
            )
        if int(tmp["mode"], 8) & 0o1777 != 0o1777:  # noqa: PLR2004
            yield Problem(node.name, f"{TMP} has mode {tmp['mode']}", "chmod 1777 /tmp")


def check_disk(nodes: list[Node], limits: Limits) -> Iterator[Problem]:
    """Yield file systems with too little room; a host that has the software needs less."""
    for node in nodes:
        measured = {
            path: free for path, free in node.seen.get("disk_free_mb", {}).items() if free is not None
        }
        for path, wanted in limits.disk_free_mb.items():
            need = min(wanted, limits.disk_spare_mb) if node.seen.get("packs") else wanted
            here = PurePosixPath(path)
            nearest = next((str(p) for p in (here, *here.parents) if str(p) in measured), None)
            if nearest is not None and measured[nearest] < need:
                seen = f"{path} has {measured[nearest]} MiB free, {need} are needed"
                yield Problem(node.name, seen, "free some, or change preflight_disk_free_mb")


def check_interface(nodes: list[Node]) -> Iterator[Problem]:
    """Yield hosts without the lab's interface, or where it does not carry the lab's network."""
    shared = [{name for name in n.seen.get("interfaces") or {} if n.on_network(name)} for n in nodes]
    common = sorted(set.intersection(*shared)) if shared else []
    choice = f"set lab_interface to {' or '.join(common)}, which all hosts have" if common else ""
    for node in nodes:
        network, wanted = node.network, node.interface
        links = node.seen.get("interfaces")
        if node.alone and ipaddress.ip_network(network).is_loopback:
            continue
        if links is None:
            yield Problem(node.name, "its interfaces cannot be read", "install iproute2 on it")
        elif wanted not in links:
            has = ", ".join(f"{name} ({', '.join(v['cidrs']) or 'no address'})" for name, v in links.items())
            remedy = choice or f"set lab_interface to the one that carries {network}, the same on every host"
            yield Problem(node.name, f"it has no interface {wanted}, it has {has or 'none'}", remedy)
        elif not links[wanted]["up"]:
            yield Problem(node.name, f"{wanted} is down", f"ip link set {wanted} up, and see its cable")
        elif not node.on_network(wanted):
            remedy = choice or f"give {wanted} an address there, or change lab_network"
            yield Problem(node.name, f"{wanted} has no address in lab_network {network}", remedy)
        elif _inside(node.address, network) and node.address not in node.on_network(wanted):
            seen = f"{wanted} carries {', '.join(node.on_network(wanted))}, the inventory says {node.address}"
            yield Problem(node.name, seen, "correct ansible_host")


def check_host_key(nodes: list[Node]) -> Iterator[Problem]:
    """Yield hosts without the key that the lab's trust rests on."""
    for node in nodes:
        if not node.alone and not node.seen.get("ssh_host_key"):
            yield Problem(node.name, "sshd has no Ed25519 host key", "ssh-keygen -A, then restart sshd")


def check_gcc(nodes: list[Node]) -> Iterator[Problem]:
    """Yield hosts whose compiler differs in its major version from that of the most hosts."""
    majors = {node.name: node.seen["gcc"].split(".")[0] for node in nodes if node.seen.get("gcc")}
    if len(set(majors.values())) > 1:
        usual = Counter(majors.values()).most_common(1)[0][0]
        for name, major in majors.items():
            if major != usual:
                remedy = f"install gcc {usual}; software is built once per version otherwise"
                yield Problem(name, f"gcc {major}, the other hosts have {usual}", remedy)


def check(
    nodes: list[Node], hosts: Mapping[str, Mapping[str, Any]], limits: Limits
) -> tuple[list[Problem], list[Problem]]:
    """Return what stops a run, and what only deserves a warning."""
    new = [node for node in nodes if limits.names_managed and not node.recorded]
    errors = [
        *check_system(nodes, limits),
        *check_names(nodes),
        *check_resolution([node for node in nodes if node not in new], hosts),
        *check_clocks(nodes, limits.clock_offset_max, received=time.time()),
        *check_tmp(nodes),
        *check_disk(nodes, limits),
        *check_interface(nodes),
        *check_host_key(nodes),
    ]
    mended = "nothing: the role common writes the lab's names in this run"
    warnings = [replace(problem, remedy=mended) for problem in check_resolution(new, hosts)]
    skew = [] if limits.gcc_skew == "ignore" else list(check_gcc(nodes))
    return (errors + skew, warnings) if limits.gcc_skew == "error" else (errors, warnings + skew)


def missing(names: list[str], present: list[str]) -> list[Problem]:
    """Return a problem that names the hosts that did not get as far as their facts."""
    lost = [name for name in names if name not in present]
    if not lost:
        return []
    seen = "could not be reached, or the facts could not be read (the lines above say why)"
    without = ":".join(["all", *(f"!{name}" for name in lost)])
    return [
        Problem(", ".join(lost), seen, f"see that ssh gets in there, or go on without: --limit '{without}'")
    ]


def lab_hosts(nodes: list[Node], addresses: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
    """Return name -> address, alias and port of all hosts of the inventory, also of those left out here.

    `addresses` gives what the inventory says of each; what an earlier run recorded helps out.
    """
    recorded: dict[str, Any] = {}
    for node in nodes:
        recorded |= node.recorded.get("hosts", {})
    hosts = {}
    for name, address in addresses.items():
        plain: dict[str, Any] = {"address": address, "aliases": [], "port": 22}
        hosts[name] = {**plain, **recorded.get(name, {})}
    for node in nodes:
        other = {node.facts.get("nodename"), node.facts.get("hostname"), node.address}
        aliases = sorted(str(alias) for alias in other - {node.name, node.lab_address, None})
        hosts[node.name] = {"address": node.lab_address, "aliases": aliases, "port": node.port}
    return {name: host for name, host in hosts.items() if host["address"]}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


def _inside(address: str | None, network: str) -> bool:
    try:
        return ipaddress.ip_address(str(address)) in ipaddress.ip_network(network)
    except ValueError:
        return False
