"""A first inventory for a person (hosts.yml, one file of variables), and the network that its ranks use."""

from __future__ import annotations

import ipaddress
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any, TypeVar

import yaml

from hvlab.base.errors import Problem, UsageError
from hvlab.base.groups import grouped
from hvlab.base.paths import project_dir
from hvlab.base.sudo import hand_over
from hvlab.lab import inventory
from hvlab.lab.environment import NONE, table
from hvlab.lab.inventory import Host, Lab

# Its pins, each with a comment, are those of every new inventory.
EXAMPLE = "inventory/gpu-example/group_vars/all.yml"
_PINS = "# Pins: "
_COMMENTS = {
    "lab_slots": "How many ranks a host can run at once: as many as it has GPUs, or cores. "
    "Set it on a host where it differs.",
    "ansible_user": "The user Ansible logs in as. It needs sudo, unless it is root.",
    "ansible_ssh_private_key_file": "Its key.",
    "ansible_ssh_common_args": "ssh's options: the file of the hosts' keys, or a jump host.",
    "ansible_python_interpreter": "The Python that Ansible uses there.",
}


def check_free(folder: Path, *, force: bool) -> None:
    """Raise UsageError if an inventory of this name exists and must not be replaced."""
    if folder.is_dir() and (force or not any(folder.iterdir())):
        return
    if folder.exists() or folder.is_symlink():
        raise UsageError(
            f"{folder} already exists; nothing was changed",
            remedy="choose another name, or add --force: the old folder is kept beside the new one",
        )


def lab_name(folder: Path) -> str:
    """Return a name for the lab: the folder's, reduced to characters of a host name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-")[:63].strip("-") or "lab"


def slots(facts: Mapping[str, Any]) -> int:
    """Return the number of ranks a host can run at once: one per GPU, or per core."""
    return len((facts.get("hvlab") or {}).get("gpus") or []) or int(facts.get("processor_vcpus") or 1)


def texts(
    lab: Lab,
    facts: Mapping[str, Mapping[str, Any]],
    *,
    others: Iterable[tuple[str, IPv4Network]] = (),
    left_out: Iterable[tuple[Host, Problem]] = (),
) -> dict[str, str]:
    """Return the files of an inventory by their path in its folder.

    ``others`` are networks that would have served as well, ``left_out`` the hosts that cannot be used.
    """
    variables = {host.name: _variables(host) for host in lab.hosts}
    common = _common(list(variables.values()))
    return {
        "hosts.yml": _hosts(lab.hosts, variables, common, left_out),
        "group_vars/all.yml": _format_all(lab, common, facts, others),
    }


def write(folder: Path, files: Mapping[str, str]) -> Path | None:
    """Write an inventory's folder in one step; return where the folder that was there before is now.

    Raises InventoryError if it would not be accepted, UsageError where it cannot be written.
    """
    target = folder.resolve()
    backup = None
    try:
        missing = [path for path in (target.parent, *target.parent.parents) if not path.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            for name, text in files.items():
                (new / name).parent.mkdir(exist_ok=True)
                (new / name).write_text(text, "utf-8")
            new.chmod(0o755)
            for path in (*missing, new, *new.rglob("*")):
                hand_over(path)
            inventory.load(new)
            if target.is_dir() and any(target.iterdir()):
                backup = target.with_name(f"{target.name}.bak-{datetime.now(UTC):%Y%m%dT%H%M%S}")
                target.rename(backup)
            new.rename(target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
            if backup and not target.exists():
                backup.rename(target)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}", remedy="choose another folder"
        ) from error
    return backup


def _variables(host: Host) -> dict[str, Any]:
    own = {
        "ansible_host": None if host.address == host.name else host.address,
        "ansible_port": None if host.port == 22 else host.port,  # noqa: PLR2004
        "ansible_user": host.user,
        **host.vars,
        "lab_slots": host.slots,
    }
    return {name: value for name, value in own.items() if value is not None}


def _common(hosts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the value most hosts have, of each variable that all of them have."""
    names = [name for name in _COMMENTS if all(name in variables for variables in hosts)]
    return {name: Counter(variables[name] for variables in hosts).most_common(1)[0][0] for name in names}


def _hosts(
    hosts: Sequence[Host],
    variables: Mapping[str, Mapping[str, Any]],
    common: Mapping[str, Any],
    left_out: Iterable[tuple[Host, Problem]],
) -> str:
    lines = [
        "---",
        f"# Written by `hvlab init` on {datetime.now(UTC):%Y-%m-%d}; change it as you like.",
        "# Each host has a name (letters, digits, hyphens) and the address Ansible reaches it at.",
        "all:",
        "  children:",
    ]
    for comment, group in (("Hosts with NVIDIA GPUs.", "gpu"), ("Hosts without.", "cpu")):
        members = [host for host in hosts if group in host.groups]
        lines += [f"    # {comment}", f"    {group}:"]
        lines += ["      hosts:"] if members else []
        for host in members:
            own = {name: value for name, value in variables[host.name].items() if common.get(name) != value}
            lines.append(f"        {_scalar(host.name)}:")
            lines += [f"          {name}: {_scalar(value)}" for name, value in own.items()]
    lines += ["    # Machines that hvlab boots itself: none here.", "    virtual:"]
    absent = [_comment(f"  {host.name}, {host.address}: {problem.observed}") for host, problem in left_out]
    if absent:
        lines += ["# Left out, because they could not be used:", *absent]
    return "\n".join(lines) + "\n"


def _format_all(
    lab: Lab,
    common: Mapping[str, Any],
    facts: Mapping[str, Mapping[str, Any]],
    others: Iterable[tuple[str, IPv4Network]],
) -> str:
    lines = [
        "---",
        "# The lab's name: of its keys on the controller, and in its results.",
        f"lab_name: {_scalar(lab.name)}",
        "# The network the ranks talk over, and its interface: the same name on every host.",
        *(_comment(f"{network} on {interface} would do as well.") for interface, network in others),
        f"lab_network: {_scalar(lab.network)}",
        f"lab_interface: {_scalar(lab.interface)}",
    ]
    for name, comment in _COMMENTS.items():
        if name in common:
            lines += [f"# {comment}", f"{name}: {_scalar(common[name])}"]
    rows = [row for row in table(facts)[1:] if any(not value.startswith(NONE) for value in row.values)]
    lines += ["", "# What the hosts have, as `hvlab init` saw it:"]
    lines += [_comment(f"  {row.name}: {row.text}") for row in rows]
    example = (project_dir() / EXAMPLE).read_text("utf-8")
    return "\n".join([*lines, "", example[example.index(_PINS) :]])


def _scalar(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True).split("\n")[0]


def _comment(text: str) -> str:
    """Return one line of comment; hosts can put no line of their own into an inventory."""
    return "# " + "".join(char if char.isprintable() else " " for char in text)


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
    """Return the network that all hosts have on an interface of one name; None if none has any address.

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
    common = _common_network(links, lambda link: (link.interface, link.address.network))
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


def _common_network(
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
    routed_over = _common_network(links, lambda link: link.interface).values()
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
    users = grouped((link.address.ip, host) for host, link in reached.items())
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
    network = IPv4Network((addresses[0], shortest), strict=False)
    while not all(address in network for address in addresses):
        network = network.supernet()
    return network
