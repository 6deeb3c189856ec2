"""Versions newer than the catalogue: resolved with their branch's data, and marked as unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from hvlab.stack.resolver import versions
from hvlab.stack.resolver.catalogue import Assumed, Catalogue, LibraryRelease, OperatingSystem, TorchRelease
from hvlab.stack.resolver.pins import FRAMEWORKS, Pin, meets

# Numbers in a complete version; a framework's last one may be left out.
_NUMBERS = {"driver": 1, "cuda": 2, "cudnn": 4, "nccl": 3, "torch": 3, "tensorflow": 3}
_POINT = 3


def extend(catalogue: Catalogue, pins: Iterable[Pin]) -> Catalogue:
    """Return the catalogue with a release for each pin that is newer than its branch there.

    A release whose major is unknown is not added: its pin is refused as before.
    """
    for pin in dict.fromkeys(pins):
        like = basis(pin, catalogue)
        if like is not None:
            catalogue = _ADD[pin.name](catalogue, pin, like)
    return catalogue


def basis(pin: Pin, catalogue: Catalogue) -> str | None:
    """For a pin newer than its branch, return that branch's newest known version; else None."""
    if pin.name not in _NUMBERS or complete_pin(pin):
        return None
    known = _list_known(pin.name, catalogue)
    if any(meets(_release(pin), version) for version in known):
        return None
    own = versions.numbers(pin.version)
    if pin.name == "driver":
        branch = catalogue.branches.get(str(own[0]))
        if branch:
            # An older patch level need not be listed: it is taken as it is.
            return branch.name if own > versions.numbers(branch.latest) else None
        branches = sorted(catalogue.branches, key=int)
        return branches[-1] if branches and own[0] > int(branches[-1]) else None
    return end_of_branch(pin.version, known)


def end_of_branch(version: str, known: Iterable[str]) -> str | None:
    """For a version newer than its branch, return the branch's newest known version; else None.

    The branch consists of the known versions that share the most leading numbers, at least the first.
    """
    every, own = list(known), versions.numbers(version)
    for shared in range(len(own) - 1, 0, -1):
        branch = [other for other in every if versions.numbers(other)[:shared] == own[:shared]]
        if branch:
            newest = max(branch, key=versions.numbers)
            return newest if own > versions.numbers(newest) else None
    return None


def complete_pin(pin: Pin) -> str:
    """Return the full form of a pin that lacks numbers; else nothing."""
    needed = _NUMBERS.get(pin.name, 0) - (pin.name in FRAMEWORKS)
    missing = needed - len(versions.numbers(pin.version))
    return f"{pin.name}={pin.version}{'.N' * missing}" if missing > 0 else ""


def _list_known(name: str, catalogue: Catalogue) -> list[str]:
    if name == "cuda":
        points = [point for item in catalogue.cuda.values() for point in item.points]
        return [*catalogue.cuda, *points]
    if name == "driver":
        return [version for branch in catalogue.branches.values() for version in (branch.latest, branch.name)]
    return list(getattr(catalogue, name))


def _release(pin: Pin) -> Pin:
    return Pin(pin.name, pin.version.partition("+")[0].removesuffix("-1"))


def _name(pin: Pin) -> str:
    """Return the version to install: a framework's last number may be left out of its pin."""
    name = _release(pin).value
    missing = _NUMBERS[pin.name] - len(versions.numbers(name))
    return name + ".0" * missing if pin.name in FRAMEWORKS else name


def _mark(catalogue: Catalogue, name: str, version: str, like: str) -> tuple[Assumed, ...]:
    return (*catalogue.assumed, Assumed(name, version, like))


def _add_sorted(entries: Mapping[str, Any], name: str, entry: Any) -> dict[str, Any]:
    ordered = sorted(
        [*entries.items(), (name, entry)], key=lambda pair: versions.numbers(pair[0]), reverse=True
    )
    return dict(ordered)


