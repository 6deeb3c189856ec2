"""What the catalogue says of packages and wheels, read without the resolver, which takes longer to import."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hvlab.base.yaml_files import read_shipped
from hvlab.stack import catalogue


@cache
def _data(name: str) -> Any:
    return read_shipped(Path(catalogue.__file__).parent / f"{name}.yml")


def wheel_checksum(wheel: str, architecture: str) -> str:
    """Return the sha256 of a wheel, given as ``project==version``; empty where it is not known."""
    return str(_data("wheels")["sha256"].get(wheel, {}).get(architecture, ""))


def toolkits() -> list[str]:
    """Return the CUDA releases whose wheels hold a compiler."""
    return list(_data("wheels")["toolkits"])


def toolkit_wheels(release: str) -> tuple[str, list[str]]:
    """Return the full version of a CUDA release and its wheels; nothing where no compiler is among them."""
    toolkit = _data("wheels")["toolkits"].get(release, {})
    return toolkit.get("release", ""), toolkit.get("wheels", [])


def family_packages(facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return names of packages, by what they are for, on the systems of a host's family."""
    names: dict[str, list[str]] = _data("packages")["families"].get(facts.get("os_family"), {})
    return names


def of_system(section: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a section names for a distribution, else for its family; empty for others."""
    data: Mapping[str, Any] = _data("packages")[section]
    names = (str(facts.get(key)) for key in ("distribution", "os_family"))
    return next((data[name] for name in names if name in data), {})


def from_release(names: Mapping[str, list[str]], release: str) -> list[str]:
    """Return the names that a system has from a release on; one without a number is the newest."""
    number = int(release) if release.isdigit() else sys.maxsize
    return [name for first, those in names.items() if number >= int(first) for name in those]


def naming(key: str) -> Mapping[str, Any]:
    """Return how a kind of NVIDIA's repository names things."""
    rules: Mapping[str, Any] = _data("systems")["naming"][key]
    return rules


def dcgm_names() -> Mapping[str, Any]:
    """Return DCGM's packages by its major, and the CUDA of the driver's branches."""
    names: Mapping[str, Any] = _data("packages")["dcgm"]
    return names


def toolkit_names() -> list[str]:
    """Return the packages of NVIDIA's container toolkit, all of one version."""
    return list(_data("packages")["container_toolkit"])


def signers(repository: str) -> Mapping[str, Any]:
    """Return the keys of a repository."""
    keys: Mapping[str, Any] = _data("repositories")[repository]
    return keys


def nvidia_keys() -> dict[str, str]:
    """Return the file of the key that signs each folder of NVIDIA's repository."""
    keys: dict[str, str] = dict(signers("nvidia")["others"])
    for system in _data("systems")["systems"]:
        keys |= {folder.partition("/")[0]: system["key"] for folder in system["repository"].values()}
    return keys
