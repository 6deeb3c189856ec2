"""Plans of the roles cuda, cudnn and nccl: packages to install and remove, refusals, records. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.stack.provision.names import family_packages, toolkit_wheels, toolkits, wheel_checksum

Package = Mapping[str, str | None]
_PACKAGED = ("repo", "distro")
# All packages of a library, in any version.
_PACKAGES = {"cudnn": r"(lib)?cudnn\d*(-|$)", "nccl": r"libnccl(\d*|-dev|-devel|-static)$"}


@dataclass(frozen=True, kw_only=True)
class Library:
    """cuDNN or NCCL for a host: the options of the role, and Ansible's facts without prefix.

    ``headers``: the folder where its header was found; empty if not looked for.
    """

    facts: Mapping[str, Any]
    name: str
    version: str
    for_cuda: str
    method: str
    home: str
    prefix: str
    packages: Sequence[Package]
    checksum: str
    remove_old: bool
    headers: str = ""

    @property
    def release(self) -> str:
        """The version without the package's own number: 2.28.9."""
        return re.split("[-+]", self.version)[0]

    @property
    def cuda(self) -> str:
        """The CUDA release that the version names, else the one in use."""
        named = re.search(r"[.+]cuda(\d+\.\d+)", self.version)
        usual = re.match(r"\d+(\.\d+)?", self.for_cuda)
        return named[1] if named else usual[0] if usual else ""

    @property
    def wheel(self) -> str:
        """The wheel's project on the Python package index."""
        return f"nvidia-{self.name}-cu{self.cuda.partition('.')[0]}"

    def requested(self) -> Sequence[Package]:
        """Return the packages; the catalogue's if the role names none."""
        if self.packages or self.method not in _PACKAGED:
            return self.packages
        # Takes 0.2 s; not needed if the host's stack was resolved.
        from hvlab.stack.resolver.packages import of_library  # noqa: PLC0415

        named = of_library(self.facts, self.name, self.release, self.cuda, distro=self.method == "distro")
        exact = "-" in self.version and self.method == "repo"
        return [{**package, "version": self.version} for package in named] if exact else named


def plan(library: Library) -> dict[str, Any]:
    """Return the plan that the role's tasks carry out."""
    packages, wheel = library.requested(), library.method == "wheel"
    names = [str(package["name"]) for package in packages]
    own = library.facts.get("hvlab") or {}
    installed: Mapping[str, str] = own.get("packages") or {}
    major = library.cuda.partition(".")[0]
    path = f"{library.prefix}/{f'{library.release}-cuda{major}' if wheel else library.method}"
    includes, lib = _folders(library)
    links = {"include": library.headers or includes[-1], "lib": lib}
    every = re.compile(_PACKAGES[library.name])
    kept = names if library.method in _PACKAGED else []
    pattern = f"{library.wheel}=={library.release}"
    checksum = library.checksum or wheel_checksum(pattern, library.facts["architecture"])
    versions = [installed[name] for name in names if name in installed]
    version = next((package.get("version") or "" for package in packages), "")
    refusals = (
        {"cudnn": _cudnn_problems, "nccl": _nccl_problems}[library.name] if packages else _refuse_unknown
    )
    return {
        "problems": list(refusals(library, packages, installed)) if library.method == "repo" else [],
        "release": library.release,
        "cuda": library.cuda,
        "header": _header(library),
        # Installed packages built for another CUDA, as NCCL's versions tell.
        "others": [version for version in versions if not version.endswith(f"+cuda{library.cuda}")],
        "packages": packages,
        "old_packages": [name for name in installed if every.match(name) and name not in kept],
        "old_folders": [
            {"path": folder, "state": "absent"}
            for folder in own.get("packs") or {}
            if folder.startswith(f"{library.prefix}/") and folder != path
        ],
        "path": path,
        "includes": includes,
        "links": []
        if wheel
        else [{"path": f"{path}/{name}", "state": "link", "src": src} for name, src in links.items()],
        "requirement": f"{pattern} --hash=sha256:{checksum}" if checksum else pattern,
        "fact": {
            "version": library.release,
            "requested": library.version,
            "package": library.wheel if wheel else version if library.method == "repo" else "",
            "cuda": major if wheel else library.cuda,
            "method": library.method,
            "home": f"{library.prefix}/current",
            "include": f"{library.prefix}/current/include",
            "lib": f"{library.prefix}/current/lib",
        },
    }


