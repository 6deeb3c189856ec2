"""Names: their resolution on each host, each host's own, and duplicates."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.base.answers.shapes import HostAnswer, Number
from hvlab.base.errors import Problem
from hvlab.base.groups import grouped
from hvlab.checks.before import PreflightHost, PreflightLab, SoftProblem, preflight
from hvlab.checks.programs import source
from hvlab.checks.provisioned import Question, Role, RoleHost, run
from hvlab.checks.site import TRIED, HostFault, HostReplies, Site
from hvlab.lab.inventory_rules import is_valid_name

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*", re.I)
_MEETING = "meeting"
_ADDRESSES = "addresses"


class Resolved(HostAnswer):
    """The addresses of a name, or the error."""

    addresses: list[str]
    error: str


class Attempt(HostAnswer):
    """The outcome of an attempt to reach another host; times are by this host's clock."""

    outcome: str
    error: str
    began: Number
    ended: Number


class Listening(HostAnswer):
    """When a host listened, or why it could not."""

    error: str
    began: Number
    ended: Number


class Meeting(HostAnswer):
    """The output of ``programs/meet.py``."""

    hostname: str
    names: dict[str, Resolved]
    met: dict[str, Attempt]
    listening: Listening


# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {
    "name-not-resolved": "common",
    "name-wrong-address": "",
    "gloo-loopback": "",
    "address-twice": "",
    "hostname-invalid": "",
    "hostname-twice": "",
}


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


def read_meeting(replies: HostReplies) -> Meeting | None:
    """Return the outcome of a host's meeting with the others; None without one."""
    shown: Meeting | None = replies.parse(_MEETING, Meeting)
    return shown


