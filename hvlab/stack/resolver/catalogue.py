"""The catalogue of versions: data files with sources, read into frozen objects and checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from hvlab.base import paths
from hvlab.base.yaml_files import read_shipped
from hvlab.stack.resolver import own, versions
from hvlab.stack.resolver.entries import (
    Catalogue,
    ComputeCapability,
    CudaRelease,
    DriverBranch,
    GpuFamily,
    GpuModel,
    HorovodRelease,
    LibraryRelease,
    OpenMpiRelease,
    OperatingSystem,
    TensorflowRelease,
    TorchRelease,
    VersionRange,
)
from hvlab.stack.resolver.own import CatalogueError

FOLDER = Path(__file__).resolve().parent.parent / "catalogue"
FILES = (
    "systems",
    "cuda",
    "capabilities",
    "drivers",
    "gpus",
    "cudnn",
    "nccl",
    "torch",
    "tensorflow",
    "horovod",
    "openmpi",
    "python",
)
T = TypeVar("T")


def load() -> Catalogue:
    """Return hvlab's catalogue with the user's own releases. Raises CatalogueError naming file and entry."""
    path = paths.own_catalogue()
    if path.is_file():
        return _load(path, path.stat().st_mtime_ns)
    if os.environ.get(paths.OWN_CATALOGUE):
        raise CatalogueError(
            f"{path} is not there, and {paths.OWN_CATALOGUE} names it",
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
    known = build(own.merged(files(), extra, path))
    return replace(known, own={entry: str(path) for entry in own.added(extra)})


def build(data: Mapping[str, Mapping[str, Any]]) -> Catalogue:
    """Return the catalogue of these files' contents, by file name without ``.yml``."""
    cuda = _entries("cuda", data["cuda"]["releases"], _cuda)
    wheels = data["cuda"].get("wheels") or {}
    return Catalogue(
        systems=tuple(
            _entry(
                "systems",
                str(item.get("name")),
                lambda _, entry: _system(entry, data["systems"], tuple(cuda)),
                item,
            )
            for item in data["systems"]["systems"]
        ),
        cuda=cuda,
        minor_compatibility=_majors(data["cuda"]["minor_compatibility"]),
        cuda_wheels=tuple(
            name for name, item in (wheels.get("releases") or {}).items() if item.get("nvcc", True)
        ),
        capabilities=_entries("capabilities", data["capabilities"]["capabilities"], _capability),
        branches=_entries("drivers", data["drivers"]["branches"], _branch),
        models=tuple(_entry("gpus", str(item.get("match")), _model, item) for item in data["gpus"]["models"]),
        families=tuple(
            _entry("gpus", str(item.get("from")), _family, item) for item in data["gpus"]["families"]
        ),
        cudnn=_entries("cudnn", data["cudnn"]["releases"], _library),
        nccl=_entries("nccl", data["nccl"]["releases"], _library),
        torch=_entries("torch", data["torch"]["releases"], _torch),
        tensorflow=_entries("tensorflow", data["tensorflow"]["releases"], _tensorflow),
        horovod=_entries("horovod", data["horovod"]["releases"], _horovod),
        openmpi=_openmpis(data["openmpi"]),
        pythons=_texts(data["python"]["packages"]),
        proven={str(build): str(release) for build, release in (data["torch"].get("proven") or {}).items()},
        defaults={
            name: str(data[name]["default"]) for name in ("horovod", "openmpi") if "default" in data[name]
        },
    )


def _entry(file: str, name: str, make: Callable[[str, Mapping[str, Any]], T], item: Mapping[str, Any]) -> T:
    try:
        return make(name, item)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CatalogueError(f"{file}.yml, {name}: {type(error).__name__} {error}") from error


def _entries(
    file: str, items: Mapping[str, Mapping[str, Any]], make: Callable[[str, Mapping[str, Any]], T]
) -> dict[str, T]:
    """Return the entries, the newest first."""
    unquoted = [name for name in items if not isinstance(name, str)]
    if unquoted:
        raise CatalogueError(f"{file}.yml, {unquoted[0]}: write the version in quotes")
    ordered = sorted(items.items(), key=lambda pair: versions.numbers(pair[0]), reverse=True)
    return {name: _entry(file, name, make, item) for name, item in ordered}


def _range(pair: Sequence[Any]) -> VersionRange:
    lowest, highest = pair
    return (None if lowest is None else str(lowest), None if highest is None else str(highest))


def _texts(items: Sequence[Any] | None) -> tuple[str, ...]:
    return tuple(map(str, items or ()))


def _majors(items: Mapping[Any, Any]) -> dict[int, str]:
    return {int(name): str(driver) for name, driver in items.get("majors", items).items()}


