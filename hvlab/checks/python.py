"""Python's environments and the compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.checks.replies import HostReplies
from hvlab.checks.site import HostFault, Site

_WHEELS = "nccl wheels"
_GCC = "gcc"
_SYSTEM = "system"


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask for NCCL's wheels, the compiler and the system."""
    return {
        _WHEELS: {"stat": "/opt/hvlab/*/lib/python3*/site-packages/nvidia_nccl_cu*.dist-info"},
        _GCC: {"run": ["gcc", "-dumpfullversion"], "timeout": 5},
        _SYSTEM: {"read": "/etc/os-release"},
    }


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Judge environments, then compilers of hosts that have the same system."""
    for name, replies in every.items():
        environments: dict[str, set[str]] = {}
        for path in replies.paths(_WHEELS):
            environment, _, wheel = path.rpartition("/")
            if wheel.startswith("nvidia_nccl_cu"):
                environments.setdefault(environment, set()).add(wheel.removesuffix(".dist-info"))
        for environment, wheels in environments.items():
            if len(wheels) > 1:
                yield HostFault("nccl-mixed", name, f"{environment} has {' and '.join(sorted(wheels))}")
    systems: dict[str, dict[str, str]] = {}
    for name, replies in every.items():
        version = replies.output(_GCC).strip()
        if re.fullmatch(r"\d+(\.\d+){0,2}", version):
            release = "\n".join(replies.files(_SYSTEM).values())
            system = "".join(sorted(re.findall(r"^(?:ID|VERSION_ID)=.*$", release, re.M)))
            systems.setdefault(system, {})[name] = version
    for versions in systems.values():
        if len(set(versions.values())) > 1:
            listing = ", ".join(f"{name} {version}" for name, version in versions.items())
            yield from (HostFault("gcc-differs", name, f"gcc: {listing}") for name in versions)
