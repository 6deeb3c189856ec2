"""The hosts that are asked, as far as questions and detectors need them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """A host: ``addresses`` are those by which the inventory has it, the first is where ranks reach it."""

    name: str
    addresses: tuple[str, ...]
    port: int
    slots: int
    gpu: bool
    interface: str
    local: bool = False


@dataclass(frozen=True)
class Site:
    """All hosts; ``port`` is one on which they try to reach one another, ``user`` is who runs the ranks.

    ``names_managed`` says whether hvlab writes the hosts' names; ``horovod`` is the folder of its variants.
    """

    hosts: tuple[Member, ...]
    user: str
    port: int
    names_managed: bool = True
    horovod: str = "/opt/hvlab/horovod"

    def next(self, name: str) -> list[Member]:
        """Return the hosts that a host tries to reach: some that follow it, in a ring."""
        at = [host.name for host in self.hosts].index(name)
        return [*self.hosts[at + 1 :], *self.hosts[:at]][:TRIED]


# So many others each host tries: with more, 64 hosts would be a storm.
TRIED = 3


@dataclass(frozen=True)
class HostFault:
    """An entry of what is known, the host that shows it, and what was seen there.

    ``role`` is the tag of the role whose run on this host mends it; empty where none does so safely.
    """

    id: str
    host: str
    observed: str
    role: str = ""
