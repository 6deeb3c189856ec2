"""The machine: system, clock, user ID, locked memory, and reading the memory of other ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.base.errors import Problem
from hvlab.checks import ssh
from hvlab.checks.before import PreflightLab, preflight
from hvlab.checks.node import limits
from hvlab.checks.programs import source
from hvlab.checks.site import HostFault, HostReplies, Site
from hvlab.stack.resolver import catalogue
from hvlab.stack.resolver.facts import HostFacts, advise_python, list_supported_systems, system_of

_NOW = "now"
_RDMA = "rdma"
_HOME = "home"
_SIBLING = "sibling's memory"
_YAMA = "ptrace scope"
_SHARED = ("nfs", "nfs4", "ceph", "lustre", "gpfs", "beegfs", "cifs", "glusterfs", "fuse.glusterfs")
_REFUSED = {"1": "Operation not permitted", "38": "Function not implemented"}
_NUMBER = re.compile(r"[0-9]{1,15}")


# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {
    "clock": "",
    "user-id-differs": "",
    "home-missing": "lab_user",
    "cma-denied": "",
    "memlock": "common",
    "open-files": "",
    "too-many-processes": "",
}
# Limits of a login that any launcher needs: the cause, the option of ulimit, the least.
_LEAST = {
    "nofile": ("open-files", "-n", limits.OPEN_FILES),
    "nproc": ("too-many-processes", "-u", limits.PROCESSES),
}


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask for the time, RDMA adapters, and the home folder's owner and file system."""
    script = f'echo "id $(id -u {site.user})"; echo "type $(stat -fc %T ~{site.user})"; '
    script += f"[ -d ~{site.user} ] || echo missing ~{site.user}; "
    script += f'echo "mount $(df -PT ~{site.user} | tail -n 1 | tr -s " " | cut -d " " -f 2)"'
    return {
        _NOW: {"run": ["date", "+%s"], "timeout": 5},
        _RDMA: {"stat": "/sys/class/infiniband/*"},
        _HOME: {"run": ["bash", "-c", script], "timeout": 10},
        _SIBLING: {"run": ["python3", "-c", source("read_sibling")], "user": site.user, "timeout": 10},
        _YAMA: {"read": "/proc/sys/kernel/yama/ptrace_scope"},
    }


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Compare clocks and user IDs, and judge the limits that RDMA needs."""
    yield from _clocks(every)
    yield from _numbers(site, every)
    yield from _siblings(site, every)
    for name, (_, observed) in ssh.find_reached(every).items():
        limit = observed.get("memlock", "")
        small = _NUMBER.fullmatch(limit) and int(limit) < limits.MEMLOCK_KIB
        if small and name in every and every[name].paths(_RDMA):
            adapters = ", ".join(path.rpartition("/")[2] for path in every[name].paths(_RDMA))
            yield HostFault(
                "memlock", name, f"ulimit -l is {limit} KiB after ssh; it has {adapters}", "common"
            )
        for word, (cause, option, least) in _LEAST.items():
            limit = observed.get(word, "")
            if _NUMBER.fullmatch(limit) and int(limit) < least:
                yield HostFault(cause, name, f"ulimit {option} is {limit} after ssh, below {least}")


def _clocks(every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    clocks = {
        name: int(said) for name, own in every.items() if _NUMBER.fullmatch(said := own.output(_NOW).strip())
    }
    if len(clocks) < 2:
        return
    middle = sorted(clocks.values())[(len(clocks) - 1) // 2]
    for name, now in clocks.items():
        if abs(now - middle) > limits.CLOCK_OFFSET_S + limits.ANSWERS_APART_S:
            observed = (
                f"its clock is {abs(now - middle)} s {'ahead of' if now > middle else 'behind'} other hosts'"
            )
            yield HostFault("clock", name, observed)


def _numbers(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Files on a shared home belong to a user ID, not to a name."""
    tables = {name: replies.table(_HOME) for name, replies in every.items()}
    numbers = {
        name: table["id"]
        for name, table in tables.items()
        if _NUMBER.fullmatch(table.get("id", "")) and table.get("mount") in _SHARED
    }
    for name, table in tables.items():
        if home := table.get("missing"):
            yield HostFault("home-missing", name, f"there is no folder {home[:200]}", "lab_user")
    if len(set(numbers.values())) > 1:
        listing = ", ".join(f"{name} {number}" for name, number in numbers.items())
        yield from (
            HostFault("user-id-differs", name, f"{site.user} on a shared home: {listing}") for name in numbers
        )


