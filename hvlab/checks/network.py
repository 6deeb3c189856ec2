"""The ranks' network: interface, address, MTU, and TCP in each direction."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.base.errors import Problem
from hvlab.checks.before import PreflightLab, inside, preflight
from hvlab.checks.names import Attempt, Listening, read_meeting
from hvlab.checks.provisioned import Question, Role, RoleHost, run
from hvlab.checks.site import HostFault, HostReplies, Site

_MTU = "network mtu"
_LOOPBACK = "network loopback"
# An attempt counts if the other host listened for that long meanwhile, by their clocks.
_TOGETHER_S = 3.0


# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {
    "interface-missing": "",
    "loopback-down": "",
    "mtu-differs": "",
    "mtu-black-hole": "",
    "tcp-firewall": "",
}


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask for the interfaces' MTU; the meeting is asked with the names."""
    return {_MTU: {"read": "/sys/class/net/*/mtu"}, _LOOPBACK: {"read": "/sys/class/net/lo/operstate"}}


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Judge the interfaces, then the ways between hosts."""
    yield from _interfaces(site, every)
    yield from _ways(site, every)


def _interfaces(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    for name, replies in every.items():
        if "down" in replies.files(_LOOPBACK).values():
            yield HostFault("loopback-down", name, "the interface lo is down")
    sizes: dict[str, str] = {}
    for host in site.hosts:
        files = every[host.name].files(_MTU) if host.name in every else {}
        there = {
            path.split("/")[-2]: mtu for path, mtu in files.items() if path.startswith("/sys/class/net/")
        }
        if there and host.interface not in there:
            observed = f"there is no interface {host.interface} (lab_interface); there are {', '.join(there)}"
            yield HostFault("interface-missing", host.name, observed)
        elif there and host.interface != "lo":
            sizes[host.name] = there[host.interface]
    if len(set(sizes.values())) > 1:
        ((usual, _),) = Counter(sizes.values()).most_common(1)
        listing = ", ".join(f"{name} {mtu}" for name, mtu in sizes.items())
        odd = [name for name, mtu in sizes.items() if mtu != usual]
        # With two hosts, either may be wrong.
        named = odd if list(sizes.values()).count(usual) > len(odd) else list(sizes)
        interface = {host.name: host.interface for host in site.hosts}
        yield from (HostFault("mtu-differs", name, f"MTU of {interface[name]}: {listing}") for name in named)


def _ways(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    meetings = {name: each for name, replies in every.items() if (each := read_meeting(replies))}
    address = {host.name: host.addresses[0] for host in site.hosts}
    for name, each in meetings.items():
        for other, attempt in each.met.items():
            if other not in meetings or not _has_listened(attempt, meetings[other].listening):
                continue
            way = f"from {name} to {other} ({address[other]})"
            back = meetings[other].met.get(name)
            returning = f"; from {other} to {name} it passes" if back and back.outcome == "met" else ""
            if attempt.outcome == "stalled":
                observed = f"{way} a connection opens, but 256 KiB do not arrive within 10 s{returning}"
                yield HostFault("mtu-black-hole", name, observed)
            elif attempt.outcome in ("timed out", "refused", "rejected"):
                how = f"{attempt.outcome} {attempt.error}".strip()
                yield HostFault("tcp-firewall", name, f"{way} TCP port {site.port}: {how}{returning}")


def _has_listened(attempt: Attempt, listening: Listening) -> bool:
    together = min(attempt.ended, listening.ended) - max(attempt.began, listening.began)
    return not listening.error and together >= _TOGETHER_S


def asks(node: RoleHost) -> dict[str, Question]:
    return {"addresses": run(["ip", "-o", "-4", "addr", "show", "dev", node.variables["lab_interface"]])}


PREFLIGHT = Role("preflight", asks)


@PREFLIGHT.check
def lab_interface_has_an_address(node: RoleHost) -> None:
    interface = node.variables["lab_interface"]
    node.expect(
        "inet " in node["addresses"]["out"],
        f"interface {interface} has no IPv4 address: {node['addresses']['err'].strip()}",
        "set lab_interface to the interface the ranks talk over; `ip -br addr` lists them",
    )


@preflight
def check_interface(lab: PreflightLab) -> Iterator[Problem]:
    """Yield hosts without the lab's interface, or without the lab's network on it."""
    shared = [{name for name in n.own.get("interfaces") or {} if n.on_network(name)} for n in lab.hosts]
    common = sorted(set.intersection(*shared)) if shared else []
    choice = f"set lab_interface to {' or '.join(common)}, which all hosts have" if common else ""
    for host in lab.hosts:
        network, interface = host.network, host.interface
        links = host.own.get("interfaces")
        if host.alone and ipaddress.ip_network(network).is_loopback:
            continue
        if links is None:
            yield Problem(host.name, "its interfaces cannot be read", "install iproute2 on it")
        elif interface not in links:
            has = ", ".join(f"{name} ({', '.join(v['cidrs']) or 'no address'})" for name, v in links.items())
            remedy = choice or f"set lab_interface to the one that carries {network}, the same on every host"
            yield Problem(host.name, f"it has no interface {interface}, it has {has or 'none'}", remedy)
        elif not links[interface]["up"]:
            yield Problem(
                host.name, f"{interface} is down", f"ip link set {interface} up, and check its cable"
            )
        elif not host.on_network(interface):
            remedy = choice or f"give {interface} an address there, or change lab_network"
            yield Problem(host.name, f"{interface} has no address in lab_network {network}", remedy)
        elif inside(host.address, network) and host.address not in host.on_network(interface):
            carried = ", ".join(host.on_network(interface))
            observed = f"{interface} carries {carried}, the inventory says {host.address}"
            yield Problem(host.name, observed, "correct ansible_host")
