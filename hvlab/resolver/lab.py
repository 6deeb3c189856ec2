"""The lab as the search sees it: groups of like hosts, with their system, GPUs, methods and wishes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hvlab.lab.pin_variables import METHODS
from hvlab.resolver import versions
from hvlab.resolver.entries import Catalogue, System
from hvlab.resolver.facts import Gpu, Host, capability_of, supported, system_of
from hvlab.resolver.pins import Pin

SHOWN = 3
# PyTorch has no wheels for others.
ARCHITECTURES = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Wanted:
    """A host with what is wished for it: pins of the inventory, methods.

    ``gpu``: it is to have GPUs; ``pythons``: the minors it can have an environment with, none for any.
    """

    host: Host
    pins: tuple[Pin, ...] = ()
    methods: Mapping[str, str] = field(default_factory=dict)
    gpu: bool = False
    pythons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Hosts with the same facts and wishes: they get the same stack."""

    hosts: tuple[str, ...]
    host: Host
    system: System
    gpus: tuple[Gpu, ...]
    pins: tuple[Pin, ...]
    methods: Mapping[str, str]
    pythons: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The operating system for the reader."""
        return f"{self.host.distribution} {self.host.version}"

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The compute capabilities of its GPUs, the lowest first."""
        return tuple(sorted({str(gpu.capability) for gpu in self.gpus}, key=versions.numbers))


@dataclass(frozen=True)
class Refused:
    """A host that the catalogue cannot serve at all: what was seen there, what to do."""

    host: str
    seen: str
    remedy: str


def names(hosts: Iterable[str]) -> str:
    """Return host names for the reader: some, and how many more."""
    found = list(hosts)
    more = len(found) - SHOWN
    return ", ".join(found) if more <= 1 else f"{', '.join(found[:SHOWN])} and {more} more"


def group(lab: Sequence[Wanted], catalogue: Catalogue) -> tuple[list[Group], list[Refused]]:
    """Return the groups of like hosts, and the hosts that nothing can be said of."""
    made: dict[object, list[str]] = {}
    groups: dict[object, Group] = {}
    refused = []
    for wanted in lab:
        host = wanted.host
        found = _problem(wanted, catalogue)
        system = system_of(host, catalogue)
        if found or system is None:
            refused.append(found or Refused(host.name, "its system is unknown", "leave it out"))
            continue
        methods = {name: wanted.methods.get(name, allowed[0]) for name, allowed in METHODS.items()}
        gpus = tuple(dict.fromkeys(Gpu(gpu.name, capability_of(gpu, catalogue)) for gpu in host.gpus))
        like = replace(host, name="", kernel=None, gpus=gpus)
        key = (like, system.name, gpus, wanted.pins, tuple(sorted(methods.items())), wanted.pythons)
        made.setdefault(key, []).append(host.name)
        groups[key] = Group((), host, system, gpus, wanted.pins, methods, wanted.pythons)
    return [replace(groups[key], hosts=tuple(hosts)) for key, hosts in made.items()], refused


def _problem(wanted: Wanted, catalogue: Catalogue) -> Refused | None:
    host = wanted.host
    if wanted.gpu and not host.gpus:
        seen = "it is in the group gpu, and shows no GPU"
        return Refused(host.name, seen, "lab_gpus, or take it out of the group gpu")
    if system_of(host, catalogue) is None:
        seen = f"{host.distribution} {host.version} is not supported"
        return Refused(host.name, seen, f"supported are {supported(catalogue)}")
    if host.architecture not in ARCHITECTURES:
        remedy = f"supported are {', '.join(ARCHITECTURES)}"
        return Refused(host.name, f"its architecture {host.architecture} is not supported", remedy)
    unknown = next((found for gpu in host.gpus if (found := _gpu_problem(host, gpu, catalogue))), None)
    if unknown:
        return unknown
    modules = {
        catalogue.capabilities[str(capability_of(gpu, catalogue))].modules(host.architecture): gpu.name
        for gpu in host.gpus
    }
    if {"no", "required"} <= set(modules):
        seen = f"its {modules['required']} needs NVIDIA's open kernel modules, its {modules['no']} the others"
        return Refused(host.name, seen, "put them into different hosts: a host loads one driver")
    return None


def _gpu_problem(host: Host, gpu: Gpu, catalogue: Catalogue) -> Refused | None:
    capability = capability_of(gpu, catalogue)
    if capability is None:
        remedy = "say it: compute_capability in the facts, or lab_gpus in the inventory"
        return Refused(host.name, f"the compute capability of its GPU {gpu.name!r} is not known", remedy)
    if capability not in catalogue.capabilities:
        known = ", ".join(sorted(catalogue.capabilities, key=versions.numbers))
        seen = f"the compute capability {capability} of its GPU {gpu.name!r} is not known"
        return Refused(host.name, seen, f"known are {known}")
    if catalogue.capabilities[capability].tegra:
        seen = f"its {gpu.name} (sm_{capability.replace('.', '')}) is a Jetson's"
        return Refused(host.name, seen, "its driver and CUDA come with JetPack and not from here")
    return None
