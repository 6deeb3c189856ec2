"""A bisection with its folder: the stacks installed on the hosts, the changes, and the one to blame."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hvlab.base.errors import CheckError, HvlabError, Problem, UsageError, report
from hvlab.base.files import write_file
from hvlab.bench.matrix import Spec
from hvlab.bench.settings import check_one, misfit
from hvlab.lab.environment import components, of_stack
from hvlab.lab.inventory import STACKS, Lab, parameters_file
from hvlab.lab.pin_variables import BUILD_ROLES, TITLES, VERSION_PINS
from hvlab.remote.gather import facts
from hvlab.remote.playbook import Owner, Play
from hvlab.results.lock import measuring
from hvlab.results.searches import RESULT
from hvlab.results.store import Store
from hvlab.searches.bisect.judge import Effect, InstalledStack, Judge, StackFailsError
from hvlab.searches.bisect.result import BisectResult, TriedStack, search
from hvlab.searches.bisect.stack import COMPONENTS, Stack, StackChange, chain, without
from hvlab.stack.resolver import HostRequest, Resolution, catalogue, plan, versions
from hvlab.stack.resolver.pins import Pin

# Prefixes of the stack in use, as in group_vars/all.yml.
_PREFIXES: Mapping[str, str] = {
    "openmpi": "/opt/hvlab/openmpi",
    "python_env": "/opt/hvlab",
    "horovod": "/opt/hvlab/horovod",
}
_FACTS = "/etc/ansible/facts.d"
# How to prevent another source from replacing the requested version.
_NO_OTHER: Mapping[str, str] = {
    "openmpi": "put openmpi-{version}.tar.bz2 into sources/ on the controller; with "
    "`openmpi_sources: [file, url]` in the inventory, no other version is used instead"
}


def name_of(stack: Stack, own: Stack) -> str:
    """Return the name of a stack on the hosts; empty if it equals the one in use."""
    return "" if stack.name == own.name else stack.name


def variables(stack: Stack, own: Stack, lab: Lab) -> dict[str, Any]:
    """Return the variables of playbooks/stack.yml: packs to build, and prefixes of those not in use."""
    name = name_of(stack, own)
    folder = f"{STACKS}/{name}"
    prefixes = {}
    for role in BUILD_ROLES:
        key = stack.key(role)
        in_use = lab.text(f"{role}_prefix", _PREFIXES[role])
        prefixes[f"{role}_prefix"] = in_use if key == own.key(role) else f"{STACKS}/{role}-{key}"
    records = {f"{role}_record": f"{_FACTS}/hvlab_{role}@{name}.fact" for role in BUILD_ROLES}
    return {
        **stack.variables,
        **prefixes,
        **records,
        "openmpi_profile": f"{folder}/profile.sh",
        "openmpi_parameters_file": parameters_file(name),
        "hvlab_stack": folder,
        "hvlab_hosts": ",".join(host.name for host in lab.hosts),
    }


def install(stack: Stack, own: Stack, lab: Lab) -> None:
    """Install a stack beside the one in use. Raises CheckError if it cannot be built as requested."""
    with Play("stack.yml", Owner(lab), variables(stack, own, lab)) as play:
        play.finish()
        play.check("it could not be installed", remedy="the build's log on the host says what it lacks")
    name = name_of(stack, own)
    if wrong := find_differing(stack, {host: of_stack(known, name) for host, known in facts(lab).items()}):
        raise CheckError(f"it cannot be built:\n{report(wrong)}")


def find_differing(stack: Stack, recorded: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """List recorded versions that differ from the stack's; ``recorded`` are facts by host."""
    wrong = []
    for host, known in recorded.items():
        present = components(known)
        for name, version in stack.versions.items():
            built = Pin(name, str(present.get(name) or "none")).version
            if not versions.is_prefix(version, built):
                remedy = _NO_OTHER.get(name, f"name another version, or set {VERSION_PINS[name]}")
                observed = f"{TITLES[name]} {version} was requested, {built} is recorded"
                wrong.append(Problem(host, observed, remedy.format(version=version)))
    return wrong


def remove(lab: Lab) -> None:
    """Remove all stacks beside the one in use from the hosts."""
    given = {"hvlab_hosts": ",".join(host.name for host in lab.hosts), "hvlab_stacks": STACKS}
    with Play("remove-stacks.yml", Owner(lab), given) as play:
        play.finish()
        play.check("the stacks could not be removed", remedy=f"remove {STACKS} on the hosts")


REPORT = "bisect.md"


@dataclass(frozen=True)
class BisectRequest:
    """The request: two ends, the stack in use, a configuration, and the hosts for the resolver.

    ``notes`` go into the report.
    """

    good: Stack
    bad: Stack
    own: Stack
    spec: Spec
    lab: Lab
    hosts: Sequence[HostRequest]
    notes: tuple[str, ...] = ()

    def key(self) -> str:
        """Return a hash that identifies this bisection."""
        asked = [self.spec.key(self.lab), *(dict(stack.items) for stack in (self.good, self.bad, self.own))]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]

    def changes(self) -> list[StackChange]:
        """Return the changes from the good end to the bad one. Raises UsageError if there are none."""
        known = catalogue.load()
        releases: Mapping[str, Sequence[str]] = {
            name: list(known.pythons if name == "python" else getattr(known, name)) for name in COMPONENTS
        }
        changes = chain(self.good, self.bad, releases, self.possible)
        if not changes:
            raise UsageError(
                "both ends are the same stack",
                remedy="name another stack file, lock or run; `hvlab plan` shows what is in use",
            )
        return changes

    def possible(self, stack: Stack) -> bool:
        """Whether the resolver accepts these versions on these hosts."""
        pins = [Pin(name, version) for name, version in stack.versions.items()]
        free = [
            replace(host, pins=tuple(pin for pin in host.pins if pin.name not in stack.versions))
            for host in self.hosts
        ]
        return isinstance(plan(free, pins), Resolution)


