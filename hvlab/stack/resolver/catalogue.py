"""The catalogue of versions: data files with sources, read into frozen objects and checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from hvlab.base import paths
from hvlab.base.yaml_files import mistake, read_shipped
from hvlab.stack.resolver import own, versions
from hvlab.stack.resolver.own import CatalogueError

FOLDER = Path(__file__).resolve().parent.parent / "catalogue"
FILES = (
    *("systems", "cuda", "capabilities", "drivers", "gpus", "cudnn"),
    *("nccl", "torch", "tensorflow", "horovod", "openmpi", "python"),
)
T = TypeVar("T")
# Versions that YAML may have read as numbers.
Text = Annotated[str, Field(coerce_numbers_to_str=True)]
VersionRange = tuple[Text | None, Text | None]


@dataclass(frozen=True)
class OperatingSystem:
    """An operating system: the contents of its package repositories and of NVIDIA's."""

    name: str
    distributions: tuple[str, ...]
    version: Text
    family: str
    manager: str
    repository: Mapping[str, str]
    python: tuple[Text, ...]
    gcc: tuple[Text, ...]
    cuda: tuple[Text, ...]
    glibc: Text
    drivers: tuple[Text, ...]
    cudnn: VersionRange | None
    nccl: VersionRange | None
    python_packages: Mapping[Text, tuple[Text, ...]] = field(default_factory=dict)
    gcc_packages: Mapping[Text, tuple[Text, ...]] = field(default_factory=dict)
    gcc_path: Mapping[Text, Text] = field(default_factory=dict)
    distro: Mapping[str, Any] = field(default_factory=dict)
    distro_packages: Mapping[str, Any] = field(default_factory=dict)
    elrepo: Mapping[str, Any] = field(default_factory=dict)
    naming: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, Any] = field(default_factory=dict)
    newest: Mapping[Text, Text] = field(default_factory=dict)
    end: Text = ""
    ends: Mapping[str, Text] = field(default_factory=dict)
    key_unknown: bool = False
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class CudaRelease:
    """A CUDA release: the driver it was made for, if known, and the host compilers (majors) nvcc takes."""

    version: Text
    driver: Text | None
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
        """Whether a host of an architecture can or must have the open kernel modules."""
        return self.platforms.get(architecture, self.open_modules)


@dataclass(frozen=True)
class DriverBranch:
    """A driver branch with the compute capabilities it runs."""

    name: str
    first: Text
    latest: Text
    kind: str
    capabilities: VersionRange = (None, None)
    end: Text = ""


@dataclass(frozen=True)
class KernelLimit:
    """Up to ``version`` the modules of its branch do not compile on ``kernel`` and later ones."""

    version: Text
    kernel: Text


@dataclass(frozen=True)
class GpuModel:
    """A GPU by a part of its name, or by its PCI device ids (vendor 10de).

    ``fabric``: its board has NVSwitches that the host must manage but cannot see.
    ``imex``: NVLink connects it with GPUs of other hosts.
    """

    match: str
    capability: Text
    pci: tuple[str, ...] = ()
    fabric: bool = False
    imex: bool = False


@dataclass(frozen=True)
class GpuFamily:
    """The PCI device ids of a whole generation of GPUs, both ends included."""

    first: int
    last: int
    capability: Text


@dataclass(frozen=True)
class LibraryRelease:
    """A release of cuDNN or NCCL.

    ``builds`` are the CUDA releases its packages are made for, none where one package serves a whole
    major of ``majors``; ``capability`` is the lowest it runs on; ``wheels`` are the majors of its wheels.
    """

    version: Text
    majors: tuple[int, ...]
    builds: tuple[Text, ...] = ()
    wheels: tuple[int, ...] = ()
    capability: Text | None = None


@dataclass(frozen=True)
class TorchRelease:
    """A PyTorch release: its wheels' CUDA releases, and the code in each.

    ``index`` is the CUDA release of the Python package index's wheel for x86_64; empty if unknown.
    """

    version: Text
    cuda: tuple[Text, ...]
    python: VersionRange
    gcc: int = 0
    capabilities: Mapping[Text, tuple[Text, ...]] = field(default_factory=dict)
    ptx: tuple[Text, ...] = ()
    cudnn: Mapping[Text, Text] = field(default_factory=dict)
    nccl: Mapping[Text, Text] = field(default_factory=dict)
    glibc: Text = "2.17"
    index: Text = ""
    aarch64: Mapping[Text, tuple[Text, ...]] = field(default_factory=dict)

    def codes(self, architecture: str) -> Mapping[str, tuple[str, ...]]:
        """Return CUDA release -> compute capabilities of the wheels for an architecture."""
        if architecture == "aarch64":
            return self.aarch64
        return self._of_x86

    @cached_property
    def _of_x86(self) -> Mapping[str, tuple[str, ...]]:
        return {build: self.capabilities.get(build, ()) for build in self.cuda}


