"""What roles cudnn and nccl install, refuse, record and remove. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.stack.provision.names import wheel_checksum

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
    refusals = {"cudnn": _cudnn_problems, "nccl": _nccl_problems}[library.name] if packages else _unknown
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
            "package": library.wheel if wheel else _version(packages) if library.method == "repo" else "",
            "cuda": major if wheel else library.cuda,
            "method": library.method,
            "home": f"{library.prefix}/current",
            "include": f"{library.prefix}/current/include",
            "lib": f"{library.prefix}/current/lib",
        },
    }


def _version(packages: Sequence[Package]) -> str:
    return next((package.get("version") or "" for package in packages), "")


def _folders(library: Library) -> tuple[list[str], str]:
    """Return the candidate folders of the headers, and the shared library's folder.

    Debian's packages of cuDNN have the headers in the folder of the architecture; until cuDNN 9.9,
    alternatives link there from /usr/include.
    """
    home, triple = (
        library.home if library.method == "none" else "/usr",
        f"{library.facts['architecture']}-linux-gnu",
    )
    usual = f"/usr/lib/{triple}" if library.facts.get("os_family") == "Debian" else "/usr/lib64"
    return [f"{home}/include/{triple}", f"{home}/include"], usual if home == "/usr" else f"{home}/lib"


def _header(library: Library) -> str:
    """Return the version defined in the library's header, joined by dots."""
    numbers = [int(number) for number in library.release.split(".")[:3]]
    if library.name == "cudnn":
        return ".".join(map(str, numbers))
    # As nccl.h encodes it: three digits for the two last numbers until 2.8, four after.
    factor = 10_000 if numbers[:2] >= [2, 9] else 1000
    return str(numbers[0] * factor + numbers[1] * 100 + numbers[2])


def _unknown(library: Library, *_: object) -> Iterator[str]:
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
            f"{', '.join(in_the_way)} would have to go for cuDNN {library.release} for CUDA {major}: "
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
