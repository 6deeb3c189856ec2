"""The shape of the facts that hvlab reads: Ansible's, its own, and the roles' records."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, Json

from hvlab.base.answers.shapes import (
    Address,
    Cidr,
    Count,
    Fingerprint,
    HostAnswer,
    HostKey,
    NotNegative,
    Number,
    Scalar,
)

_OctalMode = Annotated[str, Field(pattern="^[0-7]{1,6}$")]


class _Nic(HostAnswer):
    name: Scalar = None
    model: Scalar = None
    driver: Scalar = None
    driver_version: Scalar = None
    speed_mbit: NotNegative | None = None


class _Gpu(HostAnswer):
    name: Scalar = None
    pci_device: Scalar = None
    memory_mib: NotNegative | None = None
    # Its link, as rate in GT/s and lanes: 16.0 x16.
    pcie: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9] x[0-9]+$")] | None = None


class _RdmaDevice(HostAnswer):
    name: str
    state: Scalar = None
    rate: Scalar = None


# The path of data from a GPU to the network.
class _Rdma(HostAnswer):
    way: str | None = None
    gdr_reason: Scalar = None
    devices: list[_RdmaDevice] | None = None


class _Topology(HostAnswer):
    link: str | None = None
    nvlinks: Scalar = None


class _Interface(HostAnswer):
    cidrs: list[Cidr]
    up: bool


# Permissions in /tmp.
class _Tmp(HostAnswer):
    writable: bool
    noexec: bool = False
    mode: _OctalMode = "1777"


# Gathered by module hvlab_facts.
class _Own(HostAnswer):
    now: Number | None = None
    sent: Number | None = None
    resolves: Json[dict[str, list[Address] | None] | None] | None = None
    tmp: _Tmp | None = None
    disk_free_mb: dict[str, NotNegative | None] = {}
    initramfs_mb: NotNegative | None = None
    packs: dict[str, Any] | None = None
    users: dict[str, Any] | None = None
    ssh_host_key: HostKey | None = None
    ssh_host_cert: str | None = None
    nics: list[_Nic] | None = None
    interfaces: dict[str, _Interface] | None = None
    packages: dict[str, Scalar] | None = None
    rdma: _Rdma | None = None
    topology: _Topology | None = None
    gpus: list[_Gpu] | None = None
    other_gpus: list[str] | None = None
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    gcc: str | None = None
    open_modules: Scalar = None


class _Openmpi(HostAnswer):
    version: str | None = None
    ucx: Scalar = None
    cuda: Scalar = None


class _Framework(HostAnswer):
    framework: str
    version: Scalar = None
    build: Scalar = None


class _PythonEnv(HostAnswer):
    environments: dict[str, _Framework] | None = None
    torch: Scalar = None
    python: Scalar = None


class _Variant(HostAnswer):
    version: Scalar = None
    operations: list[str] | None = None


class _Horovod(HostAnswer):
    version: Scalar = None
    variants: dict[str, _Variant] | None = None


# A host of the lab, as role common recorded it.
class _LabHost(HostAnswer):
    address: Address
    aliases: list[str] = []
    port: Count = 22


class _Common(HostAnswer):
    hosts: dict[str, _LabHost] = {}


class _SshTrust(HostAnswer):
    authority: Fingerprint | None = None


# The roles' records; a text is Ansible's message about a facts file it cannot read.
class _Recorded(HostAnswer):
    hvlab_common: _Common | Scalar = None
    hvlab_openmpi: _Openmpi | Scalar = None
    hvlab_python_env: _PythonEnv | Scalar = None
    hvlab_horovod: _Horovod | Scalar = None
    hvlab_ssh_trust: _SshTrust | Scalar = None


# The link of a virtual host, and of its rack.
class _VirtualLink(HostAnswer):
    up: str | None = None
    down: str | None = None
    rack: str | None = None
    uplink: str | None = None


class Facts(HostAnswer):
    """A host's facts."""

    virtual_link: _VirtualLink | None = None
    hvlab: _Own | None = None
    ansible_local: _Recorded | None = None
    nodename: str | None = None
    hostname: str | None = None
    python_version: str | None = None
    distribution: Scalar = None
    distribution_version: Scalar = None
    distribution_major_version: Scalar = None
    kernel: Scalar = None
    architecture: Scalar = None
    processor_model: str | None = None
    processor_vcpus: NotNegative | None = None