def _system(item: Mapping[str, Any], data: Mapping[str, Any], releases: Sequence[str]) -> OperatingSystem:
    return OperatingSystem(
        name=item["name"],
        distributions=_texts(item["distributions"]),
        version=str(item["version"]),
        family=item["family"],
        manager=item["manager"],
        repository=item.get("repository") or {},
        python=_texts(item["python"]),
        gcc=_texts(item["gcc"]),
        cuda=_releases(item.get("cuda"), releases),
        glibc=str(item["glibc"]),
        drivers=_texts(item["drivers"]),
        cudnn=_range(item["cudnn"]) if item.get("cudnn") else None,
        nccl=_range(item["nccl"]) if item.get("nccl") else None,
        python_packages={str(key): _texts(names) for key, names in item["python_packages"].items()},
        gcc_path={str(key): str(path) for key, path in (item.get("gcc_path") or {}).items()},
        gcc_packages={str(key): _texts(names) for key, names in item["gcc_packages"].items()},
        distro=item.get("distro") or {},
        distro_packages=item.get("distro_packages") or {},
        elrepo=item.get("elrepo") or {},
        naming=data["naming"][item["naming"]],
        packages={**data["packages"][item["family"]], **data["packages"].get(item["name"], {})},
    )


def _releases(listed: Sequence[Any] | None, releases: Sequence[str]) -> tuple[str, ...]:
    """Return the releases of a list, or of a range ``[first, last or null]``."""
    if listed and len(listed) == 2:  # noqa: PLR2004 - a range
        return tuple(release for release in releases if versions.within(release, _range(listed)))
    return _texts(listed)


def _cuda(name: str, item: Mapping[str, Any]) -> CudaRelease:
    return CudaRelease(
        name,
        None if item["driver"] is None else str(item["driver"]),
        int(item["gcc"]),
        int(item.get("gcc_min", 0)),
        item.get("points") or {},
    )


def _capability(name: str, item: Mapping[str, Any]) -> ComputeCapability:
    return ComputeCapability(
        name,
        item["architecture"],
        _range(item["cuda"]),
        _range(item["driver"]),
        item["open_modules"],
        bool(item.get("tegra")),
        item.get("platforms") or {},
    )


def _model(name: str, item: Mapping[str, Any]) -> GpuModel:
    flags = {flag: bool(item.get(flag)) for flag in ("fabric", "imex")}
    return GpuModel(name, str(item["capability"]), _texts(item.get("pci")), **flags)


def _family(name: str, item: Mapping[str, Any]) -> GpuFamily:
    return GpuFamily(int(name, 16), int(item["to"], 16), str(item["capability"]))


def _branch(name: str, item: Mapping[str, Any]) -> DriverBranch:
    return DriverBranch(
        name,
        str(item["first"]),
        str(item["latest"]),
        item["kind"],
        _range(item.get("capabilities") or (None, None)),
    )


def _library(name: str, item: Mapping[str, Any]) -> LibraryRelease:
    builds = _texts(item.get("builds"))
    majors = item.get("cuda") or sorted({versions.major(build) for build in builds})
    return LibraryRelease(
        version=name,
        majors=tuple(map(int, majors)),
        builds=builds,
        wheels=tuple(int(family.removeprefix("cu")) for family in item.get("wheels") or ()),
        capability=None if item.get("capability") is None else str(item["capability"]),
    )


def _torch(name: str, item: Mapping[str, Any]) -> TorchRelease:
    return TorchRelease(
        version=name,
        cuda=_texts(item["cuda"]),
        python=_range(item["python"]),
        gcc=int(item.get("gcc", 0)),
        capabilities={build: _texts(codes) for build, codes in (item.get("capabilities") or {}).items()},
        ptx=_texts(item.get("ptx")),
        cudnn=item.get("cudnn") or {},
        nccl=item.get("nccl") or {},
        glibc=str(item.get("glibc", "2.17")),
        index=str(item.get("index") or ""),
        aarch64={build: _texts(codes) for build, codes in (item.get("aarch64") or {}).items()},
    )


def _tensorflow(name: str, item: Mapping[str, Any]) -> TensorflowRelease:
    return TensorflowRelease(
        version=name,
        cuda=str(item["cuda"]),
        cudnn=str(item["cudnn"]),
        python=_range(item["python"]),
        gcc=int(item.get("gcc", 0)),
        keras=int(item.get("keras", 2)),
        capabilities=_range(item["capabilities"]),
    )


def _horovod(name: str, item: Mapping[str, Any]) -> HorovodRelease:
    patched = item.get("patched")
    ranges = {**item, **(patched if isinstance(patched, Mapping) else {})}
    return HorovodRelease(
        name,
        _range(ranges["torch"]),
        _range(ranges["tensorflow"]),
        _range(ranges["python"]),
        bool(patched),
        item.get("sha256"),
    )


def _openmpis(data: Mapping[str, Any]) -> dict[str, OpenMpiRelease]:
    avoid = {
        name: item if isinstance(item, Mapping) else {"reason": item}
        for name, item in (data.get("avoid") or {}).items()
    }

    def release(name: str, entry: Mapping[str, Any]) -> OpenMpiRelease:
        remarks = [item for item in (data.get("notes") or ()) if _meets(name, item)]
        remarks += [avoid[name]] if name in avoid else []
        refused = [item["reason"] for item in remarks if item.get("severity", "error") == "error"]
        warned = [item["reason"] for item in remarks if item.get("severity", "error") != "error"]
        return OpenMpiRelease(name, refused[0] if refused else None, tuple(warned), entry.get("sha256"))

    return _entries("openmpi", {**{name: {} for name in avoid}, **data["releases"]}, release)


def _meets(version: str, item: Mapping[str, Any]) -> bool:
    own = versions.numbers(version)
    return (
        versions.numbers(str(item.get("from", "0"))) <= own < versions.numbers(str(item.get("below", "999")))
    )
