"""The network that the ranks of some hosts can talk over, chosen from their facts. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any, TypeVar

from hvlab.base.errors import Problem

# A host's interface name goes into the inventory, whose values are templates.
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
Place = TypeVar("Place", bound=Hashable)


@dataclass(frozen=True)
class Link:
    """An interface of a host that is up, with one of its addresses; the speed is 0 where it is not known."""

    interface: str
    address: IPv4Interface
    speed_mbit: int


@dataclass(frozen=True)
class RankNetwork:
    """A network and the name of the interface to it; ``others`` would have served as well.

    Where the hosts are in several networks, ``network`` holds all of them, and ``routed`` says so.
    """

    network: IPv4Network
    interface: str
    others: tuple[tuple[str, IPv4Network], ...] = ()
    problems: tuple[Problem, ...] = ()
    routed: tuple[Problem, ...] = ()


def choose(facts: Mapping[str, Mapping[str, Any]], addresses: Mapping[str, str]) -> RankNetwork | None:
    """Return the network that all hosts have on an interface of one name; None where none has any address.

    Among several: the fastest if all speeds are known, else the one with the hosts' ``addresses``. If there
    is none: the nearest candidate, with its problems.
    """
    links = {host: list(_links(of_host.get("hvlab") or {})) for host, of_host in facts.items()}
    blind = tuple(
        Problem(
            host,
            "its network interfaces cannot be read, or none is up",
            "install iproute2 there; look at `ip addr`",
        )
        for host, of_host in links.items()
        if not of_host
    )
    links = {host: of_host for host, of_host in links.items() if of_host}
    if not links:
        return None
    common = _common(links, lambda link: (link.interface, link.address.network))
    if not common:
        nearest = _nearest(links, addresses)
        return replace(nearest, problems=(*blind, *nearest.problems))
    preference = _preference(common.values(), addresses)
    best, *others = sorted(common, key=lambda place: preference(common[place]), reverse=True)
    return RankNetwork(best[1], best[0], tuple(others), blind)


def _links(facts: Mapping[str, Any]) -> Iterator[Link]:
    speeds = {nic.get("name"): nic.get("speed_mbit") or 0 for nic in facts.get("nics") or []}
    for name, interface in (facts.get("interfaces") or {}).items():
        if not interface.get("up") or not _INTERFACE.fullmatch(name):
            continue
        for cidr in interface.get("cidrs") or []:
            address = ipaddress.ip_interface(cidr)
            if isinstance(address, IPv4Interface):
                yield Link(name, address, speeds.get(name, 0))


def _common(
    links: Mapping[str, Sequence[Link]], place: Callable[[Link], Place]
) -> dict[Place, dict[str, Link]]:
    """Return each host's link in each place that all hosts have, with different addresses.

    The bridges of docker and libvirt have one and the same address everywhere.
    """
    places: dict[Place, dict[str, Link]] = {}
    for host, of_host in links.items():
        for link in of_host:
            places.setdefault(place(link), {}).setdefault(host, link)
    return {
        name: chosen
        for name, chosen in places.items()
        if len(chosen) == len(links) == len({link.address.ip for link in chosen.values()})
    }


def _nearest(links: Mapping[str, Sequence[Link]], addresses: Mapping[str, str]) -> RankNetwork:
    """Return the interface that most hosts are reached on, and a network that holds the addresses there."""
    routed_over = _common(links, lambda link: link.interface).values()
    reached = max(routed_over, key=_preference(routed_over, addresses), default=None) or {
        host: next((link for link in of_host if str(link.address.ip) == addresses.get(host)), of_host[0])
        for host, of_host in links.items()
    }
    interface = Counter(link.interface for link in reached.values()).most_common(1)[0][0]
    network = _covering(
        [link.address.ip for link in reached.values()],
        shortest=min(link.address.network.prefixlen for link in reached.values()),
    )
    problems = [
        Problem(
            host,
            f"it is on {link.interface} in {network}, most hosts on {interface}",
            "give it one name on every host (a systemd .link file), then correct lab_interface",
        )
        for host, link in reached.items()
        if link.interface != interface
    ]
    users: dict[IPv4Address, list[str]] = {}
    for host, link in reached.items():
        users.setdefault(link.address.ip, []).append(host)
    remedy = "give each its own address, or set lab_network and lab_interface to what has one"
    problems += [
        Problem(", ".join(hosts), f"they have one address on {interface}: {address}", remedy)
        for address, hosts in users.items()
        if len(hosts) > 1
    ]
    networks = {link.address.network for link in reached.values()}
    routed: tuple[Problem, ...] = ()
    # Clouds give each host a network of its own, and route between them.
    if len(networks) > 1 and any(one.prefixlen != one.max_prefixlen for one in networks):
        listing = ", ".join(sorted(map(str, networks)))
        observed = f"they share no network: {listing}; lab_network is {network}, which holds all of them"
        remedy = "check that they reach one another, or set lab_network"
        routed = (Problem(", ".join(reached), observed, remedy),)
    return RankNetwork(network, interface, problems=tuple(problems), routed=routed)


def _preference(
    common: Collection[Mapping[str, Link]], addresses: Mapping[str, str]
) -> Callable[[Mapping[str, Link]], tuple[int, int, int]]:
    """Return a key that sorts the best first: the fastest if all speeds are known, else by ``addresses``."""
    known = all(link.speed_mbit for chosen in common for link in chosen.values())

    def key(chosen: Mapping[str, Link]) -> tuple[int, int, int]:
        speed = min(link.speed_mbit for link in chosen.values())
        reached = sum(str(link.address.ip) == addresses.get(host) for host, link in chosen.items())
        return (speed if known else 0, reached, speed)

    return key


def _covering(addresses: Sequence[IPv4Address], *, shortest: int) -> IPv4Network:
    """Return the smallest network that holds these addresses, of at most this prefix length."""
    for length in range(shortest, -1, -1):
        network = IPv4Network((addresses[0], length), strict=False)
        if all(address in network for address in addresses):
            return network
    raise AssertionError("0.0.0.0/0 holds every address")
