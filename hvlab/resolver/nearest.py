"""What would work instead: the fewest changes of wishes, hosts or drivers, each tried before it is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hvlab.resolver import rules, versions
from hvlab.resolver.built import Built, Wishes
from hvlab.resolver.conflict import smallest
from hvlab.resolver.entries import Catalogue
from hvlab.resolver.lab import Wanted, group, names
from hvlab.resolver.model import Assumption, Scope
from hvlab.resolver.pins import BACKENDS, FRAMEWORKS, TITLES, Pin, meets
from hvlab.resolver.problem import build
from hvlab.resolver.provider import infeasible, search
from hvlab.resolver.prune import prune

_DEPTH = 3
_BREADTH = 6
_TRIES = 24
_MOST = 6
_WORDS = ("with", "without")
# Where a repository lacks a driver, other ways to one.
_METHODS = ("distro", "elrepo")


@dataclass(frozen=True)
class State:
    """A lab with its wishes, as it is or changed."""

    lab: tuple[Wanted, ...]
    pins: tuple[Pin, ...]


@dataclass(frozen=True)
class Change:
    """One thing to do otherwise.

    ``wish``: drop it; ``other``: of a framework, wish for another version; ``hosts``: leave these out;
    ``driver``: let them get another one; ``method``: from elsewhere.
    """

    kind: str
    hosts: tuple[str, ...] = ()
    pin: Pin | None = None
    method: str = "repo"

    def apply(self, state: State) -> State:
        """Return the lab with this change."""
        if self.pin is not None:
            lab = tuple(replace(wanted, pins=self._changed(wanted.pins)) for wanted in state.lab)
            return State(lab, self._changed(state.pins))
        chosen = set(self.hosts)
        if self.kind == "hosts":
            return replace(state, lab=tuple(w for w in state.lab if w.host.name not in chosen))
        return replace(
            state,
            lab=tuple(
                replace(w, methods={**w.methods, "driver": self.method}) if w.host.name in chosen else w
                for w in state.lab
            ),
        )

    def _changed(self, pins: Iterable[Pin]) -> tuple[Pin, ...]:
        instead = (replace(self.pin, value=""),) if self.pin and self.kind == "other" else ()
        changed = ((pin,) if pin != self.pin else instead for pin in pins)
        return tuple(pin for some in changed for pin in some)


@dataclass(frozen=True)
class Remedy:
    """Changes that together make it resolve: ``pins`` to write instead, ``without`` hosts to leave out."""

    text: str
    pins: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return it for machines."""
        return {"text": self.text, "pins": list(self.pins), "without": list(self.without)}


def remedies(state: State, catalogue: Catalogue) -> list[Remedy]:
    """Return what would work, the fewest changes: one if one is enough, else two or three together.

    Where leaving hosts out is all that one change can do, what more changes of versions can do comes first.
    """
    frontier: list[tuple[State, tuple[Change, ...]]] = [(state, ())]
    fewer: list[Remedy] = []
    for _ in range(_DEPTH):
        found: list[Remedy] = []
        following = []
        tried: set[frozenset[Change]] = set()
        done: set[Change] = set()
        for now, changes in frontier[:_BREADTH]:
            for change in _options(now, catalogue):
                together = (*changes, change)
                known = frozenset(together) in tried or replace(change, kind="other") in done
                if known or (fewer and change.kind == "hosts"):
                    continue
                tried.add(frozenset(together))
                changed = change.apply(now)
                built = _built(changed, catalogue)
                if built is None:
                    continue
                if search(built.problem, Scope()) is None:
                    following.append((changed, together))
                else:
                    found.append(_remedy(built, together))
                    done.add(change)
        fewer = found + fewer
        if any(not remedy.without for remedy in fewer):
            break
        frontier = [(now, made) for now, made in following if not fewer or _keeps_hosts(made)]
    # The same changes found in another order are the same.
    return list({frozenset(remedy.text.replace(",", "").split()): remedy for remedy in fewer}.values())[
        :_MOST
    ]


def _keeps_hosts(changes: Iterable[Change]) -> bool:
    return all(change.kind != "hosts" for change in changes)


def _built(state: State, catalogue: Catalogue) -> Built | None:
    groups, refused = group(state.lab, catalogue)
    return None if refused or not groups else build(groups, Wishes(state.pins), catalogue)


def _options(state: State, catalogue: Catalogue) -> Iterable[Change]:
    """Yield single changes that undo the conflict at hand: wishes first, then drivers, then hosts."""
    built = _built(state, catalogue)
    if built is None:
        return
    conflict = smallest(built)
    for assumption in conflict:
        if assumption.kind == "wish":
            pin = Pin(assumption.name, assumption.value)
            if pin.name in FRAMEWORKS and built.frameworks != ["torch"]:
                yield Change("other", pin=pin)
            yield Change("wish", pin=pin)
    facts = [assumption for assumption in conflict if assumption.kind == "fact"]
    for assumption in facts:
        if assumption.name == "driver":
            yield Change("driver", tuple(built.hosts(assumption.groups)))
        elif assumption.name == "os":
            yield from _other_methods(built, assumption)
    for assumption in facts:
        hosts = _guilty(built, assumption)
        if len(hosts) < len(state.lab):
            yield Change("hosts", tuple(hosts))


