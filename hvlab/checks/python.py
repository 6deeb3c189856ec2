"""Python, its environments, and the compiler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hvlab.base.errors import Problem
from hvlab.checks.before import PreflightHost, PreflightLab, SoftProblem, preflight
from hvlab.checks.site import HostFault, HostReplies, Site

_WHEELS = "nccl wheels"
_GCC = "gcc"
_SYSTEM = "system"


# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {"nccl-mixed": "", "gcc-differs": ""}


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


@preflight
def check_gcc(lab: PreflightLab) -> Iterator[Problem]:
    """Yield hosts whose compiler has another major version than most hosts'."""
    majors = {host.name: host.own["gcc"].split(".")[0] for host in lab.hosts if host.own.get("gcc")}
    kind = Problem if lab.limits.gcc_skew == "error" else SoftProblem
    if len(set(majors.values())) > 1 and lab.limits.gcc_skew != "ignore":
        usual = Counter(majors.values()).most_common(1)[0][0]
        for name, major in majors.items():
            if major != usual:
                remedy = f"install gcc {usual}; software is built once per version otherwise"
                yield kind(name, f"gcc {major}, the other hosts have {usual}", remedy)


def check_pythons(hosts: Sequence[PreflightHost]) -> Iterator[Problem]:
    """Yield hosts whose Python has another minor release than most hosts'."""
    minors = {host.name: ".".join(str(host.facts.get("python_version")).split(".")[:2]) for host in hosts}
    if len(set(minors.values())) > 1:
        usual = Counter(minors.values()).most_common(1)[0][0]
        for name, minor in minors.items():
            if minor != usual:
                observed = f"its Python is {minor}, that of most hosts {usual}"
                remedy = (
                    f"install {usual} and set ansible_python_interpreter; `hvlab plan` says what fits both"
                )
                yield Problem(name, observed, remedy)
