"""What the catalogue says of packages and wheels, read without the resolver, which takes longer to import."""

from __future__ import annotations

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