def _folders(library: Library) -> tuple[list[str], str]:
    """Return the candidate folders of the headers, and the shared library's folder.

    Debian's packages of cuDNN have the headers in the folder of the architecture; until cuDNN 9.9,
    alternatives link there from /usr/include.
    """
    home = library.home if library.method == "none" else "/usr"
    triple = f"{library.facts['architecture']}-linux-gnu"
    usual = f"/usr/lib/{triple}" if library.facts.get("os_family") == "Debian" else "/usr/lib64"
    return [f"{home}/include/{triple}", f"{home}/include"], usual if home == "/usr" else f"{home}/lib"


def _header(library: Library) -> str:
    if library.name == "nccl":
        return str(nccl_code(library.release))
    return ".".join(str(int(number)) for number in library.release.split(".")[:3])


def nccl_code(release: str) -> int:
    """Return a release as nccl.h encodes it: three digits for the two last numbers until 2.8, four after."""
    first, second, third = (int(number) for number in release.split(".")[:3])
    return first * (10_000 if (first, second) > (2, 8) else 1000) + second * 100 + third


def _refuse_unknown(library: Library, *_: object) -> Iterator[str]:
    system = f"{library.facts.get('distribution')} {library.facts.get('distribution_version')}"
    yield (
        f"no packages of {library.name} {library.release} are known for {system}. Name them in "
        f"{library.name}_packages, or set {library.name}_method to wheel."
    )


def _cudnn_problems(
    library: Library, packages: Sequence[Package], installed: Mapping[str, str]
) -> Iterator[str]:
    # Packages name their CUDA in the package name from cuDNN 9 on, before that in the version.
    text = " ".join(f"{package['name']} {package.get('version')}" for package in packages)
    majors = dict.fromkeys(a or b for a, b in re.findall(r"-cuda-(\d+)|[.+]cuda(\d+)", text))
    names, major = [str(package["name"]) for package in packages], library.cuda.partition(".")[0]
    if set(majors) - {major}:
        yield (
            f"the packages {', '.join(names)} are for CUDA {', '.join(majors)}, and not for CUDA "
            f"{library.cuda}. Name others in cudnn_packages, or set cudnn_cuda_version."
        )
    # Packages of one generation of cuDNN exclude each other; if the headers have no separate package, that
    # one goes.
    kin = re.compile(rf"libcudnn{library.release.split('.')[0]}(-[a-z]+)?-cuda-(\d+)$")
    siblings = {name: match for name in installed if (match := kin.match(name))}
    in_the_way = [
        name
        for name, match in siblings.items()
        if match[2] != major or (match[1] == "-headers" and name not in names)
    ]
    if in_the_way and not library.remove_old:
        yield (
            f"{', '.join(in_the_way)} would be removed for cuDNN {library.release} for CUDA {major}: "
            "only one can be installed. Set cudnn_remove_old to true, or remove it yourself."
        )


def _nccl_problems(
    library: Library, packages: Sequence[Package], _installed: Mapping[str, str]
) -> Iterator[str]:
    loose = [p for p in packages if not str(p.get("version")).endswith(f"+cuda{library.cuda}")]
    if loose:
        names = ", ".join(str(package["name"]) for package in loose)
        versions = ", ".join(dict.fromkeys(package.get("version") or "in any version" for package in loose))
        yield (
            f"{names} {versions} may be built with another CUDA than {library.cuda}. Name a whole version "
            f"that ends in +cuda{library.cuda}, or set nccl_cuda_version."
        )


# A release's packages end in -<major>-<minor>; the driver's do not.
_RELEASE_PACKAGE = re.compile(r"(cuda|lib(cu|npp|nv)[a-z]*|gds-tools)(-[a-z].*)?-(\d+-\d+)(-config-common)?$")
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


def plan_toolkit(toolkit: CudaToolkit) -> dict[str, Any]:
    """Return the plan_toolkit that the role's tasks carry out."""
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
    match = _RELEASE_PACKAGE.match(name)
    current = toolkit.minor.replace(".", "-") if toolkit.method == "repo" else None
    return match is not None and match[4] != current


def _distro_folders(facts: Mapping[str, Any], architecture: str) -> dict[str, str]:
    if facts.get("os_family") == "Debian":
        lib = f"/usr/lib/{architecture}-linux-gnu"
        nvvm = "/usr/lib/nvidia-cuda-toolkit"
        return {"bin": "/usr/bin", "include": "/usr/include", "lib64": lib, "nvvm": nvvm}
    return {"bin": "/usr/bin", "include": "/usr/include/cuda", "lib64": "/usr/lib64"}
