"""The lab as the search sees it: hosts with their pins and methods, put into groups of like hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hvlab.base.errors import Problem
from hvlab.lab.pin_variables import METHODS, builds, is_true
from hvlab.stack.resolver import facts, pins, versions
from hvlab.stack.resolver.catalogue import Catalogue, OperatingSystem, load
from hvlab.stack.resolver.facts import (
    Gpu,
    HostFacts,
    capability_of,
    list_supported_systems,
    system_of,
    with_gpus,
)
from hvlab.stack.resolver.pins import Pin

NO_GPU = "no GPU"
# PyTorch has wheels for these only.
ARCHITECTURES = ("x86_64", "aarch64")


# Methods whose modules are built on the host, by DKMS or the installer, from NVIDIA's unpatched source.
_BUILT = ("repo", "local_repo", "runfile")
_JETSON = "its driver and CUDA come with JetPack and not from here"
# The driver ignores GPUs that it does not run.
_LEAVE_OUT = "list only the GPUs to be used in lab_gpus"
# Methods that download a file, and the beginning of its variables' names.
DOWNLOADS = {
    ("driver", "runfile"): "nvidia_driver_runfile",
    ("driver", "local_repo"): "nvidia_driver_local_repo",
    ("cuda", "runfile"): "cuda_runfile",
}
# Where a guest's driver comes from.
_GUESTS = {
    facts.VGPU: "install the guest driver of the vGPU software that its hypervisor runs",
    facts.WSL: "install NVIDIA's driver in Windows",
}


@dataclass(frozen=True)
class HostRequest:
    """A host's facts with its requests: pins, and the installation method of each component.

    ``gpu``: it is in group gpu; ``pythons``: the minors available for environments, none for any;
    ``build``: role variables used in builds; ``slurm``: it gets Slurm.
    ``own_key``: its inventory names the key for NVIDIA's packages, or leaves their repository out;
    ``trusted``: Secure Boot lets modules in that are built on it; ``unloaded``: no driver is to be loaded.
    ``checked``: its downloads with a checksum.
    """

    host: HostFacts
    pins: tuple[Pin, ...] = ()
    methods: Mapping[str, str] = field(default_factory=dict)
    gpu: bool = False
    pythons: tuple[str, ...] = ()
    build: Mapping[str, Any] = field(default_factory=dict)
    slurm: bool = False
    own_key: bool = False
    trusted: bool = False
    unloaded: bool = False
    checked: tuple[str, ...] = ()


def request(
    host: HostFacts,
    variables: Mapping[str, Any],
    *,
    gpu: bool = True,
    slurm: bool = True,
    only_pins: bool = False,
) -> HostRequest:
    """Return a host's facts with its inventory variables. Raises UsageError for one that is malformed.

    ``gpu``: whether it gets the GPU stack (group ``gpu``); otherwise its GPUs do not count. ``slurm``:
    whether ``lab_slurm`` covers it.
    """
    own = tuple(pins.of_host(host.name, variables))
    if only_pins:
        return HostRequest(host, own)
    declared = variables.get("lab_gpus")
    if isinstance(declared, list):
        host = with_gpus(host, declared)
    host = host if gpu else replace(host, gpus=())
    build = {name: value for name, value in variables.items() if builds(name)}
    methods, used = pins.methods_of(host.name, variables), variables.get("nvidia_repository_enabled", True)
    return HostRequest(
        host,
        own,
        methods,
        gpu,
        load().pythons,
        build,
        slurm=slurm and is_true(variables.get("lab_slurm")),
        own_key=bool(variables.get("nvidia_repository_key_fingerprint")) or not is_true(used),
        trusted=variables.get("nvidia_driver_secure_boot") == "allow",
        unloaded=variables.get("nvidia_driver_load") == "never",
        checked=tuple(name for name in DOWNLOADS.values() if variables.get(f"{name}_checksum")),
    )


@dataclass(frozen=True)
class HostGroup:
    """Hosts with the same facts, pins and methods: they get the same stack.

    ``guest``: why their driver comes from outside; None if it does not.
    ``kernel``: their kernel, if modules of some driver branch would be built for it and do not compile.
    """

    hosts: tuple[str, ...]
    host: HostFacts
    system: OperatingSystem
    gpus: tuple[Gpu, ...]
    pins: tuple[Pin, ...]
    methods: Mapping[str, str]
    pythons: tuple[str, ...] = ()
    kernel: str = ""
    guest: str | None = None

    @property
    def title(self) -> str:
        """The operating system for the reader."""
        return f"{self.host.distribution} {self.host.version}"

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The compute capabilities of its GPUs, the lowest first."""
        return tuple(sorted({str(gpu.capability) for gpu in self.gpus}, key=versions.numbers))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The kind and text of each fact that can conflict with a pin."""
        facts = [("os", self.title), *(("gpu", gpu.title) for gpu in self.gpus)]
        facts += [] if self.gpus else [("gpu", NO_GPU)]
        fixed = self.gpus and self.methods["driver"] == "none"
        if fixed and (self.host.driver or not self.host.declared):
            facts.append(("driver", self.driver))
        if self.kernel:
            facts.append(("kernel", self.kernel))
        if self.host.architecture != "x86_64":
            facts.append(("architecture", self.host.architecture))
        return facts

    @property
    def driver(self) -> str:
        """The installed driver for the reader."""
        return f"driver {self.host.driver}" if self.host.driver else "no driver"


def group(lab: Sequence[HostRequest], catalogue: Catalogue) -> tuple[list[HostGroup], list[Problem]]:
    """Return the groups of like hosts, and a problem for each host that the catalogue cannot serve."""
    members: dict[object, list[str]] = {}
    groups: dict[object, HostGroup] = {}
    problems = []
    for one in lab:
        host, system = one.host, system_of(one.host, catalogue)
        problem = _problem(one, catalogue)
        if problem or system is None:
            problems.append(problem or Problem(host.name, "its system is unknown", "leave it out"))
            continue
        methods = {name: one.methods.get(name, every[0]) for name, every in METHODS.items()}
        gpus = tuple(dict.fromkeys(Gpu(gpu.name, capability_of(gpu, catalogue)) for gpu in host.gpus))
        kernel_gcc = host.kernel_gcc if gpus else None
        guest = host.guest
        if host.container and host.driver and host.loaded and not one.unloaded:
            guest = guest or facts.CONTAINER
        if guest:
            methods["driver"] = "none"
        built = bool(gpus) and methods["driver"] in _BUILT
        kernel = _kernel(host, catalogue) if built else ""
        like = replace(host, name="", kernel=kernel, kernel_gcc=kernel_gcc, gpus=gpus)
        like = replace(like, secure_boot=False, container=False, loaded=True)
        key = (like, guest, system.name, gpus, one.pins, tuple(sorted(methods.items())), one.pythons)
        members.setdefault(key, []).append(host.name)
        groups[key] = HostGroup((), host, system, gpus, one.pins, methods, one.pythons, kernel, guest)
    return [replace(groups[key], hosts=tuple(hosts)) for key, hosts in members.items()], problems


def _kernel(host: HostFacts, catalogue: Catalogue) -> str:
    """Return the kernel's release if modules of some branch do not compile on it; else nothing."""
    running = versions.numbers(host.kernel or "")
    limited = any(running >= versions.numbers(limit.kernel) for limit in catalogue.kernels)
    return f"kernel {'.'.join(map(str, running))}" if limited else ""


