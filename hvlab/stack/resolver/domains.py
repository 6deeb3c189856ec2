"""The candidates of each component, preferred ones first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hvlab.lab.backends import BACKENDS, PARALLEL
from hvlab.stack.resolver import rules, versions
from hvlab.stack.resolver.catalogue import Catalogue, DriverBranch
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.model import ONE_CUDA, ONE_NCCL, LabProblem
from hvlab.stack.resolver.pins import Pin

_KINDS = ("production", "long-term", "legacy", "new-feature", "developer", "not known")
Versions = list[tuple[str, Any]]


def add(lab: LabProblem) -> None:
    """Add the candidates of every component, in the order in which they are chosen."""
    _add_lab_domains(lab)
    _add_cuda_domains(lab)
    for number, group in enumerate(lab.groups):
        if group.gpus:
            lab.add_domain(("driver", number), drivers(group, lab.catalogue))
        lab.add_domain(("gcc", number), gccs(group, lab.catalogue))
        if group.gpus:
            lab.add_domain(("cudnn", number), [*lab.catalogue.cudnn.items(), ("none", None)])
            lab.add_domain(("nccl", number), nccls(lab.catalogue))


def _add_lab_domains(lab: LabProblem) -> None:
    catalogue, groups = lab.catalogue, lab.groups
    lab.add_domain(("python", None), pythons(groups, catalogue))
    if "torch" in lab.frameworks:
        gpus = any(group.gpus for group in groups) and not lab.torch_on_cpu
        proven = next((v for build, v in catalogue.proven.items() if (build != "cpu") == gpus), None)
        lab.add_domain(("torch", None), releases(catalogue.torch, proven))
    if "tensorflow" in lab.frameworks:
        lab.add_domain(("tensorflow", None), releases(catalogue.tensorflow))
    if not lab.without_horovod:
        lab.add_domain(("horovod", None), releases(catalogue.horovod, catalogue.defaults.get("horovod")))
        lab.add_domain(("openmpi", None), openmpis(groups, catalogue))
    lab.add_domain(("backend", None), backends(groups))


def _add_cuda_domains(lab: LabProblem) -> None:
    catalogue = lab.catalogue
    toolkits = {}
    for number, group in enumerate(lab.groups):
        if group.gpus:
            usual = next(
                (v for v, branch in drivers(group, catalogue) if _is_usable(v, branch, lab, group)), None
            )
            toolkits[number] = cudas(usual, group.pins, catalogue)
    if len(toolkits) > 1:
        orders = [[versions.minor(version) for version, _ in domain] for domain in toolkits.values()]
        shared = sorted(catalogue.cuda, key=lambda release: sum(order.index(release) for order in orders))
        lab.add_domain((ONE_CUDA, None), [(release, None) for release in shared])
    for number, domain in toolkits.items():
        lab.add_domain(("cuda", number), domain)
    if len(toolkits) > 1:
        majors = sorted({versions.major(release) for release in catalogue.nccl}, reverse=True)
        lab.add_domain(("nccl major", None), [(str(major), None) for major in majors])
        lab.add_domain((ONE_NCCL, None), list(catalogue.nccl.items()))


def _is_usable(version: str, branch: DriverBranch | None, lab: LabProblem, group: HostGroup) -> bool:
    runs = all(
        rules.driver_runs(version, rules.branch_of(version, lab.catalogue), capability, lab.catalogue)
        for capability in group.capabilities
    )
    if version in (group.host.driver, "none"):
        return runs
    method, architecture = group.methods["driver"], group.host.architecture
    return runs and rules.offers_driver(version, branch, group.system, method, architecture)


def pythons(groups: Sequence[HostGroup], catalogue: Catalogue) -> Versions:
    """Return the Python minors: those on most hosts first, those the roles cannot use last."""
    present = [versions.minor(g.host.python) if g.host.python else g.system.python[0] for g in groups]
    own = [python for g in groups for python in g.system.python]
    known = set(own) | set(present) | {p for t in catalogue.torch.values() for p in t.python if p}

    def rank(python: str) -> tuple[Any, ...]:
        votes = sum(len(g.hosts) for g, now in zip(groups, present, strict=True) if now == python)
        offered = sum(len(g.hosts) for g in groups if python in g.system.python)
        unusable = python not in catalogue.pythons
        return (unusable, -votes, -offered, [-number for number in versions.numbers(python)])

    return [(python, None) for python in sorted(known, key=rank)]


def releases(entries: Mapping[str, Any], default: str | None = None) -> Versions:
    """Return a component's releases, its default first, then the newest."""
    ordered = sorted(entries, key=versions.numbers, reverse=True)
    return [(name, entries[name]) for name in sorted(ordered, key=lambda name: name != default)]


