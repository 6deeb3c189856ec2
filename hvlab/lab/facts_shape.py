"""The shape of a host's facts, as far as hvlab reads them: Ansible's, ours, and what the roles recorded."""

from __future__ import annotations

from typing import Any

from hvlab.answers.shapes import Answer, NotNegative, Scalar


class Nic(Answer):
    """A network card."""

    model: Scalar = None
    driver: Scalar = None
    driver_version: Scalar = None
    speed_mbit: NotNegative | None = None


class Gpu(Answer):
    """A GPU."""

    name: Scalar = None
    pci_device: Scalar = None
    memory_mib: NotNegative | None = None


class Rdma(Answer):
    """How data gets from a GPU to the network."""

    way: str | None = None
    gdr_reason: Scalar = None


class Topology(Answer):
    """What links the GPUs."""

    link: str | None = None


class OwnFacts(Answer):
    """What our own module of facts gathers."""

    nics: list[Nic] | None = None
    interfaces: dict[str, dict[str, Any]] | None = None
    packages: dict[str, Scalar] | None = None
    rdma: Rdma | None = None
    topology: Topology | None = None
    gpus: list[Gpu] | None = None
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    gcc: str | None = None
    open_modules: Scalar = None


class Openmpi(Answer):
    """What role openmpi recorded."""

    version: str | None = None
    ucx: Scalar = None
    cuda: Scalar = None


class Framework(Answer):
    """One of the environments."""

    framework: str
    version: Scalar = None
    build: Scalar = None


class PythonEnv(Answer):
    """What role python_env recorded."""

    environments: dict[str, Framework] | None = None
    torch: Scalar = None
    python: Scalar = None


class Variant(Answer):
    """One build of Horovod."""

    version: Scalar = None
    operations: list[str] | None = None


class Horovod(Answer):
    """What role horovod recorded."""

    version: Scalar = None
    variants: dict[str, Variant] | None = None


class Recorded(Answer):
    """What the roles recorded; a text is Ansible's words on a file of facts that it cannot read."""

    hvlab_openmpi: Openmpi | Scalar = None
    hvlab_python_env: PythonEnv | Scalar = None
    hvlab_horovod: Horovod | Scalar = None


class Facts(Answer):
    """A host's facts."""

    hvlab: OwnFacts | None = None
    ansible_local: Recorded | None = None
    distribution: Scalar = None
    distribution_version: Scalar = None
    kernel: Scalar = None
    architecture: Scalar = None
    processor_vcpus: NotNegative | None = None
