"""Check hosts from their facts before anything is changed. Pure, but for reading the clock."""

from __future__ import annotations

import ipaddress
import json
import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from hvlab.base.errors import Problem
from hvlab.lab.inventory import Host
from hvlab.lab.inventory_rules import valid_name
from hvlab.remote.known_hosts import entry_name, known_hosts_files, unknown_keys
from hvlab.remote.ssh_keys import fingerprint
from hvlab.remote.trust import Trust
from hvlab.stack.resolver import catalogue
from hvlab.stack.resolver.facts import HostFacts, supported_systems, system_of

TMP = "/tmp"  # noqa: S108
# What Debian's installer and cloud-init give a host's own name.
OWN_NAME = "127.0.1.1"
_RENAME = "give it a unique name of letters, digits and hyphens: hostnamectl set-hostname {}"


@dataclass(frozen=True)
class PreflightHost:
    """One host as preflight sees it; `facts` are Ansible's facts without prefix."""

    name: str
    facts: Mapping[str, Any]
    address: str | None
    network: str
    interface: str
    port: int = 22
    # The only host, and the machine the playbook runs on.
    alone: bool = False

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
        """Return what the role common recorded on this host in an earlier run."""
        return self._recorded_by("hvlab_common")

    @property
    def authority(self) -> str | None:
        """Return the fingerprint of the users' authority that the role ssh_trust gave this host."""
        return self._recorded_by("hvlab_ssh_trust").get("authority")

    def _recorded_by(self, role: str) -> Mapping[str, Any]:
        local = (self.facts.get("ansible_local") or {}).get(role)
        return local if isinstance(local, Mapping) else {}

    def on_network(self, interface: str) -> list[str]:
        """Return the addresses an interface has in the lab's network."""
        link = (self.own.get("interfaces") or {}).get(interface, {})
        network = ipaddress.ip_network(self.network)
        addresses = [cidr.split("/")[0] for cidr in link.get("cidrs", [])]
        return [address for address in addresses if ipaddress.ip_address(address) in network]

    @property
    def lab_address(self) -> str | None:
        """Return the address ranks use: the inventory's where that is in the lab's network."""
        addresses = self.on_network(self.interface)
        return self.address if self.address in addresses or not addresses else addresses[0]


@dataclass(frozen=True)
class HostLimits:
    """What hosts must fulfil; disk space in MiB, times in seconds.

    ``supported``: distribution -> versions; without any, the systems of the catalogue.
    """

    clock_offset_max: float = 5.0
    disk_free_mb: Mapping[str, int] = field(default_factory=dict)
    disk_spare_mb: int = 0
    python_min: str = "3.8"
    gcc_skew: str = "warning"
    supported: Mapping[str, list[str]] = field(default_factory=dict)
    names_managed: bool = True


def check_system(hosts: list[PreflightHost], limits: HostLimits) -> Iterator[Problem]:
    """Yield hosts whose operating system or Python is not supported."""
    for host in hosts:
        name, version = host.facts.get("distribution", "?"), host.facts.get("distribution_version", "?")
        major = host.facts.get("distribution_major_version", "?")
        if limits.supported:
            supported = bool({version, major} & set(limits.supported.get(name, [])))
            known = "; ".join(f"{name} {', '.join(versions)}" for name, versions in limits.supported.items())
        else:
            supported = system_of(HostFacts(host.name, name, str(version)), catalogue.load()) is not None
            known = supported_systems(catalogue.load())
        if not supported:
            yield Problem(host.name, f"{name} {version}: unsupported OS", f"use one of: {known}")
        python = str(host.facts.get("python_version", "0"))
        if _numbers(python) < _numbers(limits.python_min):
            remedy = f"install {limits.python_min} or later and set ansible_python_interpreter for the host"
            yield Problem(host.name, f"its Python is {python}", remedy)