def _problem(one: HostRequest, catalogue: Catalogue) -> Problem | None:
    host = one.host
    if one.gpu and host.others and not host.gpus:
        observed = f"it is in the group gpu, and has no GPU for NVIDIA's driver: {', '.join(host.others)}"
        return Problem(host.name, observed, "take it out of the group gpu; its ranks then run on CPUs")
    if one.gpu and not host.gpus and "tegra" in (host.kernel or ""):
        return Problem(host.name, f"its kernel {host.kernel} is a Jetson's", _JETSON)
    if one.gpu and not host.gpus:
        observed = "it is in the group gpu, and shows no GPU"
        return Problem(host.name, observed, "lab_gpus, or take it out of the group gpu")
    if system_of(host, catalogue) is None:
        observed = f"{host.distribution} {host.version} is not supported"
        return Problem(host.name, observed, f"supported are {list_supported_systems(catalogue)}")
    if host.architecture not in ARCHITECTURES:
        remedy = f"supported are {', '.join(ARCHITECTURES)}"
        return Problem(host.name, f"its architecture {host.architecture} is not supported", remedy)
    unknown = next((problem for gpu in host.gpus if (problem := _gpu_problem(host, gpu, catalogue))), None)
    return unknown or _driver_problem(host, catalogue)


def _driver_problem(host: HostFacts, catalogue: Catalogue) -> Problem | None:
    guest = host.guest
    if guest and not host.driver and not host.declared:
        observed = f"its driver comes from outside ({guest}), and there is none"
        return Problem(host.name, observed, _GUESTS[guest])
    modules = {
        catalogue.capabilities[str(capability_of(gpu, catalogue))].modules(host.architecture): gpu.name
        for gpu in host.gpus
    }
    if {"no", "required"} <= set(modules):
        observed = (
            f"its {modules['required']} needs NVIDIA's open kernel modules, its {modules['no']} the others"
        )
        return Problem(host.name, observed, f"a host loads one driver: {_LEAVE_OUT}")
    return None


def _gpu_problem(host: HostFacts, gpu: Gpu, catalogue: Catalogue) -> Problem | None:
    capability = capability_of(gpu, catalogue)
    if capability is None:
        remedy = "say it: compute_capability in the facts, or lab_gpus in the inventory"
        remedy += ", which can also leave this GPU out" if len(host.gpus) > 1 else ""
        return Problem(host.name, f"the compute capability of its GPU {gpu.name!r} is not known", remedy)
    if capability not in catalogue.capabilities:
        known = ", ".join(sorted(catalogue.capabilities, key=versions.numbers))
        observed = f"the compute capability {capability} of its GPU {gpu.name!r} is not known"
        return Problem(host.name, observed, f"known are {known}; {_LEAVE_OUT}")
    if catalogue.capabilities[capability].tegra:
        observed = f"its {gpu.name} (sm_{capability.replace('.', '')}) is a Jetson's"
        return Problem(host.name, observed, _JETSON)
    return None