def _driver(catalogue: Catalogue, pin: Pin, like: str) -> Catalogue:
    branch = str(versions.major(pin.value))
    entry = replace(catalogue.branches[like], latest=pin.value)
    if branch != like:
        entry = replace(entry, name=branch, first=branch, kind="not known")

    def offering(system: OperatingSystem) -> OperatingSystem:
        has = like in system.drivers and branch not in system.drivers
        return replace(system, drivers=(*system.drivers, branch)) if has else system

    return replace(
        catalogue,
        branches=_add_sorted(catalogue.branches, branch, entry),
        systems=tuple(map(offering, catalogue.systems)),
        assumed=_mark(catalogue, "driver", pin.value, catalogue.branches[like].latest),
    )


def _cuda(catalogue: Catalogue, pin: Pin, like: str) -> Catalogue:
    release = versions.minor(pin.value)
    known = catalogue.cuda.get(release) or catalogue.cuda[versions.minor(like)]
    points = {**known.points} if known.version == release else {}
    if len(versions.numbers(pin.value)) >= _POINT:
        points[pin.value] = None

    def offering(system: OperatingSystem) -> OperatingSystem:
        has = known.version in system.cuda and release not in system.cuda
        return replace(system, cuda=(release, *system.cuda)) if has else system

    entry = replace(known, version=release, points=points)
    return replace(
        catalogue,
        cuda=_add_sorted({**catalogue.cuda}, release, entry),
        systems=tuple(map(offering, catalogue.systems)),
        assumed=_mark(catalogue, "cuda", pin.value, like if release == known.version else known.version),
    )


def _library(catalogue: Catalogue, pin: Pin, like: str) -> Catalogue:
    known: Mapping[str, LibraryRelease] = getattr(catalogue, pin.name)
    name, build = _name(pin), pin.value.partition("+cuda")[2]
    builds = known[like].builds
    if pin.name == "nccl" and "." in build and build not in builds:
        builds = tuple(sorted([*builds, build], key=versions.numbers))
    entry = replace(known[like], version=name, builds=builds)
    changed: dict[str, Any] = {pin.name: _add_sorted(known, name, entry)}
    return replace(catalogue, assumed=_mark(catalogue, pin.name, name, like), **changed)


def _framework(catalogue: Catalogue, pin: Pin, like: str) -> Catalogue:
    name = _name(pin)
    entry = replace(getattr(catalogue, pin.name)[like], version=name)
    if isinstance(entry, TorchRelease) and pin.cuda and pin.cuda not in entry.cuda:
        entry = _with_build(entry, pin.cuda)
    horovod = {}
    for version, item in catalogue.horovod.items():
        low, high = getattr(item, pin.name)
        # What builds with the newest known one is tried with this one too.
        follows = high is not None and versions.is_at_most(like, high) and not versions.is_at_most(name, high)
        wider: dict[str, Any] = {pin.name: (low, name)} if follows else {}
        horovod[version] = replace(item, **wider)
    changed: dict[str, Any] = {pin.name: _add_sorted(getattr(catalogue, pin.name), name, entry)}
    return replace(catalogue, horovod=horovod, assumed=_mark(catalogue, pin.name, name, like), **changed)


def _with_build(torch: TorchRelease, cuda: str) -> TorchRelease:
    """Return the release with a wheel for a CUDA release, with the code of that major's newest wheel."""
    same = [build for build in torch.cuda if versions.major(build) == versions.major(cuda)]
    if not same:
        return torch
    like = max(same, key=versions.numbers)
    return replace(
        torch,
        cuda=(*torch.cuda, cuda),
        capabilities={**torch.capabilities, cuda: torch.capabilities.get(like, ())},
        aarch64={**torch.aarch64, cuda: torch.aarch64[like]} if like in torch.aarch64 else torch.aarch64,
        ptx=(*torch.ptx, cuda) if like in torch.ptx else torch.ptx,
    )


_ADD: Mapping[str, Callable[[Catalogue, Pin, str], Catalogue]] = {
    "driver": _driver,
    "cuda": _cuda,
    "cudnn": _library,
    "nccl": _library,
    "torch": _framework,
    "tensorflow": _framework,
}