def check_names(hosts: list[PreflightHost]) -> Iterator[Problem]:
    """Yield machines whose own name is not valid, or another machine's."""
    names: dict[str, list[str]] = {}
    for host in hosts:
        names.setdefault(str(host.facts.get("hostname", "")).lower(), []).append(host.name)
    for host in hosts:
        name, short = str(host.facts.get("nodename", "")), str(host.facts.get("hostname", "")).lower()
        others = [other for other in names[short] if other != host.name]
        remedy = _RENAME.format(host.name)
        if not valid_name(name) or short == "localhost":
            yield Problem(host.name, f"its own host name is {name!r}", remedy)
        elif short != name.split(".", maxsplit=1)[0].lower():
            yield Problem(host.name, f"its own host name is {name!r}, and {short!r} for short", remedy)
        # A name that is another host's in the inventory is for check_claims.
        elif others and short not in {host.name.split(".")[0].lower(), *(other.lower() for other in others)}:
            yield Problem(host.name, f"its own host name {name} is also that of {', '.join(others)}", remedy)


def check_claims(hosts: list[PreflightHost], inventory: Mapping[str, str | None]) -> Iterator[Problem]:
    """Yield hosts that go by the name or address of another one: they would get its certificate.

    ``inventory`` has what the inventory calls each host, and where it says that the host is reached.
    """
    owners = {called.lower(): name for name, target in inventory.items() for called in (name, target or name)}
    for host in hosts:
        # Behind one address, ports tell hosts apart: that is the inventory's word.
        for claim in sorted(host.claims - {host.address}):
            owner = owners.get(claim.lower(), host.name)
            if owner != host.name:
                observed = f"it goes by {claim}, which is {owner}'s in the inventory"
                yield Problem(host.name, observed, _RENAME.format(host.name))
    places: dict[str, list[str]] = {}
    for host in hosts:
        if host.lab_address and host.lab_address != host.address:
            places.setdefault(host.lab_address, []).append(host.name)
    for address, names in places.items():
        if len(names) > 1:
            yield Problem(", ".join(names), f"they have one address: {address}", "give each its own address")


def check_owner(hosts: list[PreflightHost], trust: Trust) -> Iterator[Problem]:
    """Yield hosts that were provisioned with other keys than the lab's: somebody else's, or lost ones."""
    for host in hosts:
        if host.alone or host.authority is None or host.authority in trust.authorities:
            continue
        yield Problem(
            host.name,
            f"it was provisioned with other keys: it trusts {host.authority}; lab {trust.lab} of "
            f"{trust.folder} has {trust.authority or 'no keys yet'}",
            "use those keys: set HVLAB_DATA to their folder, or put it back from a backup; if they are lost, "
            f"or their owner gives the host up: `hvlab keys init --take-over {host.authority}`",
        )


def check_recorded(hosts: list[PreflightHost], names: Collection[str]) -> Iterator[Problem]:
    """Yield hosts that recorded different addresses of a host that is left out here."""
    for name in names:
        recorders: dict[str, str] = {}
        for host in hosts:
            if name in host.recorded_hosts:
                recorders.setdefault(str(host.recorded_hosts[name]["address"]), host.name)
        if len(recorders) > 1:
            differing = ", ".join(f"{address} ({recorder})" for address, recorder in recorders.items())
            observed = f"earlier runs recorded different addresses of {name}: {differing}"
            remedy = f"run for all hosts, or set ansible_host of {name} to its address in lab_network"
            yield Problem(", ".join(recorders.values()), observed, remedy)


def check_resolution(
    hosts: list[PreflightHost], inventory: Mapping[str, Mapping[str, Any]], managed: bool
) -> Iterator[tuple[Problem, bool]]:
    """Yield names that resolve to an address other than the lab's, and whether the role common mends that.

    Where names are ``managed``, it writes them on a host that is new, and drops what Debian's installer and
    cloud-init write of a host's own name.
    """
    for host in hosts:
        if host.alone:
            continue
        for peer, addresses in (json.loads(host.own.get("resolves") or "{}") or {}).items():
            expected = inventory.get(peer, inventory.get(host.name, {})).get("address")
            local = [a for a in addresses or [] if ipaddress.ip_address(a).is_loopback]
            if addresses and expected and (local or expected not in addresses):
                mends = managed and (not host.recorded or set(addresses) <= {OWN_NAME, expected})
                observed = f"{peer} resolves to {', '.join(addresses)}, not to {expected}"
                remedy = "remove that line from /etc/hosts there, or correct its name server"
                written = "nothing: the role common writes the lab's names in this run"
                yield Problem(host.name, observed, written if mends else remedy), mends


