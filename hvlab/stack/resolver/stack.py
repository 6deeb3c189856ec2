"""Turns the choice into each host's stack, as the playbooks and `hvlab plan` use it, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hvlab.lab.backends import BACKENDS, PARALLEL, SHIM, of_framework
from hvlab.lab.pin_variables import TITLES
from hvlab.stack.resolver import notes, packages, rules, versions
from hvlab.stack.resolver.facts import HostFacts
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.model import ONE_CUDA, ONE_NCCL
from hvlab.stack.resolver.pins import meets
from hvlab.stack.resolver.solve import GroupChoice, Solution


def reasons(choice: GroupChoice) -> dict[str, str]:
    """Return component -> reason for its version, for one group's hosts."""
    texts = {}
    for name, version in choice.versions.items():
        if version is None:
            texts[name] = _explain_absent(name, choice)
            continue
        pins = [pin.text for pin in choice.group.pins if pin.name == name and meets(pin, version)]
        because = _WHY[name](choice)
        texts[name] = f"pinned ({', '.join(dict.fromkeys(pins))}); {because}" if pins else because
    return texts


def _explain_absent(name: str, choice: GroupChoice) -> str:
    if name in ("torch", "tensorflow"):
        return "not pinned"
    if name in ("horovod", "openmpi"):
        return "hvlab_horovod answers Horovod's scripts by torch.distributed (lab_horovod: torch)"
    if not choice.group.gpus:
        return "no GPU"
    if name == "driver":
        return "its GPUs are declared in the inventory, and lab_driver_method is none"
    return f"no {TITLES[name]} fits, and nothing here needs it"


def _driver(choice: GroupChoice) -> str:
    cuda, driver = choice.version("cuda"), choice.version("driver")
    level = rules.support(driver, cuda, choice.catalogue)
    fits = f"supports CUDA {cuda}" + (" by minor-version compatibility" if level else " in full")
    if driver == choice.group.host.driver:
        return f"installed, and {fits}"
    branch = rules.branch_of(driver, choice.catalogue)
    kind = branch.kind if branch else "known"
    return f"of the first {kind} branch that runs {choice.sms}, exists for {choice.group.title}, and {fits}"


def _cuda(choice: GroupChoice) -> str:
    cuda = choice.version("cuda")
    parts = []
    if choice.torch and versions.minor(cuda) in choice.torch.cuda:
        parts.append(f"torch {choice.torch.version} has a wheel for it")
    if choice.versions["tensorflow"]:
        tensorflow = choice.data("tensorflow", None)
        built = "built for it" if tensorflow.cuda == versions.minor(cuda) else f"built for {tensorflow.cuda}"
        parts.append(f"TensorFlow {tensorflow.version} is {built}")
    if (ONE_CUDA, None) in choice.solution.chosen and not choice.solution.drops(ONE_CUDA):
        parts.append("the same on all hosts with GPUs")
    return "; ".join([*parts, f"it has code for {choice.sms}"])


def _cudnn(choice: GroupChoice) -> str:
    if choice.torch and choice.versions["cudnn"] in choice.torch.cudnn.values():
        return f"the one torch {choice.torch.version} brings"
    release = f"made for CUDA {versions.major(choice.version('cuda'))}"
    tensorflow = choice.versions["tensorflow"]
    return f"{release}, and new enough for TensorFlow {tensorflow}" if tensorflow else f"the newest {release}"


def _nccl(choice: GroupChoice) -> str:
    own = f"; ranks of torch use {choice.torch_nccl}, which its wheel brings" if choice.torch_nccl else ""
    return _find_installed_nccl(choice) + own


def _find_installed_nccl(choice: GroupChoice) -> str:
    build, cuda = rules.nccl_build(choice.version("nccl")), choice.version("cuda")
    if build is None:
        return f"a wheel for CUDA {versions.major(cuda)}"
    same = build == versions.minor(cuda)
    text = f"built for CUDA {build}" + ("" if same else f", the nearest to {cuda} that exists")
    one = (ONE_NCCL, None) in choice.solution.chosen and not choice.solution.drops(ONE_NCCL)
    return f"{text}; the same release on all hosts" if one else text


def _openmpi(choice: GroupChoice) -> str:
    if choice.group.methods["openmpi"] == "distro":
        return f"what {choice.group.title} has (lab_openmpi_method: distro)"
    default = choice.versions["openmpi"] == choice.catalogue.defaults.get("openmpi")
    return f"{'the default; ' if default else ''}the same on all hosts"


def _python(choice: GroupChoice) -> str:
    present = choice.group.host.python
    own = present and versions.minor(present) == choice.versions["python"]
    return f"{'present' if own else f'{choice.group.title} has it'}; the same on all hosts"