@dataclass(frozen=True)
class TensorflowRelease:
    """A TensorFlow release: the CUDA and cuDNN its GPU build was compiled with, and the GPUs it runs on."""

    version: Text
    cuda: Text
    cudnn: Text
    python: VersionRange
    gcc: int = 0
    keras: int = 2
    capabilities: VersionRange = (None, None)


@dataclass(frozen=True)
class HorovodRelease:
    """A Horovod release: the frameworks and Pythons it builds with here (our patches counted in)."""

    version: Text
    torch: VersionRange
    tensorflow: VersionRange
    python: VersionRange
    patched: bool = False
    sha256: str | None = None


@dataclass(frozen=True)
class OpenMpiRelease:
    """An Open MPI release; ``avoid`` says why it is refused, ``warnings`` are remarks."""

    version: Text
    avoid: str | None = None
    warnings: tuple[str, ...] = ()
    sha256: str | None = None


@dataclass(frozen=True)
class Assumed:
    """A version that the catalogue lacks, and the known one it is assumed to resemble."""

    name: str
    version: str
    like: str


@dataclass(frozen=True)
class Catalogue:
    """All known versions. Mappings go from a version's text to its data."""

    systems: tuple[OperatingSystem, ...]
    cuda: Mapping[str, CudaRelease]
    minor_compatibility: Mapping[int, str]
    cuda_wheels: tuple[str, ...]
    capabilities: Mapping[str, ComputeCapability]
    branches: Mapping[str, DriverBranch]
    kernels: tuple[KernelLimit, ...]
    models: tuple[GpuModel, ...]
    families: tuple[GpuFamily, ...]
    other_gpus: str
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
    # (File, name) of each entry from a user's file -> that file.
    own: Mapping[tuple[str, str], str] = field(default_factory=dict)
    # Versions newer than the files, added for one lab's pins.
    assumed: tuple[Assumed, ...] = ()


def load() -> Catalogue:
    """Return hvlab's catalogue with the user's own releases. Raises CatalogueError naming file and entry."""
    path = paths.own_catalogue()
    if path.is_file():
        return _load(path, path.stat().st_mtime_ns)
    if os.environ.get(paths.OWN_CATALOGUE):
        raise CatalogueError(
            f"{path} does not exist, and {paths.OWN_CATALOGUE} names it",
            remedy="correct the name, or write the file: `hvlab catalogue update --own`",
        )
    return _load(None, 0)