def check_clocks(hosts: list[PreflightHost], offset_max: float, *, received: float) -> Iterator[Problem]:
    """Yield clocks that are off by more than `offset_max` seconds for certain.

    A host's reading was taken at an unknown moment between the controller's `sent` and `received`.
    """
    timed = [n for n in hosts if None not in (n.own.get("sent"), n.own.get("now"))]
    least = {n.name: n.own["now"] - received for n in timed}
    most = {n.name: n.own["now"] - n.own["sent"] for n in timed}
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
            observed = f"their clocks are at least {least[first] - most[last]:.0f} s apart"
            yield Problem(f"{first}, {last}", observed, remedy)


def check_tmp(hosts: list[PreflightHost]) -> Iterator[Problem]:
    """Yield hosts on which ranks cannot write to /tmp or run from it."""
    for host in hosts:
        tmp = host.own.get("tmp") or {"writable": False}
        if not tmp["writable"]:
            yield Problem(host.name, f"{TMP} cannot be written", "check df /tmp and findmnt /tmp on it")
            continue
        if tmp["noexec"]:
            yield Problem(
                host.name, f"{TMP} is mounted noexec", "mount -o remount,exec /tmp, and correct /etc/fstab"
            )
        if int(tmp["mode"], 8) & 0o1777 != 0o1777:  # noqa: PLR2004
            yield Problem(host.name, f"{TMP} has mode {tmp['mode']}", "chmod 1777 /tmp")


def check_disk(hosts: list[PreflightHost], limits: HostLimits) -> Iterator[Problem]:
    """Yield file systems with too little space; a host that has the software already needs less."""
    for host in hosts:
        measured = {path: free for path, free in host.own.get("disk_free_mb", {}).items() if free is not None}
        for path, minimum in limits.disk_free_mb.items():
            need = min(minimum, limits.disk_spare_mb) if host.own.get("packs") else minimum
            here = PurePosixPath(path)
            nearest = next((str(p) for p in (here, *here.parents) if str(p) in measured), None)
            if nearest is not None and measured[nearest] < need:
                observed = f"{path} has {measured[nearest]} MiB free, {need} are needed"
                yield Problem(host.name, observed, "free disk space, or change preflight_disk_free_mb")


def check_interface(hosts: list[PreflightHost]) -> Iterator[Problem]:
    """Yield hosts without the lab's interface, or where it does not carry the lab's network."""
    shared = [{name for name in n.own.get("interfaces") or {} if n.on_network(name)} for n in hosts]
    common = sorted(set.intersection(*shared)) if shared else []
    choice = f"set lab_interface to {' or '.join(common)}, which all hosts have" if common else ""
    for host in hosts:
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
        elif _inside(host.address, network) and host.address not in host.on_network(interface):
            carried = ", ".join(host.on_network(interface))
            observed = f"{interface} carries {carried}, the inventory says {host.address}"
            yield Problem(host.name, observed, "correct ansible_host")


def check_host_key(hosts: list[PreflightHost]) -> Iterator[Problem]:
    """Yield hosts without the key that the lab's trust rests on."""
    for host in hosts:
        if not host.alone and not host.own.get("ssh_host_key"):
            yield Problem(host.name, "sshd has no Ed25519 host key", "ssh-keygen -A, then restart sshd")


def check_shared_keys(hosts: list[PreflightHost]) -> Iterator[Problem]:
    """Yield hosts that have one key together; `hvlab init` compares those that it was shown."""
    holders: dict[str, list[str]] = {}
    for host in hosts:
        if key := host.own.get("ssh_host_key"):
            holders.setdefault(key, []).append(host.name)
    for names in holders.values():
        if len(names) > 1:
            remedy = "make new ones on all but one: rm /etc/ssh/ssh_host_*; ssh-keygen -A; restart sshd"
            yield Problem(", ".join(names), "they have the same ssh host key", remedy)


def check_possession(stated: Iterable[tuple[Host, str]]) -> Iterator[Problem]:
    """Yield hosts that state a host key other than ssh knows them by: nothing shows that it is theirs."""
    for host, key, known in unknown_keys(stated):
        files = known_hosts_files(host)
        forget = shlex.join(["ssh-keygen", "-R", entry_name(host), "-f", str(files[0])])
        yield Problem(
            host.name,
            f"it states the host key {fingerprint(key)}, but ssh knows it by {', '.join(known)} "
            f"({', '.join(map(str, files))})",
            f"if you gave it a new key, restart its sshd, `{forget}`, and run this again, which says how to "
            "record it; else the host may be taken over",
        )