def faults(site: Site, replies: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Judge each host's own name, then its resolution of the others' names."""
    meetings = {name: each for name, own in replies.items() if (each := read_meeting(own))}
    yield from _check_own(site, meetings)
    pattern = re.compile(r"\binet6? ([0-9a-f.:]+)[/ ]")
    addresses = {name: set(pattern.findall(own.output(_ADDRESSES))) for name, own in replies.items()}
    for host in site.hosts:
        for other in site.hosts:
            twice = {*host.addresses} & addresses.get(other.name, set()) - {*other.addresses}
            for address in sorted(twice) if addresses.get(host.name, set()) & {*host.addresses} else ():
                observed = f"{other.name} has {address}, which is the address of {host.name}"
                yield HostFault("address-twice", other.name, observed)
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
            elif _is_loopback(there.addresses[0]) or (
                known and there.addresses[0].partition("%")[0] not in right
            ):
                observed = f"{host.name} resolves to {', '.join(there.addresses)}, not to {host.addresses[0]}"
                yield HostFault("name-wrong-address", name, observed)


def _check_own(site: Site, meetings: Mapping[str, Meeting]) -> Iterator[HostFault]:
    for name, each in meetings.items():
        if not _NAME.fullmatch(each.hostname):
            yield HostFault("hostname-invalid", name, f"its hostname is {each.hostname[:80]!r}")
        own = each.names.get(each.hostname)
        if len(site.hosts) > 1 and own and own.addresses and _is_loopback(own.addresses[0]):
            observed = f"its own name {each.hostname} resolves to {own.addresses[0]}"
            yield HostFault("gloo-loopback", name, observed)
    for hostname, names in grouped((each.hostname, name) for name, each in meetings.items()).items():
        if len(names) > 1:
            observed = f"hostname is {hostname} on {', '.join(names)}"
            yield from (HostFault("hostname-twice", name, observed) for name in names)


def _is_loopback(address: str) -> bool:
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


def asks(node: RoleHost) -> dict[str, Question]:
    return {"names": run(["python3", "-c", RESOLVE, *node.peers])}


COMMON = Role("common", asks)


@COMMON.check
def every_name_resolves_to_the_lab_address(node: RoleHost) -> None:
    resolved = json.loads(node.output("names", "run role common, which writes /etc/hosts"))
    wrong = [
        f"{peer} resolves to {', '.join(resolved[peer]) or 'nothing'}, not {address}"
        for peer, address in node.peers.items()
        if resolved[peer] != [address]
    ]
    node.expect(not wrong, "; ".join(wrong), "run role common, which writes /etc/hosts")


def asks_of_itself(node: RoleHost) -> dict[str, Question]:
    own = node.variables["inventory_hostname"]
    return {"hostname": run(["hostname"]), "own address": run(["getent", "ahostsv4", own])}


def _explain_unnamed(node: RoleHost) -> str:
    return "no other host asks for its name" if node.alone else ""


PREFLIGHT = Role("preflight", asks_of_itself, skip=_explain_unnamed)


@PREFLIGHT.check
def host_name_matches_the_inventory(node: RoleHost) -> None:
    name = node.output("hostname", "install the package hostname").strip()
    node.expect(
        node.name in (name, name.partition(".")[0]) or name == node.name.partition(".")[0],
        f"its host name is {name}",
        f"`hostnamectl set-hostname {node.name}`, or rename it in the inventory",
    )


@PREFLIGHT.check
def own_name_is_no_loopback(node: RoleHost) -> None:
    addresses = {line.split()[0] for line in node["own address"]["out"].splitlines()}
    node.expect(
        addresses and not any(address.startswith("127.") for address in addresses),
        f"its own name {node.name} resolves to {', '.join(sorted(addresses)) or 'nothing'}",
        # cloud-init appends the line; only `manage_etc_hosts: true` has a template.
        "where cloud-init adds it at each boot (manage_etc_hosts: localhost), take update_etc_hosts out of "
        "/etc/cloud/cloud.cfg. Take the name out of the 127.* lines of /etc/hosts, then run role common",
    )


# The address that Debian's installer and cloud-init give a host's own name.
_OWN_NAME = "127.0.1.1"
_RENAME = "give it a unique name of letters, digits and hyphens: hostnamectl set-hostname {}"


@preflight
def check_names(lab: PreflightLab) -> Iterator[Problem]:
    """Yield machines whose own name is invalid, or used by another machine."""
    names = grouped((str(host.facts.get("hostname", "")).lower(), host.name) for host in lab.hosts)
    for host in lab.hosts:
        name, short = str(host.facts.get("nodename", "")), str(host.facts.get("hostname", "")).lower()
        others = [other for other in names[short] if other != host.name]
        remedy = _RENAME.format(host.name)
        if not is_valid_name(name) or short == "localhost":
            yield Problem(host.name, f"its own host name is {name!r}", remedy)
        elif short != name.split(".", maxsplit=1)[0].lower():
            yield Problem(host.name, f"its own host name is {name!r}, and {short!r} for short", remedy)
        # check_claims reports a name that the inventory gives to another host.
        elif others and short not in {host.name.split(".")[0].lower(), *(other.lower() for other in others)}:
            yield Problem(host.name, f"its own host name {name} is also that of {', '.join(others)}", remedy)


@preflight
def check_claims(lab: PreflightLab) -> Iterator[Problem]:
    """Yield hosts that claim the name or address of another: they would get its certificate."""
    owners = {
        called.lower(): name for name, target in lab.reached.items() for called in (name, target or name)
    }
    for host in lab.hosts:
        # Behind one address, ports distinguish hosts, as the inventory says.
        for claim in sorted(host.claims - {host.address}):
            owner = owners.get(claim.lower(), host.name)
            if owner != host.name:
                observed = f"it goes by {claim}, which is {owner}'s in the inventory"
                yield Problem(host.name, observed, _RENAME.format(host.name))
    places = grouped(
        (host.lab_address, host.name)
        for host in lab.hosts
        if host.lab_address and host.lab_address != host.address
    )
    for address, names in places.items():
        if len(names) > 1:
            yield Problem(", ".join(names), f"they have one address: {address}", "give each its own address")


@preflight
def check_recorded(lab: PreflightLab) -> Iterator[Problem]:
    """Yield hosts that recorded different addresses of a host that is left out here."""
    for name in lab.reached.keys() - {host.name for host in lab.hosts}:
        recorders: dict[str, str] = {}
        for host in lab.hosts:
            if name in host.recorded_hosts:
                recorders.setdefault(str(host.recorded_hosts[name]["address"]), host.name)
        if len(recorders) > 1:
            differing = ", ".join(f"{address} ({recorder})" for address, recorder in recorders.items())
            observed = f"earlier runs recorded different addresses of {name}: {differing}"
            remedy = f"run for all hosts, or set ansible_host of {name} to its address in lab_network"
            yield Problem(", ".join(recorders.values()), observed, remedy)


@preflight
def check_resolution(lab: PreflightLab) -> Iterator[Problem]:
    """Yield names that resolve to an address other than the lab's, softly where the role common fixes that.

    Where it manages names, it writes them on a host that is new, writes its own lines of /etc/hosts
    again, and drops what Debian's installer and cloud-init write of a host's own name.
    """
    for host in lab.hosts:
        if host.alone:
            continue
        for peer, addresses in (json.loads(host.own.get("resolves") or "{}") or {}).items():
            expected = lab.entries.get(peer, lab.entries.get(host.name, {})).get("address")
            local = [a for a in addresses or [] if ipaddress.ip_address(a).is_loopback]
            if addresses and expected and (local or expected not in addresses):
                written_again = {_OWN_NAME, expected, *_read_own_lines(host, peer)}
                mends = lab.limits.names_managed and (not host.recorded or set(addresses) <= written_again)
                observed = f"{peer} resolves to {', '.join(addresses)}, not to {expected}"
                remedy = "remove that line from /etc/hosts there, or correct its name server"
                written = "nothing: the role common writes the lab's names in this run"
                yield (
                    SoftProblem(host.name, observed, written)
                    if mends
                    else Problem(host.name, observed, remedy)
                )


def _read_own_lines(host: PreflightHost, name: str) -> set[str]:
    files = (host.facts.get("hvlab_managed") or {}).get("files") or {}
    text = str((files.get("/etc/hosts") or {}).get("text") or "")
    lines = [
        line.split() for line in text.partition("# BEGIN hvlab")[2].partition("# END hvlab")[0].splitlines()
    ]
    return {words[0] for words in lines if name in words[1:]}
