"""From what was chosen to the stack of each host, as the playbooks and `hvlab plan` have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hvlab.resolver import notes, packages, versions
from hvlab.resolver.about import About
from hvlab.resolver.facts import Host
from hvlab.resolver.lab import Group
from hvlab.resolver.pins import Pin, meets
from hvlab.resolver.reasons import reasons
from hvlab.resolver.solve import Solution

LAB_PARTS = ("openmpi", "python", "torch", "tensorflow", "horovod")
GPU_PARTS = ("driver", "cuda", "cudnn", "nccl")


def stacks(solution: Solution, hosts: dict[str, Host]) -> dict[str, dict[str, Any]]:
    """Return host -> stack, in the order of ``hosts``."""
    made: dict[str, dict[str, Any]] = {}
    for number, group in enumerate(solution.built.groups):
        common = _of_group(solution, number, group)
        for name in group.hosts:
            made[name] = {
                "host": name,
                **common,
                "gpus": [gpu.as_json() for gpu in _gpus(hosts[name], group)],
            }
    return {name: made[name] for name in hosts if name in made}


def _gpus(host: Host, group: Group) -> list[Any]:
    known = {gpu.name: gpu.capability for gpu in group.gpus}
    return [type(gpu)(gpu.name, gpu.capability or known[gpu.name], gpu.memory_mib) for gpu in host.gpus]


def _of_group(solution: Solution, number: int, group: Group) -> dict[str, Any]:
    system, catalogue = group.system, solution.built.catalogue
    found = versions_of(solution, number)
    about = About(solution, number, group, found)
    driver = found["driver"]
    exact = _exact(solution, group, driver)
    opened = packages.open_modules(group, driver, catalogue)
    kept = driver is not None and packages.kept(group, driver, catalogue)
    bought = packages.Driver()
    if driver and not kept:
        bought = packages.driver(group, driver, exact=exact, opened=opened)
    cuda, cudnn, nccl = found["cuda"], found["cudnn"], found["nccl"]
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
        "versions": found,
        "methods": methods,
        "packages": {
            "driver": list(bought.packages),
            "cuda": packages.cuda(group, cuda) if cuda else [],
            "cudnn": packages.cudnn(group, cudnn, cuda, catalogue) if cuda and cudnn else [],
            "nccl": packages.nccl(group, nccl) if nccl else [],
            "python": packages.python(group, str(found["python"])),
            "gcc": packages.gcc(group, str(found["gcc"])),
        },
        "compilers": packages.compilers(group, str(found["gcc"])),
        "checksums": {
            "openmpi": _sha256(catalogue.openmpi, found["openmpi"]),
            "horovod": _sha256(catalogue.horovod, found["horovod"]),
        },
        "driver_wanted": driver if exact or driver is None else str(versions.major(driver)),
        "driver_stream": bought.module,
        "driver_lock": bought.lock,
        "compute_capabilities": list(group.capabilities),
        "open_modules": opened,
        "fabric_manager": packages.fabric_manager(group, catalogue),
        "backends": backends(group),
        "torch_index": "cpu" if about.torch_build is None else f"cu{about.torch_build.replace('.', '')}",
        "tensorflow_index": f"cu{''.join(cuda.split('.')[:2])}" if cuda else "cpu",
        "reasons": reasons(about),
        "notes": notes.of_group(about),
    }


def _sha256(releases: Mapping[str, Any], version: str | None) -> str | None:
    entry = releases.get(version or "")
    return entry.sha256 if entry else None


def versions_of(solution: Solution, number: int) -> dict[str, str | None]:
    """Return the version of every component on one group's hosts; None where they do not get it."""
    found = {name: solution.version(name, number) for name in (*GPU_PARTS, "gcc")}
    found |= {name: solution.version(name) for name in LAB_PARTS}
    order = ("driver", "cuda", "cudnn", "nccl", "openmpi", "python", "gcc", "torch", "tensorflow", "horovod")
    return {name: found[name] for name in order}


def backends(group: Group) -> list[str]:
    """Return the data planes a host can run."""
    ccl = ["ccl"] if group.host.architecture == "x86_64" else []
    return ["mpi", "gloo", *ccl, *(["nccl"] if group.gpus else [])]


def _exact(solution: Solution, group: Group, driver: str | None) -> bool:
    """Whether this one driver is meant, and not any of its branch."""
    if driver is None:
        return False
    if group.methods["driver"] in ("runfile", "local_repo"):
        return True
    asked = [pin for pin in solution.built.wishes.of(group) if pin.name == "driver"]
    return any(_whole(pin) and meets(pin, driver) for pin in asked)


def _whole(pin: Pin) -> bool:
    return "." in pin.value