def _gcc(choice: GroupChoice) -> str:
    if str(choice.gcc) == choice.versions["gcc"]:
        text = "present"
    else:
        text = f"{choice.group.title} has it" + (f", beside gcc {choice.gcc}" if choice.gcc else "")
    cuda = choice.data("cuda", choice.number)
    return f"{text}; CUDA {cuda.version} takes up to gcc {cuda.gcc}" if cuda else text


def _torch(choice: GroupChoice) -> str:
    fits = [f"Python {choice.versions['python']}"]
    fits += [f"Horovod {choice.versions['horovod']}"] if choice.versions["horovod"] else []
    fits += [f"CUDA {choice.versions['cuda']}"] if choice.versions["cuda"] else []
    proven = choice.versions["torch"] in choice.catalogue.proven.values()
    built = proven and choice.versions["horovod"]
    text = "hvlab has built Horovod on it; it goes with" if built else "the newest that goes with"
    return f"{text} {', '.join(fits)}; the same on all hosts"


def _tensorflow(choice: GroupChoice) -> str:
    data = choice.data("tensorflow", None)
    return f"built for CUDA {data.cuda} with cuDNN {data.cudnn}; the same on all hosts"


def _horovod(choice: GroupChoice) -> str:
    used = [
        f"{TITLES[name]} {choice.versions[name]}" for name in ("torch", "tensorflow") if choice.versions[name]
    ]
    patched = " with hvlab's patches" if choice.data("horovod", None).patched else ""
    return f"builds with {' and '.join(used)}{patched}; the same on all hosts"


_WHY: Mapping[str, Callable[[GroupChoice], str]] = {
    "driver": _driver,
    "cuda": _cuda,
    "cudnn": _cudnn,
    "nccl": _nccl,
    "openmpi": _openmpi,
    "python": _python,
    "gcc": _gcc,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "horovod": _horovod,
}


LAB_PARTS = ("openmpi", "python", "torch", "tensorflow", "horovod")
GPU_PARTS = ("driver", "cuda", "cudnn", "nccl")


def stacks(solution: Solution, hosts: dict[str, HostFacts]) -> dict[str, dict[str, Any]]:
    """Return host -> stack, in the order of ``hosts``."""
    by_host: dict[str, dict[str, Any]] = {}
    for number, group in enumerate(solution.lab.groups):
        common = _describe_group(solution, number, group)
        known = {gpu.name: gpu.capability for gpu in group.gpus}
        for name in group.hosts:
            gpus = [replace(gpu, capability=gpu.capability or known[gpu.name]) for gpu in hosts[name].gpus]
            by_host[name] = {"host": name, **common, "gpus": [gpu.as_json() for gpu in gpus]}
    return {name: by_host[name] for name in hosts if name in by_host}


def _describe_group(solution: Solution, number: int, group: HostGroup) -> dict[str, Any]:
    system, catalogue = group.system, solution.lab.catalogue
    chosen = versions_of(solution, number)
    choice = GroupChoice(solution, number, group, chosen)
    driver = chosen["driver"]
    exact = packages.is_exact(group, driver)
    opened = packages.uses_open_modules(group, driver, catalogue)
    kept = driver is not None and packages.keeps_driver(group, driver, catalogue)
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
        "nccl_loaded": _find_loaded_nccl(choice),
        "compute_capabilities": list(group.capabilities),
        "open_modules": opened,
        "fabric_manager": packages.needs_fabric_manager(group, catalogue),
        "imex": packages.needs_imex(group, catalogue),
        "backends": backends(group, without_horovod=not chosen["horovod"]),
        "torch_index": "cpu" if choice.torch_build is None else f"cu{choice.torch_build.replace('.', '')}",
        "tensorflow_index": f"cu{''.join(cuda.split('.')[:2])}" if cuda else "cpu",
        "reasons": reasons(choice),
        "notes": notes.of_group(choice),
    }


def _find_loaded_nccl(choice: GroupChoice) -> dict[str, str]:
    nccl = str(choice.versions["nccl"] or "").partition("-")[0]
    loaded = {"torch": choice.torch_nccl, "tensorflow": nccl if choice.versions["tensorflow"] else ""}
    return {framework: version for framework, version in loaded.items() if version}


def _sha256(releases: Mapping[str, Any], version: str | None) -> str | None:
    entry = releases.get(version or "")
    return entry.sha256 if entry else None


def versions_of(solution: Solution, number: int) -> dict[str, str | None]:
    """Return the version of every component on one group's hosts; None for a component they do not get."""
    order = (*GPU_PARTS, "openmpi", "python", "gcc", "torch", "tensorflow", "horovod")
    return {name: solution.version(name, None if name in LAB_PARTS else number) for name in order}


def backends(group: HostGroup, *, without_horovod: bool = False) -> list[str]:
    """Return the backends a host can run."""
    names = [of_framework(name, SHIM) for name in PARALLEL] if without_horovod else PARALLEL
    return [
        name
        for name in filter(None, names)
        if group.host.architecture in BACKENDS[name].architectures and (group.gpus or not BACKENDS[name].gpu)
    ]
