"""The shape of a host's facts, as far as hvlab reads them: Ansible's, ours, and what the roles recorded."""

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

OctalMode = Annotated[str, Field(pattern="^[0-7]{1,6}$")]


class NicFacts(HostAnswer):
    """A network card."""

    name: Scalar = None
    model: Scalar = None
    driver: Scalar = None
    driver_version: Scalar = None
    speed_mbit: NotNegative | None = None


class GpuFacts(HostAnswer):
    """A GPU."""

    name: Scalar = None
    pci_device: Scalar = None
    memory_mib: NotNegative | None = None


class RdmaFacts(HostAnswer):
    """How data gets from a GPU to the network."""

    way: str | None = None
    gdr_reason: Scalar = None


class TopologyFacts(HostAnswer):
    """What links the GPUs."""

    link: str | None = None


class InterfaceFacts(HostAnswer):
    """A network interface."""

    cidrs: list[Cidr]
    up: bool


class TmpFacts(HostAnswer):
    """What ranks may do in /tmp."""

    writable: bool
    noexec: bool = False
    mode: OctalMode = "1777"


class OwnFacts(HostAnswer):
    """What our own module of facts gathers."""

    now: Number | None = None
    sent: Number | None = None
    resolves: Json[dict[str, list[Address] | None] | None] | None = None
    tmp: TmpFacts | None = None
    disk_free_mb: dict[str, NotNegative | None] = {}
    packs: dict[str, Any] | None = None
    users: dict[str, Any] | None = None
    ssh_host_key: HostKey | None = None
    ssh_host_cert: str | None = None
    nics: list[NicFacts] | None = None
    interfaces: dict[str, InterfaceFacts] | None = None
    packages: dict[str, Scalar] | None = None
    rdma: RdmaFacts | None = None
    topology: TopologyFacts | None = None
    gpus: list[GpuFacts] | None = None
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    gcc: str | None = None
    open_modules: Scalar = None


class OpenmpiFacts(HostAnswer):
    """What role openmpi recorded."""

    version: str | None = None
    ucx: Scalar = None
    cuda: Scalar = None


class FrameworkFacts(HostAnswer):
    """One of the environments."""

    framework: str
    version: Scalar = None
    build: Scalar = None


class PythonEnvFacts(HostAnswer):
    """What role python_env recorded."""

    environments: dict[str, FrameworkFacts] | None = None
    torch: Scalar = None
    python: Scalar = None


class VariantFacts(HostAnswer):
    """One build of Horovod."""

    version: Scalar = None
    operations: list[str] | None = None


class HorovodFacts(HostAnswer):
    """What role horovod recorded."""

    version: Scalar = None
    variants: dict[str, VariantFacts] | None = None


class LabHostFacts(HostAnswer):
    """A host of the lab, as role common recorded it."""

    address: Address
    aliases: list[str] = []
    port: Count = 22


class CommonFacts(HostAnswer):
    """What role common recorded."""

    hosts: dict[str, LabHostFacts] = {}


class SshTrustFacts(HostAnswer):
    """What role ssh_trust recorded."""

    authority: Fingerprint | None = None


class RecordedFacts(HostAnswer):
    """What the roles recorded; a text is Ansible's words on a file of facts that it cannot read."""

    hvlab_common: CommonFacts | Scalar = None
    hvlab_openmpi: OpenmpiFacts | Scalar = None
    hvlab_python_env: PythonEnvFacts | Scalar = None
    hvlab_horovod: HorovodFacts | Scalar = None
    hvlab_ssh_trust: SshTrustFacts | Scalar = None


class Facts(HostAnswer):
    """A host's facts."""

    hvlab: OwnFacts | None = None
    ansible_local: RecordedFacts | None = None
    nodename: str | None = None
    hostname: str | None = None
    python_version: str | None = None
    distribution: Scalar = None
    distribution_version: Scalar = None
    distribution_major_version: Scalar = None
    kernel: Scalar = None
    architecture: Scalar = None
    processor_vcpus: NotNegative | None = None
