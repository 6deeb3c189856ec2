"""The stage before the roles: hosts by their facts, and the requirements of role preflight.

The judges stand with their subjects; :mod:`hvlab.checks.preflight` calls them in turn.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvlab.base import answers
from hvlab.base.answers.shapes import HostAnswer, NotNegative
from hvlab.base.errors import Problem
from hvlab.checks.node.limits import CLOCK_OFFSET_S
from hvlab.lab.inventory_rules import is_valid_name


@dataclass(frozen=True)
class PreflightHost:
    """One host in preflight; `facts` are Ansible's facts without prefix."""

    name: str
    facts: Mapping[str, Any]
    address: str | None
    network: str
    interface: str
    port: int = 22
    # The only host, and the machine the playbook runs on.
    alone: bool = False
    # In group gpu.
    gpu: bool = False

    @property
    def own(self) -> Mapping[str, Any]:
        """Return hvlab's own facts."""
        own: Mapping[str, Any] = self.facts.get("hvlab") or {}
        return own

    @property
    def claims(self) -> set[str]:
        """Return the names that the host gives itself, and its address in the lab's network."""
        names = {self.facts.get("nodename"), self.facts.get("hostname"), self.lab_address}
        return {str(name) for name in names if name}

    @property
    def recorded_hosts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the lab's hosts as this one recorded them."""
        hosts: Mapping[str, Mapping[str, Any]] = self.recorded.get("hosts", {})
        return hosts

    @property
    def recorded(self) -> Mapping[str, Any]:
        """Return the record that an earlier run of role common left on this host."""
        return self._recorded_by("hvlab_common")

    @property
    def authority(self) -> str | None:
        """Return the fingerprint of the users' authority that the role ssh_trust gave this host."""
        return self._recorded_by("hvlab_ssh_trust").get("authority")

    def _recorded_by(self, role: str) -> Mapping[str, Any]:
        local = (self.facts.get("ansible_local") or {}).get(role)
        return local if isinstance(local, Mapping) else {}

    def on_network(self, interface: str) -> list[str]:
        """Return an interface's addresses in the lab's network."""
        link = (self.own.get("interfaces") or {}).get(interface, {})
        network = ipaddress.ip_network(self.network)
        addresses = [cidr.split("/")[0] for cidr in link.get("cidrs", [])]
        return [address for address in addresses if ipaddress.ip_address(address) in network]

    @property
    def lab_address(self) -> str | None:
        """Return the address ranks use: the inventory's if it is in the lab's network."""
        addresses = self.on_network(self.interface)
        return self.address if self.address in addresses or not addresses else addresses[0]


@dataclass(frozen=True)
class HostLimits:
    """Requirements for hosts; disk space in MiB, times in seconds.

    ``supported``: distribution -> versions; if empty, the systems of the catalogue.
    """

    clock_offset_max: float = CLOCK_OFFSET_S
    disk_free_mb: Mapping[str, int] = field(default_factory=dict)
    disk_free_gpu_mb: Mapping[str, int] = field(default_factory=dict)
    disk_spare_mb: int = 0
    python_min: str = "3.8"
    gcc_skew: str = "warning"
    supported: Mapping[str, list[str]] = field(default_factory=dict)
    names_managed: bool = True


@dataclass(frozen=True)
class PreflightLab:
    """What checks before a change are given: hosts with facts, and what the inventory says of all.

    ``entries`` is the result of :func:`lab_hosts`, ``reached`` where the inventory says that hosts are;
    ``received`` is the controller's time when the facts had come.
    """

    hosts: list[PreflightHost]
    limits: HostLimits = field(default_factory=HostLimits)
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reached: Mapping[str, str | None] = field(default_factory=dict)
    received: float = 0.0


class SoftProblem(Problem):
    """A problem that is only a warning."""


PreflightCheck = Callable[[PreflightLab], Iterator[Problem]]
BEFORE: list[PreflightCheck] = []


def preflight(check: PreflightCheck) -> PreflightCheck:
    """Let role preflight run a check."""
    BEFORE.append(check)
    return check


def lab_hosts(hosts: list[PreflightHost], reached: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
    """Return name -> address, alias and port of all hosts of the inventory, including those left out here.

    `reached` gives each host's address in the inventory. For those left out, records of earlier runs fill
    the gaps: an address in the lab's network if the inventory has none there, and the aliases that all
    hosts recorded.
    """
    network, present = hosts[0].network if hosts else "", {host.name for host in hosts}
    owned = {called.lower() for name, target in reached.items() for called in (name, target or name)}
    claims = Counter(claim.lower() for host in hosts for claim in host.claims)
    entries: dict[str, dict[str, Any]] = {}
    for name in reached.keys() - present:
        records = [host.recorded_hosts[name] for host in hosts if name in host.recorded_hosts]
        address, last = address_of(reached[name]), records[-1] if records else {}
        place = str(last.get("address", "")).lower()
        if place and place not in owned | claims.keys() and not inside(address, network):
            address = place
        shared = set.intersection(*({*record.get("aliases", [])} for record in records)) if records else set()
        aliases = sorted(a for a in shared if a.lower() not in owned | claims.keys() and _is_alias(name, a))
        entries[name] = {"address": address, "aliases": aliases, "port": last.get("port", 22)}
    for host in hosts:
        own = {claim for claim in host.claims if claims[claim.lower()] == 1 and _is_alias(host.name, claim)}
        aliases = sorted((own | {host.address or host.name}) - {host.name, host.lab_address})
        entries[host.name] = {"address": host.lab_address, "aliases": aliases, "port": host.port}
    return {name: entries[name] for name in reached if entries[name]["address"]}


def address_of(target: str | None) -> str | None:
    """Return an address of the inventory in its usual form; None if it is a name."""
    try:
        return str(ipaddress.ip_address(str(target)))
    except ValueError:
        return None


def _is_alias(name: str, claim: str) -> bool:
    """Whether a claim may be a host's alias: a name with a domain must begin like the inventory's.

    Otherwise a host could go by the name of a mirror, or of any other machine outside the lab.
    """
    first, dot, _ = claim.lower().partition(".")
    return bool(address_of(claim)) or (
        is_valid_name(claim) and (not dot or first == name.lower().split(".")[0])
    )


def inside(address: str | None, network: str) -> bool:
    try:
        return ipaddress.ip_address(str(address)) in ipaddress.ip_network(network)
    except ValueError:
        return False


class _Holder(HostAnswer):
    owner: str
    command: str = ""
    seconds: NotNegative = 0


def explain_lock(host: str, answer: object) -> Problem:
    """Return the problem of a host that another run holds, from its answer."""
    holder = _Holder(**answers.check(answer, host, _Holder))
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - min(holder.seconds, 1e9)))
    command = f", who runs `{holder.command}`" if holder.command else ""
    return Problem(
        host,
        f"it is held by {holder.owner}{command} since {since} (this machine's clock). Nothing was changed",
        "wait until that has ended, then run this again; a run that is gone lets go of its hosts within "
        "two minutes",
    )