def files(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Return the contents of the catalogue's files, by name without ``.yml``."""
    data = {}
    for name in FILES:
        path = folder / f"{name}.yml"
        if not path.is_file():
            raise CatalogueError(f"the catalogue lacks {path}", remedy="install hvlab again: `make install`")
        status = path.stat()
        data[name] = _content(path, status.st_mtime_ns, status.st_size)
    return data


@cache
def _content(path: Path, _changed: int, _size: int) -> dict[str, Any]:
    content: dict[str, Any] = read_shipped(path)
    return content


@cache
def _load(path: Path | None, _changed: int) -> Catalogue:
    if path is None:
        return build(files())
    extra = own.read(path)
    known = build(own.merge(files(), extra, path))
    return replace(known, own={entry: str(path) for entry in own.list_added(extra)})


def build(data: Mapping[str, Mapping[str, Any]]) -> Catalogue:
    """Return the catalogue of these files' contents, by file name without ``.yml``."""
    cuda = _releases(CudaRelease, "cuda", data["cuda"]["releases"])
    wheels = data["cuda"].get("wheels") or {}
    naming, packages = data["systems"]["naming"], data["systems"]["packages"]
    systems = (
        {
            **item,
            "cuda": _in_range(item.get("cuda"), cuda),
            "naming": naming.get(item.get("naming")),
            "packages": {**packages[item["family"]], **packages.get(item["name"], {})},
        }
        for item in data["systems"]["systems"]
    )
    families = (
        {**item, "first": int(item["from"], 16), "last": int(item["to"], 16)}
        for item in data["gpus"]["families"]
    )
    libraries = {
        name: _releases(
            LibraryRelease, name, {key: _library(item) for key, item in data[name]["releases"].items()}
        )
        for name in ("cudnn", "nccl")
    }
    horovod = {
        name: {**item, **(patched if isinstance(patched, Mapping) else {}), "patched": bool(patched)}
        for name, item in data["horovod"]["releases"].items()
        for patched in [item.get("patched")]
    }
    return Catalogue(
        systems=tuple(_entry(OperatingSystem, "systems", item) for item in systems),
        cuda=cuda,
        minor_compatibility=_check(
            dict[int, str], "cuda", "minor_compatibility", data["cuda"]["minor_compatibility"]["majors"]
        ),
        cuda_wheels=tuple(
            name for name, item in (wheels.get("releases") or {}).items() if item.get("nvcc", True)
        ),
        capabilities=_releases(ComputeCapability, "capabilities", data["capabilities"]["capabilities"]),
        branches=_releases(DriverBranch, "drivers", data["drivers"]["branches"]),
        kernels=tuple(_entry(KernelLimit, "drivers", item) for item in data["drivers"].get("kernels") or ()),
        models=tuple(_entry(GpuModel, "gpus", item) for item in data["gpus"]["models"]),
        other_gpus=data["gpus"]["others"],
        families=tuple(_entry(GpuFamily, "gpus", item) for item in families),
        cudnn=libraries["cudnn"],
        nccl=libraries["nccl"],
        torch=_releases(TorchRelease, "torch", data["torch"]["releases"]),
        tensorflow=_releases(TensorflowRelease, "tensorflow", data["tensorflow"]["releases"]),
        horovod=_releases(HorovodRelease, "horovod", horovod),
        openmpi=_releases(OpenMpiRelease, "openmpi", _openmpis(data["openmpi"])),
        pythons=tuple(data["python"]["packages"]),
        proven=data["torch"].get("proven") or {},
        defaults={name: data[name]["default"] for name in ("horovod", "openmpi") if "default" in data[name]},
    )


_adapter = cache(TypeAdapter)


def _check(kind: type[T], file: str, name: str, item: object) -> T:
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]
    try:
        return adapter.validate_python(item)
    except ValidationError as error:
        raise CatalogueError(f"{file}.yml, {name}: {mistake(error)}") from error


def _entry(kind: type[T], file: str, item: Mapping[str, Any]) -> T:
    return _check(kind, file, str(item.get(fields(kind)[0].name)), item)  # type: ignore[arg-type]


def _releases(kind: type[T], file: str, items: Mapping[str, Mapping[str, Any]]) -> dict[str, T]:
    unquoted = [name for name in items if not isinstance(name, str)]
    if unquoted:
        raise CatalogueError(f"{file}.yml, {unquoted[0]}: write the version in quotes")
    key = fields(kind)[0].name  # type: ignore[arg-type]
    ordered = sorted(items, key=versions.numbers, reverse=True)
    return {name: _check(kind, file, name, {**items[name], key: name}) for name in ordered}


def _in_range(listed: Sequence[str] | None, releases: Iterable[str]) -> Sequence[str]:
    """Return the releases of a list, or of a range ``[first, last or null]``."""
    if listed and len(listed) == 2:  # noqa: PLR2004 - a range
        return [release for release in releases if versions.is_within(release, listed)]
    return listed or ()


def _library(item: Mapping[str, Any]) -> dict[str, Any]:
    majors = item.get("cuda") or sorted({versions.major(build) for build in item.get("builds") or ()})
    wheels = [family.removeprefix("cu") for family in item.get("wheels") or ()]
    return {**item, "majors": majors, "wheels": wheels}


def _openmpis(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the releases with the remarks on each: why it is refused, and warnings."""
    avoid: Mapping[str, Any] = data.get("avoid") or {}
    items = {}
    for name, item in {**{version: {} for version in avoid}, **data["releases"]}.items():
        own = versions.numbers(name)
        remarks = [
            note
            for note in data.get("notes") or ()
            if versions.numbers(note.get("from", "0")) <= own < versions.numbers(note.get("below", "999"))
        ]
        remarks += [avoid[name]] if name in avoid else []
        refused = [note["reason"] for note in remarks if note["severity"] == "error"]
        warned = [note["reason"] for note in remarks if note["severity"] != "error"]
        items[name] = {**item, "avoid": next(iter(refused), None), "warnings": warned}
    return items
