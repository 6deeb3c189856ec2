"""The machine: its clock, the user's number, memory that may be locked, and that of other ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.checks import ssh
from hvlab.checks.programs import source
from hvlab.checks.replies import HostReplies
from hvlab.checks.site import HostFault, Site

_NOW = "now"
_RDMA = "rdma"
_HOME = "home"
_SIBLING = "sibling's memory"
_YAMA = "ptrace scope"
# Answers of one round trip come at different times.
_APART_S = 60.0
_SHARED = ("nfs", "nfs4", "ceph", "lustre", "gpfs", "beegfs", "cifs", "glusterfs", "fuse.glusterfs")
_MEMLOCK_KIB = 1024 * 1024
_REFUSED = {"1": "Operation not permitted", "38": "Function not implemented"}
_NUMBER = re.compile(r"[0-9]{1,15}")


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask for the time, for RDMA adapters, and for who has the home folder where."""
    script = f'echo "id $(id -u {site.user})"; echo "type $(stat -fc %T ~{site.user})"; '
    script += f'echo "mount $(df -PT ~{site.user} | tail -n 1 | tr -s " " | cut -d " " -f 2)"'
    return {
        _NOW: {"run": ["date", "+%s"], "timeout": 5},
        _RDMA: {"stat": "/sys/class/infiniband/*"},
        _HOME: {"run": ["bash", "-c", script], "timeout": 10},
        _SIBLING: {"run": ["python3", "-c", source("read_sibling")], "user": site.user, "timeout": 10},
        _YAMA: {"read": "/proc/sys/kernel/yama/ptrace_scope"},
    }


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Compare clocks and numbers, and judge limits where RDMA needs them."""
    yield from _clocks(every)
    yield from _numbers(site, every)
    yield from _siblings(site, every)
    for name, (_, observed) in ssh.reached(every).items():
        limit = observed.get("memlock", "")
        small = _NUMBER.fullmatch(limit) and int(limit) < _MEMLOCK_KIB
        if small and name in every and every[name].paths(_RDMA):
            adapters = ", ".join(path.rpartition("/")[2] for path in every[name].paths(_RDMA))
            yield HostFault(
                "memlock", name, f"ulimit -l is {limit} KiB after ssh; it has {adapters}", "common"
            )


def _clocks(every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    clocks = {
        name: int(said) for name, own in every.items() if _NUMBER.fullmatch(said := own.output(_NOW).strip())
    }
    if len(clocks) < 2:
        return
    middle = sorted(clocks.values())[(len(clocks) - 1) // 2]
    for name, now in clocks.items():
        if abs(now - middle) > _APART_S:
            observed = (
                f"its clock is {abs(now - middle)} s {'ahead of' if now > middle else 'behind'} other hosts'"
            )
            yield HostFault("clock", name, observed)


def _numbers(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Files on a shared home belong to a number, not to a name."""
    tables = {name: replies.table(_HOME) for name, replies in every.items()}
    numbers = {
        name: table["id"]
        for name, table in tables.items()
        if _NUMBER.fullmatch(table.get("id", "")) and table.get("mount") in _SHARED
    }
    if len(set(numbers.values())) > 1:
        listing = ", ".join(f"{name} {number}" for name, number in numbers.items())
        yield from (
            HostFault("user-id-differs", name, f"{site.user} on a shared home: {listing}") for name in numbers
        )


def _siblings(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Ranks of one host copy from one another's memory; EPERM and ENOSYS are what Yama and seccomp answer."""
    for host in site.hosts:
        said = every[host.name].output(_SIBLING).strip() if host.name in every else ""
        if host.slots > 1 and said in _REFUSED:
            scope = "".join(every[host.name].files(_YAMA).values())[:8] or "not there"
            observed = (
                f"process_vm_readv by {site.user}: {_REFUSED[said]}; kernel.yama.ptrace_scope is {scope}"
            )
            yield HostFault("cma-denied", host.name, observed)
