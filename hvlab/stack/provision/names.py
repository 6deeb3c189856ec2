"""The catalogue's packages and wheels, read without the resolver, which is slow to import."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hvlab.base.yaml_files import read_shipped
from hvlab.stack import catalogue


def numbers(version: str) -> tuple[int, ...]:
    """Return all numbers in a version, for comparison: 5.14.0-427.el9 is (5, 14, 0, 427, 9)."""
    return tuple(map(int, re.findall(r"\d+", version)))


@cache
def _data(name: str) -> Any:
    return read_shipped(Path(catalogue.__file__).parent / f"{name}.yml")


def wheel_checksum(wheel: str, architecture: str) -> str:
    """Return the sha256 of a wheel, given as ``project==version``; empty if unknown."""
    return str(_data("wheels")["sha256"].get(wheel, {}).get(architecture, ""))


def toolkits() -> list[str]:
    """Return the CUDA releases whose wheels include a compiler."""
    return list(_data("wheels")["toolkits"])


def toolkit_wheels(release: str) -> tuple[str, list[str]]:
    """Return the full version of a CUDA release and its wheels; nothing if they include no compiler."""
    toolkit = _data("wheels")["toolkits"].get(release, {})
    return toolkit.get("release", ""), toolkit.get("wheels", [])


def family_packages(facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return package names by purpose for the systems of a host's family."""
    names: dict[str, list[str]] = _data("packages")["families"].get(facts.get("os_family"), {})
    return names


def of_system(section: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a section's names for a distribution, else for its family; empty for others."""
    data: Mapping[str, Any] = _data("packages")[section]
    names = (str(facts.get(key)) for key in ("distribution", "os_family"))
    return next((data[name] for name in names if name in data), {})


def from_release(names: Mapping[str, list[str]], release: str) -> list[str]:
    """Return a system's names from a release on; a release without a number is the newest."""
    number = int(release) if release.isdigit() else sys.maxsize
    return [name for first, those in names.items() if number >= int(first) for name in those]


def naming(key: str) -> Mapping[str, Any]:
    """Return the names used by a kind of NVIDIA repository."""
    rules: Mapping[str, Any] = _data("systems")["naming"][key]
    return rules


def dcgm_names() -> Mapping[str, Any]:
    """Return DCGM's packages by its major, and the CUDA of the driver's branches."""
    names: Mapping[str, Any] = _data("packages")["dcgm"]
    return names


def toolkit_names() -> list[str]:
    """Return the packages of NVIDIA's container toolkit, all of one version."""
    return list(_data("packages")["container_toolkit"])


def epel_package(facts: Mapping[str, Any]) -> str:
    """Return the package that enables EPEL on a host of the RHEL family."""
    names = _data("packages")["epel"]
    name: str = names.get(str(facts.get("distribution")), names["default"])
    return name.format(release=facts.get("distribution_major_version"))


def hwloc_packages(family: str) -> list[str]:
    """Return the packages of hwloc on the systems of a family."""
    return list(_data("systems")["packages"][family]["hwloc"])


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
