"""The candidates of each component, the preferred first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hvlab.resolver import versions
from hvlab.resolver.entries import Branch, Catalogue
from hvlab.resolver.lab import Group
from hvlab.resolver.pins import BACKENDS, Pin

_KINDS = ("production", "long-term", "legacy", "new-feature", "developer")
Found = list[tuple[str, Any]]


def pythons(groups: Sequence[Group], catalogue: Catalogue) -> Found:
    """Return the Python minors: those that most hosts run now first; what the roles cannot use last."""
    present = [versions.minor(g.host.python) if g.host.python else g.system.python[0] for g in groups]
    own = [python for g in groups for python in g.system.python]
    known = set(own) | set(present) | {p for t in catalogue.torch.values() for p in t.python if p}

    def rank(python: str) -> tuple[Any, ...]:
        votes = sum(len(g.hosts) for g, now in zip(groups, present, strict=True) if now == python)
        offered = sum(len(g.hosts) for g in groups if python in g.system.python)
        unusable = python not in catalogue.pythons
        return (unusable, -votes, -offered, [-number for number in versions.numbers(python)])

    return [(python, None) for python in sorted(known, key=rank)]


def releases(entries: Mapping[str, Any], default: str | None = None) -> Found:
    """Return a component's releases, its default first, then the newest."""
    ordered = sorted(entries, key=versions.numbers, reverse=True)
    return [(name, entries[name]) for name in sorted(ordered, key=lambda name: name != default)]


def openmpis(groups: Sequence[Group], catalogue: Catalogue) -> Found:
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


def backends(groups: Iterable[Group]) -> Found:
    """Return the data planes: NCCL where every host has GPUs."""
    gpus = all(group.gpus for group in groups)
    return [(name, None) for name in sorted(BACKENDS, key=lambda name: (name == "nccl") != gpus)]


def drivers(group: Group, pins: Iterable[Pin], catalogue: Catalogue) -> Found:
    """Return the drivers: the installed one, the newest production branch, ...; exact versions asked for."""
    branches = sorted(
        catalogue.branches.values(),
        key=lambda branch: (_KINDS.index(branch.kind), [-n for n in versions.numbers(branch.latest)]),
    )
    found: dict[str, Branch | None] = {}
    if group.host.driver:
        found[group.host.driver] = branch_of(group.host.driver, catalogue)
    elif group.host.declared and group.methods["driver"] == "none":
        found["none"] = None
    for pin in pins:
        # A patch level need not be listed, its branch has to be.
        branch = branch_of(pin.value, catalogue) if pin.name == "driver" else None
        if branch and pin.value != branch.name and versions.at_least(pin.value, branch.first):
            found.setdefault(pin.value, branch)
    for told in group.system.distro.get("driver") or ():
        branch = branch_of(str(told), catalogue)
        if branch and "." in str(told):
            found.setdefault(str(told), branch)
    for branch in branches:
        found.setdefault(branch.latest, branch)
    rank = {version: place for place, version in enumerate(b.latest for b in branches)}
    installed = group.host.driver
    ordered = sorted(found, key=lambda v: (v not in (installed, "none"), rank.get(v, len(rank))))
    return [(version, found[version]) for version in ordered]


def branch_of(version: str, catalogue: Catalogue) -> Branch | None:
    """Return the branch a driver version belongs to; None where the catalogue lacks it."""
    return catalogue.branches.get(str(versions.major(version)))


def cudas(driver: str | None, pins: Iterable[Pin], catalogue: Catalogue) -> Found:
    """Return the CUDA releases: those that ``driver`` supports in full, then the rest.

    Of these the one that Horovod was built on, then the newest first. A point release that is asked for
    (12.4.1) stands beside its release.
    """

    def rank(release: str) -> tuple[int, bool, Any]:
        own = versions.numbers(release)
        level = 2 if driver is None else support(driver, release, catalogue)
        # By minor-version compatibility the release nearest to the driver's is the safest.
        unproven = level != 0 or release not in catalogue.proven
        return (level, unproven, own if level == 1 else tuple(-number for number in own))

    found: Found = []
    asked = [pin.value for pin in pins if pin.name == "cuda" and pin.value.count(".") > 1]
    for release in sorted(catalogue.cuda, key=rank):
        item = catalogue.cuda[release]
        points = [point for point in item.points for value in asked if versions.prefix(value, point)]
        found += [(max(points, key=versions.numbers), item)] if points else []
        found.append((release, item))
    return found


def support(driver: str, release: str, catalogue: Catalogue) -> int:
    """Return 0 where a driver supports a CUDA release in full, 1 by minor-version compatibility, 2 if not.

    Source: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    known = catalogue.cuda.get(versions.minor(release))
    if driver == "none" or (known and versions.at_least(driver, known.driver)):
        return 0
    floor = catalogue.minor_compatibility.get(versions.major(release))
    return 1 if floor and versions.at_least(driver, floor) else 2


def gccs(group: Group, catalogue: Catalogue) -> Found:
    """Return the compilers' majors: the present one, the system's own, the others it has; then all others."""
    present = [str(versions.major(group.host.gcc))] if group.host.gcc else []
    others = [str(number) for number in range(max(item.gcc for item in catalogue.cuda.values()), 3, -1)]
    return [(major, None) for major in dict.fromkeys([*present, *group.system.gcc, *others])]


def cudnns(catalogue: Catalogue) -> Found:
    """Return the releases of cuDNN, the newest first, and none at all last."""
    return [*catalogue.cudnn.items(), ("none", None)]


def nccls(catalogue: Catalogue) -> Found:
    """Return NCCL's packages (release-1+cudaX.Y) and wheels (release), the newest first."""
    found: Found = []
    for release, item in catalogue.nccl.items():
        found += [(f"{release}-1+cuda{build}", item) for build in reversed(item.builds)]
        found += [(release, item)] if item.wheels else []
    return found