def openmpis(groups: Sequence[HostGroup], catalogue: Catalogue) -> Versions:
    """Return the releases of Open MPI: the default, the rest of its series, older ones, newer series last."""
    default = catalogue.defaults.get("openmpi", next(iter(catalogue.openmpi)))
    series = versions.numbers(default)[:2]
    entries: dict[str, Any] = {
        str(g.system.distro["openmpi"]): None for g in groups if g.system.distro.get("openmpi")
    }
    entries |= catalogue.openmpi

    def rank(version: str) -> tuple[Any, ...]:
        own = versions.numbers(version)
        warned = bool(entries[version] and entries[version].warnings)
        return (version != default, own[:2] > series, warned, [-number for number in own])

    return [(version, entries[version]) for version in sorted(entries, key=rank)]


def backends(groups: Iterable[HostGroup]) -> Versions:
    """Return the backends: those of GPU memory first where every host has GPUs, else last."""
    gpus = all(group.gpus for group in groups)
    return [(name, None) for name in sorted(PARALLEL, key=lambda name: BACKENDS[name].gpu != gpus)]


def drivers(group: HostGroup, catalogue: Catalogue) -> Versions:
    """Return the drivers: the installed one, the newest production branch, ...; exact versions pinned.

    Among unsupported branches, those supported longest come first.
    """

    def rank_of(branch: DriverBranch) -> tuple[Any, ...]:
        ended = int(branch.end.replace("-", "") or 0) if branch.kind == "legacy" else 0
        return _KINDS.index(branch.kind), -ended, [-n for n in versions.numbers(branch.latest)]

    branches = sorted(catalogue.branches.values(), key=rank_of)
    here = group.system.newest if group.methods["driver"] == "repo" else {}
    newest = {branch.name: here.get(branch.name, branch.latest) for branch in branches}
    installed = group.host.driver
    known: dict[str, DriverBranch | None] = {}
    if installed:
        known[installed] = rules.branch_of(installed, catalogue)
    elif group.host.declared and group.methods["driver"] == "none":
        known["none"] = None
    for pin in group.pins:
        # A patch level need not be listed, but its branch must be.
        branch = rules.branch_of(pin.value, catalogue) if pin.name == "driver" else None
        if branch and pin.value != branch.name and versions.is_at_least(pin.value, branch.first):
            known.setdefault(pin.value, branch)
    for packaged in map(str, group.system.distro.get("driver") or ()):
        branch = rules.branch_of(packaged, catalogue)
        if branch and "." in packaged:
            known.setdefault(packaged, branch)
    for branch in branches:
        known.setdefault(newest[branch.name], branch)
    rank = {newest[branch.name]: place for place, branch in enumerate(branches)}
    ordered = sorted(known, key=lambda v: (v not in (installed, "none"), rank.get(v, len(rank))))
    return [(version, known[version]) for version in ordered]


def cudas(driver: str | None, pins: Iterable[Pin], catalogue: Catalogue) -> Versions:
    """Return the CUDA releases: those that ``driver`` supports in full, then the rest.

    Among the former, the one that Horovod was built on comes first, then the newest. A pinned point release
    (12.4.1) is listed beside its release.
    """

    def rank(release: str) -> tuple[int, bool, Any]:
        own = versions.numbers(release)
        level = 2 if driver is None else rules.support(driver, release, catalogue)
        # With minor-version compatibility, the release nearest to the driver's is the safest. Releases that
        # this driver cannot run are ordered as if there were no driver.
        unproven = level == 1 or release not in catalogue.proven
        return (level, unproven, own if level == 1 else tuple(-number for number in own))

    ordered: Versions = []
    pinned = [pin.value for pin in pins if pin.name == "cuda" and pin.value.count(".") > 1]
    for release in sorted(catalogue.cuda, key=rank):
        item = catalogue.cuda[release]
        points = [point for point in item.points for value in pinned if versions.is_prefix(value, point)]
        ordered += [(max(points, key=versions.numbers), item)] if points else []
        ordered.append((release, item))
    return ordered


def gccs(group: HostGroup, catalogue: Catalogue) -> Versions:
    """Return the compilers' majors: the installed one, the system's default, its others, then all others."""
    present = [str(versions.major(group.host.gcc))] if group.host.gcc else []
    others = [str(number) for number in range(max(item.gcc for item in catalogue.cuda.values()), 3, -1)]
    return [(major, None) for major in dict.fromkeys([*present, *group.system.gcc, *others])]


def nccls(catalogue: Catalogue) -> Versions:
    """Return NCCL's packages (release-1+cudaX.Y) and wheels (release), the newest first."""
    ordered: Versions = []
    for release, item in catalogue.nccl.items():
        ordered += [(f"{release}-1+cuda{build}", item) for build in reversed(item.builds)]
        ordered += [(release, item)] if item.wheels else []
    return ordered