def check_gcc(hosts: list[PreflightHost]) -> Iterator[Problem]:
    """Yield hosts whose compiler differs in its major version from that of the most hosts."""
    majors = {host.name: host.own["gcc"].split(".")[0] for host in hosts if host.own.get("gcc")}
    if len(set(majors.values())) > 1:
        usual = Counter(majors.values()).most_common(1)[0][0]
        for name, major in majors.items():
            if major != usual:
                remedy = f"install gcc {usual}; software is built once per version otherwise"
                yield Problem(name, f"gcc {major}, the other hosts have {usual}", remedy)


def check(
    hosts: list[PreflightHost],
    inventory: Mapping[str, Mapping[str, Any]],
    limits: HostLimits,
    reached: Mapping[str, str | None],
) -> tuple[list[Problem], list[Problem]]:
    """Return what stops a run, and what only deserves a warning.

    ``inventory`` is what :func:`lab_hosts` returns, ``reached`` where the inventory says that hosts are.
    """
    names = list(check_resolution(hosts, inventory, limits.names_managed))
    errors = [
        *check_system(hosts, limits),
        *check_names(hosts),
        *check_claims(hosts, reached),
        *check_recorded(hosts, reached.keys() - {host.name for host in hosts}),
        *(problem for problem, mends in names if not mends),
        *check_clocks(hosts, limits.clock_offset_max, received=time.time()),
        *check_tmp(hosts),
        *check_disk(hosts, limits),
        *check_interface(hosts),
        *check_host_key(hosts),
        *check_shared_keys(hosts),
    ]
    warnings = [problem for problem, mends in names if mends]
    skew = [] if limits.gcc_skew == "ignore" else list(check_gcc(hosts))
    return (errors + skew, warnings) if limits.gcc_skew == "error" else (errors, warnings + skew)


def missing(names: list[str], present: list[str]) -> list[Problem]:
    """Return a problem that names the hosts that did not get as far as their facts."""
    absent = [name for name in names if name not in present]
    if not absent:
        return []
    observed = "could not be reached, or the facts could not be read (the lines above say why)"
    without = ":".join(["all", *(f"!{name}" for name in absent)])
    return [
        Problem(
            ", ".join(absent),
            observed,
            f"correct the ssh access to it, or go on without: --limit '{without}'",
        )
    ]


def lab_hosts(hosts: list[PreflightHost], reached: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
    """Return name -> address, alias and port of all hosts of the inventory, also of those left out here.

    `reached` gives where the inventory says that each is. Of those left out, what earlier runs recorded fills
    the gaps: an address in the lab's network, where the inventory has none there, and the aliases that all
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
        if place and place not in owned | claims.keys() and not _inside(address, network):
            address = place
        shared = set.intersection(*({*record.get("aliases", [])} for record in records)) if records else set()
        aliases = sorted(a for a in shared if a.lower() not in owned | claims.keys() and _alias(name, a))
        entries[name] = {"address": address, "aliases": aliases, "port": last.get("port", 22)}
    for host in hosts:
        own = {claim for claim in host.claims if claims[claim.lower()] == 1 and _alias(host.name, claim)}
        aliases = sorted((own | {host.address or host.name}) - {host.name, host.lab_address})
        entries[host.name] = {"address": host.lab_address, "aliases": aliases, "port": host.port}
    return {name: entries[name] for name in reached if entries[name]["address"]}


def address_of(target: str | None) -> str | None:
    """Return an address of the inventory in its usual form; None where it is a name."""
    try:
        return str(ipaddress.ip_address(str(target)))
    except ValueError:
        return None


def _alias(name: str, claim: str) -> bool:
    """Whether a host may go by a claim everywhere: a name with a domain must begin as the inventory's does.

    Otherwise a host could go by the name of a mirror, or of any other machine outside the lab.
    """
    first, dot, _ = claim.lower().partition(".")
    return bool(address_of(claim)) or (valid_name(claim) and (not dot or first == name.lower().split(".")[0]))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


def _inside(address: str | None, network: str) -> bool:
    try:
        return ipaddress.ip_address(str(address)) in ipaddress.ip_network(network)
    except ValueError:
        return False
