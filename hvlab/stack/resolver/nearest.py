"""Remedies: the fewest changes of pins, hosts or drivers, each tried before it is offered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hvlab.base.errors import some
from hvlab.lab.backends import BACKENDS, PARALLEL
from hvlab.lab.pin_variables import TITLES
from hvlab.stack.resolver import rules, versions
from hvlab.stack.resolver.catalogue import Catalogue, DriverBranch, OpenMpiRelease
from hvlab.stack.resolver.conflict import minimal
from hvlab.stack.resolver.lab import HostRequest, group
from hvlab.stack.resolver.model import FACT, PIN, Assumption, Candidate, LabProblem, Scope, prune
from hvlab.stack.resolver.pins import FRAMEWORKS, Pin, meets
from hvlab.stack.resolver.solve import build, is_infeasible, search

_DEPTH = 3
_BREADTH = 6
_TRIES = 24
_MOST = 6
_WORDS = ("with", "without")
# Sources of a driver, each tried where another lacks it, or has none that compiles.
_METHODS = ("repo", "distro", "elrepo")
Lab = tuple[HostRequest, ...]


@dataclass(frozen=True)
class Relaxation:
    """One change to a lab.

    ``drop``: drop the pin; ``other``: another version of the pinned framework; ``hosts``: leave these out;
    ``driver``: let them get another one; ``method``: get it from elsewhere; ``gpu``: do not use this one.
    """

    kind: str
    hosts: tuple[str, ...] = ()
    pin: Pin | None = None
    method: str = "repo"
    gpu: str = ""

    def apply(self, lab: Lab) -> Lab:
        """Return the lab with this change."""
        if self.pin is not None:
            return tuple(replace(one, pins=tuple(self._list_changed(one.pins))) for one in lab)
        chosen = set(self.hosts)
        if self.kind == "hosts":
            return tuple(one for one in lab if one.host.name not in chosen)
        return tuple(self._change(one) if one.host.name in chosen else one for one in lab)

    def _change(self, one: HostRequest) -> HostRequest:
        if self.kind == "gpu":
            used = tuple(gpu for gpu in one.host.gpus if gpu.name != self.gpu)
            return replace(one, host=replace(one.host, gpus=used))
        return replace(one, methods={**one.methods, "driver": self.method})

    def _list_changed(self, pins: Iterable[Pin]) -> Iterator[Pin]:
        for pin in pins:
            if pin != self.pin:
                yield pin
            elif self.kind == "other":
                yield replace(pin, value="")


@dataclass(frozen=True)
class Remedy:
    """Changes that together resolve it: ``pins`` to write instead, ``without`` hosts to leave out."""

    text: str
    pins: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def remedies(lab: Lab, catalogue: Catalogue) -> list[Remedy]:
    """Return the remedies with the fewest changes: one if that is enough, else two or three together.

    If one change helps only by leaving hosts out, several version changes are listed first.
    """
    frontier: list[tuple[Lab, tuple[Relaxation, ...]]] = [(lab, ())]
    offers: list[Remedy] = []
    for _ in range(_DEPTH):
        new: list[Remedy] = []
        following = []
        tried: set[frozenset[Relaxation]] = set()
        enough: set[Relaxation] = set()
        for now, changes in frontier[:_BREADTH]:
            for change in _options(now, catalogue):
                together = (*changes, change)
                known = frozenset(together) in tried or replace(change, kind="other") in enough
                if known or (offers and change.kind == "hosts"):
                    continue
                tried.add(frozenset(together))
                changed = change.apply(now)
                problem = _problem(changed, catalogue)
                if problem is None:
                    continue
                if search(problem, Scope()) is None:
                    following.append((changed, together))
                else:
                    new.append(_remedy(problem, together))
                    enough.add(change)
        offers = new + offers
        if any(not remedy.without for remedy in offers):
            break
        frontier = [
            (now, changes)
            for now, changes in following
            if not offers or all(change.kind != "hosts" for change in changes)
        ]
    # The same changes in another order are the same.
    different = {frozenset(remedy.text.replace(",", "").split()): remedy for remedy in offers}
    return list(different.values())[:_MOST]


def without(lab: Lab, hosts: Sequence[str], catalogue: Catalogue) -> Remedy | None:
    """Return the remedy of leaving these hosts out, if the others resolve."""
    problem = _problem(Relaxation("hosts", tuple(hosts)).apply(lab), catalogue)
    if problem is None or search(problem, Scope()) is None:
        return None
    return Remedy(f"without {some(hosts)}", without=tuple(hosts))


def _problem(lab: Lab, catalogue: Catalogue) -> LabProblem | None:
    groups, problems = group(lab, catalogue)
    return None if problems or not groups else build(groups, catalogue)


def _options(lab: Lab, catalogue: Catalogue) -> Iterator[Relaxation]:
    problem = _problem(lab, catalogue)
    if problem is None:
        return
    conflict = minimal(problem)
    for assumption in conflict:
        if assumption.kind == PIN:
            pin = Pin(assumption.name, assumption.value)
            if pin.name in FRAMEWORKS and problem.frameworks != ["torch"]:
                yield Relaxation("other", pin=pin)
            yield Relaxation("drop", pin=pin)
    facts = [assumption for assumption in conflict if assumption.kind == FACT]
    for assumption in facts:
        if assumption.name == "driver":
            yield Relaxation("driver", tuple(problem.hosts(assumption.groups)))
        elif assumption.name in ("os", "kernel"):
            yield from _other_methods(problem, assumption)
        elif assumption.name == "gpu":
            yield from _other_gpus(problem, assumption)
    for assumption in facts:
        # The hosts that fail even alone; all hosts with this fact if each group of them resolves alone.
        alone = [
            number
            for number in sorted(assumption.groups)
            if is_infeasible(build([problem.groups[number]], problem.catalogue), Scope())
        ]
        hosts = problem.hosts(alone or assumption.groups)
        if len(hosts) < len(lab):
            yield Relaxation("hosts", tuple(hosts))


def _other_methods(lab: LabProblem, fact: Assumption) -> Iterator[Relaxation]:
    groups = [lab.groups[n] for n in sorted(fact.groups)]
    for method in _METHODS:
        hosts = [
            host
            for group in groups
            if group.gpus and group.methods["driver"] in {*_METHODS} - {method}
            if rules.has_drivers(group.system, method)
            for host in group.hosts
        ]
        if hosts:
            yield Relaxation("method", tuple(hosts), method=method)


def _other_gpus(lab: LabProblem, fact: Assumption) -> Iterator[Relaxation]:
    """Yield the change of leaving a GPU, such as one for a screen, out of hosts that have others."""
    name = fact.value.rpartition(" (")[0]
    groups = [lab.groups[n] for n in sorted(fact.groups)]
    hosts = [host for group in groups if {gpu.name for gpu in group.gpus} - {name} for host in group.hosts]
    if hosts and name:
        yield Relaxation("gpu", tuple(hosts), gpu=name)


def _remedy(lab: LabProblem, changes: Sequence[Relaxation]) -> Remedy:
    only: dict[tuple[str, int | None], int] = {}
    texts: list[str] = []
    pins: list[str] = []
    without: list[str] = []
    for change in changes:
        if change.kind == "hosts":
            texts.append(f"without {some(change.hosts)}")
            without += change.hosts
        elif change.kind == "method":
            texts.append(f"with lab_driver_method {change.method} on {some(change.hosts)}")
        elif change.kind == "gpu":
            texts.append(f"with lab_gpus that leaves out {change.gpu} on {some(change.hosts)}")
        elif change.kind == "driver":
            chosen = search(lab, Scope(only=only)) or {}
            number = next(n for n, g in enumerate(lab.groups) if set(g.hosts) & set(change.hosts))
            texts.append(f"with driver {chosen['driver', number].version} on {some(change.hosts)}")
        elif change.pin is not None:
            version = _replacement(lab, change.pin, only)
            title = TITLES[change.pin.name]
            texts.append(f"with {title} {version}" if version else f"without {change.pin.text}")
            pins += [f"{change.pin.name}={version}"] if version else []
    return Remedy(_join(texts), tuple(pins), tuple(without))


def _join(texts: Sequence[str]) -> str:
    """Return changes as one: with CUDA 12.9 and torch 2.8.0 and without n3."""
    parts = {
        word: [text.removeprefix(f"{word} ") for text in texts if text.startswith(f"{word} ")]
        for word in _WORDS
    }
    return " and ".join(f"{word} {' and '.join(some)}" for word, some in parts.items() if some)


def _replacement(lab: LabProblem, pin: Pin, only: dict[tuple[str, int | None], int]) -> str | None:
    """Return the version nearest to a dropped pin that fits everything; narrow ``only`` to it."""
    keys = [key for key in lab.domains if key[0] == pin.name]
    left = prune(lab, Scope(only=only)).masks
    candidates = [
        c for key in keys for c in lab.of(key, left[key]) if c.version != "none" and not _has_warning(c)
    ]
    known = {_format_pin(pin, c.version) for c in candidates}
    ended = {_format_pin(pin, c.version) for c in candidates if _is_past_end(c)}
    # Stable sort: supported ones first, nearest first within each part.
    ordered = sorted(_sort_by_distance(pin, known), key=lambda version: version in ended)
    for version in ordered[:_TRIES]:
        other = Pin(pin.name, version)
        masks = {
            key: sum(1 << c.place for c in lab.domains[key] if meets(other, c.version)) & only.get(key, -1)
            for key in keys
        }
        if all(masks.values()) and search(lab, Scope(only={**only, **masks})) is not None:
            only.update(masks)
            return version
    return None


def _has_warning(candidate: Candidate) -> bool:
    return isinstance(candidate.data, OpenMpiRelease) and bool(candidate.data.warnings)


def _is_past_end(candidate: Candidate) -> bool:
    """Whether a version's driver branch is past its end or still in development."""
    return isinstance(candidate.data, DriverBranch) and candidate.data.kind in ("legacy", "developer")


def _format_pin(pin: Pin, version: str) -> str:
    return version.partition("-")[0] if pin.name == "nccl" and "+" not in pin.value else version


def _sort_by_distance(pin: Pin, known: set[str]) -> list[str]:
    """Return alternative versions: builds of the same, then of its major, nearest first."""
    if pin.name == "backend":
        others = [name for name in PARALLEL if name in known - {pin.value}]
        return sorted(others, key=lambda name: not BACKENDS[name].gpu)
    suffixed = pin.build or pin.cuda
    same = [version for version in known if not suffixed and meets(pin, version)]
    near = versions.by_distance(pin.version, known.difference(same))
    release = pin.version.partition("-")[0].partition("+")[0]

    build = pin.value.partition("+cuda")[2]

    def far(version: str) -> tuple[object, ...]:
        if versions.is_prefix(release, version) and build and pin.name == "nccl":
            other = versions.major(str(rules.nccl_build(version))) != versions.major(build)
            return False, other, rules.nccl_distance(version, build)
        if versions.is_prefix(release, version):
            return False, [-number for number in versions.numbers(version)]
        return True, versions.major(version) != versions.major(release)

    return sorted(near, key=far)