def _other_methods(built: Built, fact: Assumption) -> Iterable[Change]:
    """Yield other ways to a driver for those hosts of a system that get it from NVIDIA's repository."""
    groups = [built.groups[n] for n in sorted(fact.groups)]
    for method in _METHODS:
        hosts = [
            host
            for group in groups
            if group.gpus and group.methods["driver"] == "repo" and rules.has_drivers(group.system, method)
            for host in group.hosts
        ]
        if hosts:
            yield Change("method", tuple(hosts), method=method)


def _guilty(built: Built, fact: Assumption) -> list[str]:
    """Return those hosts of a fact that fail even alone; all of them where each could be had alone."""
    alone = [
        number
        for number in sorted(fact.groups)
        if infeasible(build([built.groups[number]], built.wishes, built.catalogue).problem, Scope())
    ]
    return built.hosts(alone or fact.groups)


def _remedy(built: Built, changes: Sequence[Change]) -> Remedy:
    """Return the changes in words, with the nearest version that works for each dropped wish."""
    only: dict[tuple[str, int | None], int] = {}
    texts: list[str] = []
    pins: list[str] = []
    without: list[str] = []
    for change in changes:
        if change.kind == "hosts":
            texts.append(f"without {names(change.hosts)}")
            without += change.hosts
        elif change.kind == "method":
            texts.append(f"with lab_driver_method {change.method} on {names(change.hosts)}")
        elif change.kind == "driver":
            chosen = search(built.problem, Scope(only=only)) or {}
            number = next(n for n, g in enumerate(built.groups) if set(g.hosts) & set(change.hosts))
            texts.append(f"with driver {chosen['driver', number].version} on {names(change.hosts)}")
        elif change.pin is not None:
            version = _replacement(built, change.pin, only)
            title = TITLES[change.pin.name]
            texts.append(f"with {title} {version}" if version else f"without {change.pin.text}")
            pins += [f"{change.pin.name}={version}"] if version else []
    return Remedy(_joined(texts), tuple(pins), tuple(without))


def _joined(texts: Sequence[str]) -> str:
    """Return changes as one: with CUDA 12.9 and torch 2.8.0 and without n3."""
    kinds = {
        word: [text.removeprefix(f"{word} ") for text in texts if text.startswith(f"{word} ")]
        for word in _WORDS
    }
    return " and ".join(f"{word} {' and '.join(found)}" for word, found in kinds.items() if found)


def _replacement(built: Built, pin: Pin, only: dict[tuple[str, int | None], int]) -> str | None:
    """Return the version nearest to a dropped wish with which everything fits; narrows ``only`` to it."""
    problem = built.problem
    keys = [key for key in problem.domains if key[0] == pin.name]
    left = prune(problem, Scope(only=only)).masks
    known = {
        _written(pin, c.version) for key in keys for c in problem.of(key, left[key]) if c.version != "none"
    }
    for version in _by_distance(pin, known)[:_TRIES]:
        wish = Pin(pin.name, version)
        masks = {
            key: sum(1 << c.place for c in problem.domains[key] if meets(wish, c.version)) & only.get(key, -1)
            for key in keys
        }
        if all(masks.values()) and search(problem, Scope(only={**only, **masks})) is not None:
            only.update(masks)
            return version
    return None


def _written(pin: Pin, version: str) -> str:
    return version.partition("-")[0] if pin.name == "nccl" and "+" not in pin.value else version


def _by_distance(pin: Pin, known: set[str]) -> list[str]:
    """Return versions to have instead: builds of the same, then of its major, the nearest first."""
    if pin.name == "backend":
        return [backend for backend in BACKENDS if backend in known - {pin.value}]
    suffixed = pin.build or pin.cuda
    same = [version for version in known if not suffixed and meets(pin, version)]
    near = versions.by_distance(pin.version, known.difference(same))
    release = pin.version.partition("-")[0].partition("+")[0]

    build = pin.value.partition("+cuda")[2]

    def far(version: str) -> tuple[object, ...]:
        if versions.prefix(release, version) and build and pin.name == "nccl":
            other = versions.major(str(rules.nccl_build(version))) != versions.major(build)
            return False, other, rules.nccl_distance(version, build)
        if versions.prefix(release, version):
            return False, [-number for number in versions.numbers(version)]
        return True, versions.major(version) != versions.major(release)

    return sorted(near, key=far)


def without(state: State, hosts: Iterable[str], catalogue: Catalogue) -> Remedy | None:
    """Return leaving these hosts out as a remedy, if the others resolve."""
    left_out = tuple(hosts)
    built = _built(Change("hosts", left_out).apply(state), catalogue)
    if built is None or search(built.problem, Scope()) is None:
        return None
    return Remedy(f"without {names(left_out)}", without=left_out)