def _siblings(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Ranks of one host copy from each other's memory; Yama answers EPERM, seccomp ENOSYS."""
    for host in site.hosts:
        said = every[host.name].output(_SIBLING).strip() if host.name in every else ""
        if host.slots > 1 and said in _REFUSED:
            scope = "".join(every[host.name].files(_YAMA).values())[:8] or "not there"
            observed = (
                f"process_vm_readv by {site.user}: {_REFUSED[said]}; kernel.yama.ptrace_scope is {scope}"
            )
            yield HostFault("cma-denied", host.name, observed)


@preflight
def check_system(lab: PreflightLab) -> Iterator[Problem]:
    """Yield hosts whose operating system or Python is not supported."""
    limits = lab.limits
    for host in lab.hosts:
        name, version = host.facts.get("distribution", "?"), host.facts.get("distribution_version", "?")
        major = host.facts.get("distribution_major_version", "?")
        system = system_of(HostFacts(host.name, str(name), str(version)), catalogue.load())
        if limits.supported:
            supported = bool({version, major} & set(limits.supported.get(name, [])))
            known = "; ".join(f"{name} {', '.join(versions)}" for name, versions in limits.supported.items())
        else:
            supported = system is not None
            known = list_supported_systems(catalogue.load())
        if not supported:
            yield Problem(host.name, f"{name} {version}: unsupported OS", f"use one of: {known}")
        python = str(host.facts.get("python_version", "0"))
        if _version(python) < _version(limits.python_min):
            observed = f"its Python is {python}; Ansible needs {limits.python_min} there, or later"
            yield Problem(host.name, observed, advise_python(system))


@preflight
def check_packages(lab: PreflightLab) -> Iterator[Problem]:
    """Yield hosts with packages that dpkg could not configure: no others can be installed there."""
    for host in lab.hosts:
        if names := host.own.get("unfinished"):
            observed = f"packages are half configured: {', '.join(names)}"
            remedy = (
                "run `dpkg --configure -a` there, then `apt-get install --reinstall` for any that is left. "
                "Where a module does not compile, see /var/lib/dkms/*/*/build/make.log, and boot an older "
                "kernel or purge these packages"
            )
            yield Problem(host.name, observed, remedy)


def _version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


@preflight
def check_clocks(lab: PreflightLab) -> Iterator[Problem]:
    """Yield clocks that are off by more than the limit for certain.

    A host's reading was taken at an unknown moment between the controller's `sent` and `received`.
    """
    timed = [n for n in lab.hosts if None not in (n.own.get("sent"), n.own.get("now"))]
    least = {n.name: n.own["now"] - lab.received for n in timed}
    most = {n.name: n.own["now"] - n.own["sent"] for n in timed}
    remedy = "set the clock and keep it so: timedatectl set-ntp true"
    off = False
    for name, ahead in least.items():
        seconds = max(ahead, -most[name])
        if seconds > lab.limits.clock_offset_max:
            off = True
            how = "ahead of" if ahead > 0 else "behind"
            yield Problem(name, f"its clock is at least {seconds:.0f} s {how} the controller's", remedy)
    if timed and not off:
        first, last = max(least, key=least.__getitem__), min(most, key=most.__getitem__)
        if least[first] - most[last] > lab.limits.clock_offset_max:
            observed = f"their clocks are at least {least[first] - most[last]:.0f} s apart"
            yield Problem(f"{first}, {last}", observed, remedy)
