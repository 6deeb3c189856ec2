"""What role cuda installs, refuses, records and removes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.stack.provision.names import family_packages, toolkit_wheels, toolkits, wheel_checksum

# A release's packages end in -<major>-<minor>; the driver's do not.
_PACKAGES = re.compile(r"(cuda|lib(cu|npp|nv)[a-z]*|gds-tools)(-[a-z].*)?-(\d+-\d+)(-config-common)?$")
_DISTRO = re.compile(r"nvidia-cuda-(toolkit|dev)$")


@dataclass(frozen=True, kw_only=True)
class CudaToolkit:
    """CUDA for a host: the options of the role, and Ansible's facts without prefix."""

    facts: Mapping[str, Any]
    version: str
    method: str
    packages: Sequence[Mapping[str, str | None]]
    runfile: str
    checksum: str
    extra: Sequence[str]
    wheels_prefix: str
    prefix: str
    compiler: Sequence[str]

    @property
    def minor(self) -> str:
        """The release without its last number: 12.4."""
        return ".".join(self.version.split(".")[:2])

    @property
    def home(self) -> str:
        """The folder that the link to CUDA leads to."""
        return {
            "distro": f"{self.wheels_prefix}/distro",
            "wheel": f"{self.wheels_prefix}/{self.minor}",
            "none": self.prefix,
        }.get(self.method, f"/usr/local/cuda-{self.minor}")

    def requested(self) -> Sequence[Mapping[str, str | None]]:
        """Return the packages; the catalogue's if the role names none."""
        if self.packages or self.method not in ("repo", "distro"):
            return self.packages
        # Takes 0.2 s; not needed if the host's stack was resolved.
        from hvlab.stack.resolver.packages import of_library  # noqa: PLC0415

        named = of_library(self.facts, "cuda", self.minor, self.minor, distro=self.method == "distro")
        usual = family_packages(self.facts).get("cuda", []) if self.method == "distro" else []
        return named or [{"name": name, "version": None} for name in usual]


def plan(toolkit: CudaToolkit) -> dict[str, Any]:
    """Return the plan that the role's tasks carry out."""
    own, home = toolkit.facts.get("hvlab") or {}, toolkit.home
    architecture = toolkit.facts.get("architecture", "")
    recorded = (toolkit.facts.get("ansible_local") or {}).get("hvlab_cuda") or {}
    release, wheels = toolkit_wheels(toolkit.minor)
    sums = {wheel: wheel_checksum(wheel, architecture) for wheel in wheels}
    lines = [f"{wheel} --hash=sha256:{checksum}" for wheel, checksum in sums.items()]
    ours = any(path.startswith(f"{toolkit.wheels_prefix}/") for path in own.get("packs") or {})
    places = {"/usr/local": ["cuda-[0-9]*.[0-9]*"]}
    if ours or recorded.get("method") == "distro":
        places[toolkit.wheels_prefix] = ["[0-9]*.[0-9]*", "distro"]
    link = {"path": toolkit.prefix, "state": "link", "src": home}
    return {
        "problem": _problem(toolkit, architecture, known=bool(sums) and all(sums.values())),
        "minor": toolkit.minor,
        "home": home,
        "packages": toolkit.requested(),
        "compiler": toolkit.compiler or family_packages(toolkit.facts).get("compiler", []),
        "release": release,
        "requirements": [*lines, *toolkit.extra],
        "distro_links": [
            {"path": f"{home}/{name}", "state": "link", "src": src}
            for name, src in _distro_folders(toolkit.facts, architecture).items()
        ],
        "links": [] if home == toolkit.prefix else [link],
        "old_packages": [name for name in own.get("packages") or {} if _is_old(toolkit, name)],
        "old_places": [{"path": path, "patterns": patterns} for path, patterns in places.items()],
        "recorded": recorded,
        "fact": {
            "version": toolkit.minor,
            "requested": toolkit.version,
            "method": toolkit.method,
            "home": home,
            "prefix": toolkit.prefix,
            "nvcc": f"{toolkit.prefix}/bin/nvcc",
            "checksum": toolkit.checksum if toolkit.method == "runfile" else "",
        },
    }


def _problem(toolkit: CudaToolkit, architecture: str, *, known: bool) -> str:
    remedy = {
        "wheel": ""
        if known
        else f"NVIDIA's wheels hold a compiler for {', '.join(toolkits())} alone; set cuda_version to one of "
        "them, or cuda_method to repo",
        "runfile": ""
        if toolkit.runfile and toolkit.checksum
        else "set cuda_runfile and cuda_runfile_checksum",
        "repo": ""
        if toolkit.requested()
        else "no packages are known for this system; name them in cuda_packages",
    }.get(toolkit.method, "")
    asked = f"CUDA {toolkit.version} by method {toolkit.method} on {architecture}"
    return f"{asked}: {remedy}." if remedy else ""


def _is_old(toolkit: CudaToolkit, name: str) -> bool:
    if _DISTRO.match(name):
        return toolkit.method != "distro"
    match = _PACKAGES.match(name)
    current = toolkit.minor.replace(".", "-") if toolkit.method == "repo" else None
    return match is not None and match[4] != current


def _distro_folders(facts: Mapping[str, Any], architecture: str) -> dict[str, str]:
    if facts.get("os_family") == "Debian":
        lib = f"/usr/lib/{architecture}-linux-gnu"
        nvvm = "/usr/lib/nvidia-cuda-toolkit"
        return {"bin": "/usr/bin", "include": "/usr/include", "lib64": lib, "nvvm": nvvm}
    return {"bin": "/usr/bin", "include": "/usr/include/cuda", "lib64": "/usr/lib64"}
