"""Names: what they resolve to on each host, each host's own, and whether two hosts have one."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.base.answers.shapes import HostAnswer, Number
from hvlab.checks.programs import source
from hvlab.checks.provisioned import Node, Question, Role, run
from hvlab.checks.replies import HostReplies
from hvlab.checks.site import TRIED, HostFault, Site

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*", re.I)
_MEETING = "meeting"
_ADDRESSES = "addresses"


class Resolved(HostAnswer):
    """What a name resolved to."""

    addresses: list[str]
    error: str


class Attempt(HostAnswer):
    """How an attempt to reach another host ended, and from when to when, by this host's clock."""

    outcome: str
    error: str
    began: Number
    ended: Number


class Listening(HostAnswer):
    """Why a host could not listen, or from when to when it did."""

    error: str
    began: Number
    ended: Number


class Meeting(HostAnswer):
    """What ``programs/meet.py`` prints."""

    hostname: str
    names: dict[str, Resolved]
    met: dict[str, Attempt]
    listening: Listening


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask for names, addresses and a meeting with the next hosts."""
    seconds = 20 + len(site.hosts)
    given = {
        "hosts": [{"name": host.name, "address": host.addresses[0]} for host in site.hosts],
        "tried": min(TRIED, len(site.hosts) - 1),
        "port": site.port,
        "seconds": seconds,
    }
    argv = ["python3", "-c", source("meet"), "@HOST@", json.dumps(given)]
    return {
        _MEETING: {"run": argv, "timeout": seconds + 30},
        _ADDRESSES: {"run": ["ip", "-o", "addr", "show"], "timeout": 5},
    }


def meeting(replies: HostReplies) -> Meeting | None:
    """Return what came of a host's meeting with the others."""
    document = replies.document(_MEETING, Meeting)
    return Meeting.model_validate(document) if document else None


def _own_addresses(replies: HostReplies) -> set[str]:
    return set(re.findall(r"\binet6? ([0-9a-f.:]+)[/ ]", replies.output(_ADDRESSES)))


def faults(site: Site, replies: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Judge each host's own name, then what the others' names resolve to there."""
    meetings = {name: each for name, own in replies.items() if (each := meeting(own))}
    yield from _own(site, meetings)
    addresses = {name: _own_addresses(own) for name, own in replies.items()}
    for host in site.hosts:
        known = addresses.get(host.name)
        right = {*(known or ()), *host.addresses}
        for name, each in meetings.items():
            there = each.names.get(host.name)
            if name == host.name or there is None:
                continue
            if not there.addresses:
                if site.names_managed:
                    yield HostFault(
                        "name-not-resolved", name, f"{host.name} does not resolve: {there.error}", "common"
                    )
            elif _loopback(there.addresses[0]) or (
                known and there.addresses[0].partition("%")[0] not in right
            ):
                observed = f"{host.name} resolves to {', '.join(there.addresses)}, not to {host.addresses[0]}"
                yield HostFault("name-wrong-address", name, observed)


def _own(site: Site, meetings: Mapping[str, Meeting]) -> Iterator[HostFault]:
    alike: dict[str, list[str]] = {}
    for name, each in meetings.items():
        alike.setdefault(each.hostname, []).append(name)
        if not _NAME.fullmatch(each.hostname):
            yield HostFault("hostname-invalid", name, f"its hostname is {each.hostname[:80]!r}")
        own = each.names.get(each.hostname)
        if len(site.hosts) > 1 and own and own.addresses and _loopback(own.addresses[0]):
            observed = f"its own name {each.hostname} resolves to {own.addresses[0]}"
            yield HostFault("gloo-loopback", name, observed)
    for hostname, names in alike.items():
        if len(names) > 1:
            observed = f"hostname is {hostname} on {', '.join(names)}"
            yield from (HostFault("hostname-twice", name, observed) for name in names)


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


# All names in one question: with one for each, the argument of many hosts is longer than Linux takes.
RESOLVE = """\
import json, socket, sys

def addresses(name):
    try:
        return sorted({info[4][0] for info in socket.getaddrinfo(name, None, socket.AF_INET)})
    except OSError:
        return []

print(json.dumps({name: addresses(name) for name in sys.argv[1:]}))
"""


def asks(node: Node) -> dict[str, Question]:
    return {"names": run(["python3", "-c", RESOLVE, *node.peers])}


COMMON = Role("common", asks)


@COMMON.check
def every_name_resolves_to_the_lab_address(node: Node) -> None:
    resolved = json.loads(node.output("names", "run role common, which writes /etc/hosts"))
    wrong = [
        f"{peer} resolves to {', '.join(resolved[peer]) or 'nothing'}, not {address}"
        for peer, address in node.peers.items()
        if resolved[peer] != [address]
    ]
    node.expect(not wrong, "; ".join(wrong), "run role common, which writes /etc/hosts")


def asks_of_itself(node: Node) -> dict[str, Question]:
    own = node.variables["inventory_hostname"]
    return {"hostname": run(["hostname"]), "own address": run(["getent", "ahostsv4", own])}


def _unnamed(node: Node) -> str:
    return "no other host asks for its name" if node.alone else ""


PREFLIGHT = Role("preflight", asks_of_itself, skip=_unnamed)


@PREFLIGHT.check
def host_name_matches_the_inventory(node: Node) -> None:
    name = node.output("hostname", "install the package hostname").strip()
    node.expect(
        node.name in (name, name.partition(".")[0]) or name == node.name.partition(".")[0],
        f"its host name is {name}",
        f"`hostnamectl set-hostname {node.name}`, or rename it in the inventory",
    )


@PREFLIGHT.check
def own_name_is_no_loopback(node: Node) -> None:
    addresses = {line.split()[0] for line in node["own address"]["out"].splitlines()}
    node.expect(
        addresses and not any(address.startswith("127.") for address in addresses),
        f"its own name {node.name} resolves to {', '.join(sorted(addresses)) or 'nothing'}",
        "take the name out of the 127.* lines of /etc/hosts, then run role common",
    )