def check(request: BisectRequest) -> None:
    """Raise UsageError if the request is not one configuration, or an end is impossible."""
    check_one(request.spec, request.lab, "bisect compares stacks by one configuration")
    for name, stack in (("good", request.good), ("bad", request.bad)):
        if not request.possible(stack):
            pins = " ".join(f"--pin {part}={version}" for part, version in stack.versions.items())
            raise UsageError(
                f"the {name} stack cannot be installed on these hosts",
                remedy=f"`hvlab plan {pins}` shows the conflict",
            )
        if reason := misfit(request.spec, stack.settings, request.lab):
            raise UsageError(
                f"the settings of the {name} stack do not fit what is measured: {reason}",
                remedy="leave that out of the stack, or choose its backend and launcher",
            )


def bisect(
    request: BisectRequest, store: Store, folder: Path, *, keep: bool, note: Callable[[str], None]
) -> BisectResult:
    """Find the change to blame, and write it into ``folder``; remove stacks from hosts unless ``keep``."""
    check(request)
    changes = request.changes()
    with measuring(store.folder, request.lab.name), _removing(request.lab, note, keep=keep):
        folder.mkdir(parents=True, exist_ok=True)
        points = _Points(request, Store(folder), changes, note)
        whole = points.measure_whole()
        culprit = None
        if whole.slower:
            culprit = search(len(changes), points.bad, lambda numbers: without(changes, numbers))
        result = BisectResult(tuple(changes), whole, culprit, tuple(points.steps), request.notes)
        write_file(folder / REPORT, result.markdown())
        write_file(folder / RESULT, json.dumps(result.as_json(), indent=1))
    return result


@contextmanager
def _removing(lab: Lab, note: Callable[[str], None], *, keep: bool) -> Iterator[None]:
    """Remove the stacks from the hosts at the end; the same command restores them from the cache."""
    try:
        yield
    finally:
        if not keep:
            note("removing the stacks from the hosts")
            try:
                remove(lab)
            except HvlabError as error:
                note(f"{error}; {error.remedy}")


@dataclass
class _Points:
    """Stacks between the ends, each installed and measured once."""

    request: BisectRequest
    store: Store
    changes: Sequence[StackChange]
    note: Callable[[str], None]
    steps: list[TriedStack] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)

    def measure_whole(self) -> Effect:
        """Return the slowdown of the bad end. Raises CheckError if it cannot be measured."""
        step = self._step(tuple(range(len(self.changes))))
        if step.effect is None:
            raise CheckError(
                f"the bad stack cannot be measured: {step.problem}",
                remedy="name one that runs: bisect looks for slowdowns, not for failures",
            )
        return step.effect

    def bad(self, numbers: tuple[int, ...]) -> bool | None:
        """Whether these changes bring more than half of the slowdown; None if they cannot be measured."""
        measured = self._step(numbers).effect
        return None if measured is None else measured.log.mid > self.measure_whole().log.mid / 2

    def _step(self, numbers: tuple[int, ...]) -> TriedStack:
        known = next((step for step in self.steps if step.changes == numbers), None)
        if known is None:
            known = self._measure(numbers)
            self.steps.append(known)
            said = known.effect.words if known.effect else known.problem
            self.note(f"{len(numbers)} of {len(self.changes)} changes: {said}")
        return known

    def _measure(self, numbers: tuple[int, ...]) -> TriedStack:
        request = self.request
        stack = request.good.with_([self.changes[number] for number in numbers])
        if not request.possible(stack):
            return TriedStack(numbers, None, "these versions do not fit together")
        try:
            good = self._install(request.good)
        except CheckError as error:
            raise CheckError(f"the good stack cannot be measured: {error}", remedy=error.remedy) from error
        whole = self.steps[0].effect if self.steps else None
        judge = Judge(request.spec, request.lab, self.store, good)
        try:
            installed = self._install(stack)
        except CheckError as error:
            return TriedStack(numbers, None, "; ".join(filter(None, [str(error), error.remedy])))
        try:
            return TriedStack(numbers, judge.effect(installed, whole.log.mid / 2 if whole else None))
        except StackFailsError as error:
            return TriedStack(numbers, None, str(error))

    def _install(self, stack: Stack) -> InstalledStack:
        name = name_of(stack, self.request.own)
        if name and name not in self._names:
            self.note(f"installing stack {name}: {', '.join(map(' '.join, stack.versions.items()))}")
            install(stack, self.request.own, self.request.lab)
            self._names.add(name)
        return InstalledStack(name, tuple(sorted(stack.settings.parameters.items())))
