"""What the catalogue knows of each version: frozen objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VersionRange = tuple[str | None, str | None]


@dataclass(frozen=True)
class OperatingSystem:
    """An operating system: what its package manager and NVIDIA's repository for it have."""

    name: str
    distributions: tuple[str, ...]
    version: str
    family: str
    manager: str
    repository: Mapping[str, str]
    python: tuple[str, ...]
    gcc: tuple[str, ...]
    cuda: tuple[str, ...]
    glibc: str
    drivers: tuple[str, ...]
    cudnn: VersionRange | None
    nccl: VersionRange | None
    python_packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gcc_packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gcc_path: Mapping[str, str] = field(default_factory=dict)
    distro: Mapping[str, Any] = field(default_factory=dict)
    distro_packages: Mapping[str, Any] = field(default_factory=dict)
    elrepo: Mapping[str, Any] = field(default_factory=dict)
    naming: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CudaRelease:
    """A CUDA release: the driver it was made for, if known, and the host compilers (majors) nvcc takes."""

    version: str
    driver: str | None
    gcc: int
    gcc_min: int = 0
    points: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class ComputeCapability:
    """A compute capability: the CUDA releases with code for it, the drivers that run it.

    ``platforms``: architecture of the host -> kernel modules, where they are not those of ``open_modules``.
    """

    name: str
    architecture: str
    cuda: VersionRange
    driver: VersionRange
    open_modules: str = "no"
    tegra: bool = False
    platforms: Mapping[str, str] = field(default_factory=dict)

    def modules(self, architecture: str) -> str:
        """Return whether a host of an architecture can or has to have the open kernel modules."""
        return self.platforms.get(architecture, self.open_modules)


@dataclass(frozen=True)
class DriverBranch:
    """A driver branch with the compute capabilities it runs."""

    name: str
    first: str
    latest: str
    kind: str
    capabilities: VersionRange


@dataclass(frozen=True)
class GpuModel:
    """A GPU by a part of its name, or by its PCI device ids (vendor 10de).

    ``fabric``: its board has NVSwitches that the host does not see, but has to manage.
    ``imex``: NVLink connects it with GPUs of other hosts.
    """

    match: str
    capability: str
    pci: tuple[str, ...] = ()
    fabric: bool = False
    imex: bool = False


@dataclass(frozen=True)
class GpuFamily:
    """The PCI device ids of a whole generation of GPUs, both ends included."""

    first: int
    last: int
    capability: str


@dataclass(frozen=True)
class LibraryRelease:
    """A release of cuDNN or NCCL.

    ``builds`` are the CUDA releases its packages are made for, none where one package serves a whole
    major of ``majors``; ``capability`` is the lowest it runs on; ``wheels`` are the majors of its wheels.
    """

    version: str
    majors: tuple[int, ...]
    builds: tuple[str, ...] = ()
    wheels: tuple[int, ...] = ()
    capability: str | None = None


@dataclass(frozen=True)
class TorchRelease:
    """A PyTorch release: its wheels' CUDA releases, and the code in each.

    ``index`` is the one that the Python package index has for x86_64; empty where that is not known.
    """

    version: str
    cuda: tuple[str, ...]
    python: VersionRange
    gcc: int
    capabilities: Mapping[str, tuple[str, ...]]
    ptx: tuple[str, ...] = ()
    cudnn: Mapping[str, str] = field(default_factory=dict)
    nccl: Mapping[str, str] = field(default_factory=dict)
    glibc: str = "2.17"
    index: str = ""
    aarch64: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def codes(self, architecture: str) -> Mapping[str, tuple[str, ...]]:
        """Return CUDA release -> compute capabilities of the wheels for an architecture."""
        if architecture == "aarch64":
            return self.aarch64
        return {build: self.capabilities.get(build, ()) for build in self.cuda}


@dataclass(frozen=True)
class TensorflowRelease:
    """A TensorFlow release: the CUDA and cuDNN its GPU build was compiled with, and the GPUs it runs on."""

    version: str
    cuda: str
    cudnn: str
    python: VersionRange
    gcc: int = 0
    keras: int = 2
    capabilities: VersionRange = (None, None)


@dataclass(frozen=True)
class HorovodRelease:
    """A Horovod release: the frameworks and Pythons it builds with here (our patches counted in)."""

    version: str
    torch: VersionRange
    tensorflow: VersionRange
    python: VersionRange
    patched: bool = False
    sha256: str | None = None


@dataclass(frozen=True)
class OpenMpiRelease:
    """An Open MPI release; ``avoid`` says why it is refused, ``warnings`` what to know."""

    version: str
    avoid: str | None = None
    warnings: tuple[str, ...] = ()
    sha256: str | None = None


@dataclass(frozen=True)
class Assumed:
    """A version that the catalogue lacks, and the known one that it is taken to be like."""

    name: str
    version: str
    like: str


@dataclass(frozen=True)
class Catalogue:
    """All that is known of versions. Mappings go from the version's text to what is known of it."""

    systems: tuple[OperatingSystem, ...]
    cuda: Mapping[str, CudaRelease]
    minor_compatibility: Mapping[int, str]
    cuda_wheels: tuple[str, ...]
    capabilities: Mapping[str, ComputeCapability]
    branches: Mapping[str, DriverBranch]
    models: tuple[GpuModel, ...]
    families: tuple[GpuFamily, ...]
    cudnn: Mapping[str, LibraryRelease]
    nccl: Mapping[str, LibraryRelease]
    torch: Mapping[str, TorchRelease]
    tensorflow: Mapping[str, TensorflowRelease]
    horovod: Mapping[str, HorovodRelease]
    openmpi: Mapping[str, OpenMpiRelease]
    defaults: Mapping[str, str]
    # The Python minors that the roles have packages for.
    pythons: tuple[str, ...] = ()
    # The release of torch that Horovod was built on, by its build: cpu or a CUDA release.
    proven: Mapping[str, str] = field(default_factory=dict)
    # (File, name) of each entry that is of a user's file -> that file.
    own: Mapping[tuple[str, str], str] = field(default_factory=dict)
    # Versions that are newer than the files, added for the pins of one lab.
    assumed: tuple[Assumed, ...] = ()
