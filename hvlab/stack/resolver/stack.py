"""From what was chosen to the stack of each host, as the playbooks and `hvlab plan` have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hvlab.lab.backends import BACKENDS, PARALLEL
from hvlab.stack.resolver import notes, packages, versions
from hvlab.stack.resolver.facts import HostFacts
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.pins import meets
from hvlab.stack.resolver.reasons import GroupChoice, reasons
from hvlab.stack.resolver.solve import Solution

LAB_PARTS = ("openmpi", "python", "torch", "tensorflow", "horovod")
GPU_PARTS = ("driver", "cuda", "cudnn", "nccl")


def stacks(solution: Solution, hosts: dict[str, HostFacts]) -> dict[str, dict[str, Any]]:
    """Return host -> stack, in the order of ``hosts``."""
    by_host: dict[str, dict[str, Any]] = {}
    for number, group in enumerate(solution.lab.groups):
        common = _of_group(solution, number, group)
        for name in group.hosts:
            by_host[name] = {
                "host": name,
                **common,
                "gpus": [gpu.as_json() for gpu in _gpus(hosts[name], group)],
            }
    return {name: by_host[name] for name in hosts if name in by_host}


def _gpus(host: HostFacts, group: HostGroup) -> list[Any]:
    known = {gpu.name: gpu.capability for gpu in group.gpus}
    return [type(gpu)(gpu.name, gpu.capability or known[gpu.name], gpu.memory_mib) for gpu in host.gpus]


def _of_group(solution: Solution, number: int, group: HostGroup) -> dict[str, Any]:
    system, catalogue = group.system, solution.lab.catalogue
    chosen = versions_of(solution, number)
    choice = GroupChoice(solution, number, group, chosen)
    driver = chosen["driver"]
    exact = _exact(group, driver)
    opened = packages.open_modules(group, driver, catalogue)
    kept = driver is not None and packages.kept(group, driver, catalogue)
    driver_packages = packages.DriverPackages()
    if driver and not kept:
        driver_packages = packages.driver(group, driver, exact=exact, opened=opened)
    cuda, cudnn, nccl = chosen["cuda"], chosen["cudnn"], chosen["nccl"]
    methods = packages.methods(group, cuda) if group.gpus else dict.fromkeys(GPU_PARTS)
    if kept:
        methods["driver"] = "none"
    methods["openmpi"] = group.methods["openmpi"]
    return {
        "system": {
            "name": system.name,
            "distribution": group.host.distribution,
            "version": group.host.version,
            "family": system.family,
            "manager": system.manager,
            "python": system.python[0],
            "repository": system.repository.get(group.host.architecture),
            "architecture": group.host.architecture,
        },
        "versions": chosen,
        "not_known": choice.assumed,
        "methods": methods,
        "packages": {
            "driver": list(driver_packages.packages),
            "cuda": packages.cuda(group, cuda) if cuda else [],
            "cudnn": packages.cudnn(group, cudnn, cuda, catalogue) if cuda and cudnn else [],
            "nccl": packages.nccl(group, nccl) if nccl else [],
            "python": packages.python(group, str(chosen["python"])),
            "gcc": packages.gcc(group, str(chosen["gcc"])),
        },
        "role_packages": packages.of_roles(group, packages.python(group, str(chosen["python"]))),
        "compilers": packages.compilers(group, str(chosen["gcc"])),
        "checksums": {
            "openmpi": _sha256(catalogue.openmpi, chosen["openmpi"]),
            "horovod": _sha256(catalogue.horovod, chosen["horovod"]),
        },
        "driver_requested": driver if exact or driver is None else str(versions.major(driver)),
        "driver_stream": driver_packages.module,
        "driver_lock": driver_packages.lock,
        "nccl_loaded": _nccl_loaded(choice),
        "compute_capabilities": list(group.capabilities),
        "open_modules": opened,
        "fabric_manager": packages.fabric_manager(group, catalogue),
        "imex": packages.imex(group, catalogue),
        "backends": backends(group),
        "torch_index": "cpu" if choice.torch_build is None else f"cu{choice.torch_build.replace('.', '')}",
        "tensorflow_index": f"cu{''.join(cuda.split('.')[:2])}" if cuda else "cpu",
        "reasons": reasons(choice),
        "notes": notes.of_group(choice),
    }


def _nccl_loaded(choice: GroupChoice) -> dict[str, str]:
    """Return framework -> the NCCL release that its ranks use, where that is known."""
    nccl = str(choice.versions["nccl"] or "").partition("-")[0]
    loaded = {"torch": choice.torch_nccl, "tensorflow": nccl if choice.versions["tensorflow"] else ""}
    return {framework: version for framework, version in loaded.items() if version}


def _sha256(releases: Mapping[str, Any], version: str | None) -> str | None:
    entry = releases.get(version or "")
    return entry.sha256 if entry else None


def versions_of(solution: Solution, number: int) -> dict[str, str | None]:
    """Return the version of every component on one group's hosts; None where they do not get it."""
    chosen = {name: solution.version(name, number) for name in (*GPU_PARTS, "gcc")}
    chosen |= {name: solution.version(name) for name in LAB_PARTS}
    order = ("driver", "cuda", "cudnn", "nccl", "openmpi", "python", "gcc", "torch", "tensorflow", "horovod")
    return {name: chosen[name] for name in order}


def backends(group: HostGroup) -> list[str]:
    """Return the backends a host can run."""
    return [
        name
        for name in PARALLEL
        if group.host.architecture in BACKENDS[name].architectures and (group.gpus or not BACKENDS[name].gpu)
    ]


def _exact(group: HostGroup, driver: str | None) -> bool:
    """Whether exactly this driver is installed, and not any of its branch that the distribution has."""
    if driver is None:
        return False
    if group.methods["driver"] in ("repo", "runfile", "local_repo"):
        return True
    return any(pin.name == "driver" and "." in pin.value and meets(pin, driver) for pin in group.pins)
