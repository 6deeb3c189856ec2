"""A host of Slurm, the options of role slurm, and the accounts that slurmdbd lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Node = Mapping[str, Any]

# The release that introduced mpi.conf and cgroup plugins.
PLUGINS = (22, 5)


@dataclass(frozen=True, kw_only=True)
class SlurmSystem:
    """An operating system's Slurm packages: release, folders, and whether they include PMIx."""

    version_package: str
    usual_version: str
    etc: str
    state_dir: str
    log_dir: str
    run_dir: str
    pmix: bool
    rest_packages: Sequence[str]
    holes: Sequence[Mapping[str, str]] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of slurm.conf and the files it names."""
        return self.etc, self.state_dir, self.log_dir, self.run_dir


@dataclass(frozen=True, kw_only=True)
class SlurmRequest:
    """Options of role slurm, for the cluster and for one of its hosts."""

    cluster: str
    controller: str
    hosts: Sequence[str]
    addresses: Mapping[str, Mapping[str, Any]]
    partition: str
    partitions: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    lab_user: str
    munge_key_file: str
    health_check: str
    accounting: bool
    accounts: Sequence[Mapping[str, Any]]
    rest: bool
    slots: int
    gpus: int
    gpu_type: str
    features: Sequence[str]
    less_hardware: bool

    @property
    def every_partition(self) -> Sequence[Mapping[str, Any]]:
        """All partitions; only the default one if none is named."""
        return self.partitions or [{"name": self.partition}]


@dataclass(frozen=True)
class SlurmHost:
    """One host of the cluster: its facts, and its hardware as ``slurmd -C`` prints it.

    ``available`` is the package manager's output about the package that is not installed yet.
    """

    name: str
    facts: Mapping[str, Any]
    system: SlurmSystem
    hardware: str = ""
    available: str = ""

    @property
    def record(self) -> Mapping[str, Any]:
        """The record of an earlier run."""
        return (self.facts.get("ansible_local") or {}).get("hvlab_slurm") or {}

    @property
    def packages(self) -> Mapping[str, str]:
        """Installed packages and their versions."""
        return (self.facts.get("hvlab") or {}).get("packages") or {}

    @property
    def packaged(self) -> str:
        """Slurm's version: of the installed package, else of the available one; empty if unknown."""
        name = self.system.version_package
        offered = re.findall(rf"Candidate: +(\S+)|^{name}\.\w+\s+(\S+)", self.available, re.MULTILINE)
        candidate = next((one or other for one, other in reversed(offered)), "")
        release = re.search(r"\d+\.\d+(\.\d+)?", self.packages.get(name) or candidate)
        return release[0] if release else ""

    @property
    def version(self) -> str:
        """Slurm's release, such as ``22.05``; without a known package, the system's usual one."""
        return ".".join((self.packaged or self.system.usual_version).split(".")[:2])

    @property
    def container(self) -> bool:
        """Whether it sees its machine's whole hardware; slurmd cannot tell the host's own part."""
        return bool((self.facts.get("hvlab") or {}).get("container"))

    @property
    def reported(self) -> dict[str, int]:
        """Amounts of hardware that slurmd counts."""
        return {name: int(amount) for name, amount in re.findall(r"(\w+)=(\d+)", self.hardware)}

    @property
    def cpus(self) -> int:
        """Its CPUs."""
        own = int(self.facts["processor_vcpus"])
        return own if self.container else self.reported.get("CPUs", own)

    @property
    def memory(self) -> int:
        """Its memory in MB."""
        return self.reported.get("RealMemory") or int(self.facts["memtotal_mb"])

    @property
    def cgroup(self) -> int:
        """The version of control groups; 0: unknown."""
        return int((self.facts.get("hvlab") or {}).get("cgroup") or 0)

    @property
    def new(self) -> bool:
        """Whether Slurm has mpi.conf, and knows version 2 of control groups."""
        return tuple(map(int, self.version.split("."))) >= PLUGINS


def registrations(request: SlurmRequest, listed: str) -> list[list[str]]:
    """Return the sacctmgr commands that register the lab and its accounts with slurmdbd, in order.

    ``listed`` has its associations, as ``cluster|account|user|share``.
    """
    shares = listed.splitlines()
    there = {row.rpartition("|")[0] for row in shares}
    name, cluster = request.cluster.lower(), f"cluster={request.cluster}"
    # The lab user's account has its name, and slurm_accounts may name it; slurmdbd stores lower case.
    own = request.lab_user.lower()
    shared = {account["name"]: f"fairshare={account.get('shares', 1)}" for account in request.accounts}
    commands = {
        f"{name}|root|": ["add", "cluster", request.cluster],
        f"{name}|{own}|": ["add", "account", own, cluster, *([shared[own]] if own in shared else [])],
        f"{name}|{own}|{request.lab_user}": ["add", "user", request.lab_user, f"account={own}", cluster],
    }
    for account, share in shared.items():
        row = f"{name}|{account}|"
        if row not in there:
            commands.setdefault(row, ["add", "account", account, cluster, share])
        elif (shared_row := f"{row}|{share.partition('=')[2]}") not in shares:
            commands[shared_row] = ["modify", "account", f"name={account}", cluster, "set", share]
    for account in request.accounts:
        for user in account.get("users", ()):
            commands.setdefault(
                f"{name}|{account['name']}|{user}",
                ["add", "user", user, f"account={account['name']}", cluster],
            )
    return [words for row, words in commands.items() if row not in there]
