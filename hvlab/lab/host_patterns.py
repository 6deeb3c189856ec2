"""Hosts as a person lists them: names, addresses and ports, with ranges as Ansible writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_letters

from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.utils.addresses import parse_address
from ansible.plugins.inventory import detect_range, expand_hostname_range

from hvlab.base.errors import UsageError
from hvlab.lab.inventory_rules import is_address

# More hosts mean a range with a zero too many; each costs a program and a login.
_MOST = 4096
_RANGE = re.compile(r"\[(\w{1,999}):(\w{1,999})(?::(\d{1,999}))?\]", re.ASCII)
EXAMPLE = "gpu[01:16], or gpu[01:16]=10.0.0.[11:26], or login=10.0.0.5:2222"


@dataclass(frozen=True)
class ListedHost:
    """A host's name in the inventory; the address or name that ssh is given; its port where one is named."""

    name: str
    target: str
    port: int | None


def expand(text: str) -> list[ListedHost]:
    """Return the hosts of a list such as ``gpu[01:16]=10.0.0.[11:26],login=10.0.0.5:2222``.

    Addresses without a name are called node1, node2, ... Raises UsageError.
    """
    hosts = parse_list(text)
    names = {host.name for host in hosts}
    numbered = (
        name for number in range(1, len(names) + len(hosts) + 1) if (name := f"node{number}") not in names
    )
    return [
        ListedHost(next(numbered), host.target, host.port) if is_address(host.name) else host
        for host in hosts
    ]


def parse_list(text: str) -> list[ListedHost]:
    """Return the hosts of a list, with an address as its own name. Raises UsageError."""
    entries = text.replace(",", " ").split()
    if not entries:
        raise UsageError("no hosts are given", remedy=f"write {EXAMPLE}")
    hosts = [host for entry in entries for host in _expand_entry(entry)]
    if len(hosts) > _MOST:
        raise UsageError(f"these are {len(hosts)} hosts", remedy=f"list {_MOST} at most")
    return hosts


def matching(names: Iterable[str], limit: str) -> list[str]:
    """Return the hosts that match a pattern of Ansible's ``--limit``. Raises UsageError if it is invalid."""
    inventory = InventoryManager(DataLoader(), parse=False)
    for name in names:
        inventory.add_host(name)
    inventory.reconcile_inventory()
    try:
        inventory.subset(limit)
        return [host.name for host in inventory.get_hosts()]
    except AnsibleError as error:
        raise UsageError(f"--limit {limit}: {error}", remedy="write a pattern such as gpu*:!gpu7") from error


def _expand_entry(entry: str) -> list[ListedHost]:
    name, equals, target = entry.partition("=")
    names, port = _expand_range(name)
    if not equals:
        return [ListedHost(one, one, port) for one in names]
    targets, port_of_target = _expand_range(target)
    if port is not None:
        raise UsageError(f"{entry!r} has its port before the =", remedy="write it behind the address")
    if len(targets) != len(names):
        raise UsageError(
            f"{entry!r} is {len(names)} names for {len(targets)} addresses",
            remedy="make both ranges the same length",
        )
    return [ListedHost(one, other, port_of_target) for one, other in zip(names, targets, strict=True)]


def _expand_range(text: str) -> tuple[list[str], int | None]:
    sizes = [_size(*ends) for ends in _RANGE.findall(text)]
    if math.prod(sizes) > _MOST:
        raise UsageError(f"{text!r} is {math.prod(sizes)} hosts", remedy=f"list {_MOST} at most")
    try:
        pattern, port = parse_address(text, allow_ranges=True)
        names = expand_hostname_range(pattern) if detect_range(pattern) else [pattern]
    except (AnsibleError, ValueError) as error:
        remedy = "name the user in ~/.ssh/config (User)" if "@" in text else f"write {EXAMPLE}"
        raise UsageError(f"{text!r} is no host: {error}", remedy=remedy) from error
    if port == 0:
        raise UsageError(f"{text!r} has no port: 0 is none", remedy=f"write {EXAMPLE}")
    if not names:
        raise UsageError(f"the range in {text!r} is empty", remedy="write its smaller end first")
    return names, port


def _size(first: str, last: str, step: str) -> int:
    """Return the number of names in a range; 1 for a range that Ansible refuses."""
    each = max(1, int(step or 1))
    if len(first) == len(last) == 1 and {first, last} <= set(ascii_letters):
        return max(1, (ascii_letters.index(last) - ascii_letters.index(first)) // each + 1)
    if not (first.isdecimal() and last.isdecimal()):
        return 1
    return max(1, (int(last) - int(first)) // each + 1)
