"""A stack as items that can be changed one by one, and the changes between two. Pure.

An item is a version (``torch``), a variable of a role that builds (``horovod_variants``), a parameter of Open
MPI (``openmpi_parameters.NAME``), or a launch setting of ranks (``env.NAME``, ``mpirun``, ``rules``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.base.masking import HIDDEN, hides
from hvlab.bench.settings import SettingsFile
from hvlab.lab.pin_variables import BUILD_ROLES, TITLES, VERSION_PINS, builds
from hvlab.stack.resolver import versions

# Components of which several can be installed; of a kernel or a driver only one.
COMPONENTS = ("openmpi", "python", "torch", "tensorflow", "horovod")
# The components in each role's build; Horovod is built on the other two.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "openmpi": ("openmpi",),
    "python_env": ("python", "torch", "tensorflow"),
    "horovod": COMPONENTS,
}
_ENV = "env."
# The variable of Open MPI's parameters: each is a separate change, and none needs a build.
PARAMETERS = "openmpi_parameters"
_PARAMETER = f"{PARAMETERS}."
_STARTS = ("mpirun", "rules")
Items = Mapping[str, Any]


@dataclass(frozen=True)
class Stack:
    """Versions, variables of the roles, and settings of the ranks, by name; None equals absence."""

    items: Items

    def __getitem__(self, name: str) -> Any:
        return self.items.get(name)

    @property
    def versions(self) -> dict[str, str]:
        """Version of each of its components."""
        return {name: str(self.items[name]) for name in COMPONENTS if self.items.get(name)}

    @property
    def settings(self) -> SettingsFile:
        """Launch settings of its ranks."""
        return SettingsFile(
            env=self._with_prefix(_ENV), **{name: self.items.get(name) or "" for name in _STARTS}
        )

    @property
    def variables(self) -> dict[str, Any]:
        """Ansible variables that request it: pins, and those of the roles."""
        pins = {VERSION_PINS[name]: version for name, version in self.versions.items()}
        return {**pins, **self._built_with, PARAMETERS: self.parameters}

    @property
    def parameters(self) -> dict[str, Any]:
        """Open MPI's parameters."""
        return self._with_prefix(_PARAMETER)

    def _with_prefix(self, prefix: str) -> dict[str, Any]:
        known = ((name, value) for name, value in self.items.items() if value is not None)
        return {name.removeprefix(prefix): value for name, value in known if name.startswith(prefix)}

    @property
    def _built_with(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.items.items()
            if builds(name) and not name.startswith(_PARAMETER) and value is not None
        }

    @property
    def name(self) -> str:
        """Hash of everything installed: equal for two stacks that are the same on the hosts."""
        return _hash([self.key("horovod"), self.parameters])

    def key(self, role: str) -> str:
        """Return a hash of a role's inputs: equal for two stacks that can share its build."""
        prefixes = tuple(f"{one}_" for one in (BUILD_ROLES if role == "horovod" else (role,)))
        parts = {name: version for name, version in self.versions.items() if name in _PARTS[role]}
        own = {name: value for name, value in self._built_with.items() if name.startswith(prefixes)}
        return _hash([parts, own])

    def with_(self, changes: Sequence[StackChange]) -> Stack:
        """Return the stack after these changes, which are in the order of a chain."""
        return Stack({**self.items, **{change.item: change.after for change in changes}})


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def split_parameters(items: Items) -> dict[str, Any]:
    """Return the items with one for each of Open MPI's parameters. Raises UsageError for no mapping."""
    others = {name: value for name, value in items.items() if name != PARAMETERS}
    given = items.get(PARAMETERS) or {}
    if not isinstance(given, Mapping):
        raise UsageError(f"{PARAMETERS} is {given!r}", remedy=f"write {PARAMETERS}: {{NAME: value}}")
    return others | {f"{_PARAMETER}{name}": value for name, value in given.items()}


def from_settings(settings: SettingsFile) -> dict[str, Any]:
    """Return the items of a settings file."""
    env = {f"{_ENV}{name}": value for name, value in settings.env.items()}
    return env | {name: value for name in _STARTS if (value := getattr(settings, name))}


@dataclass(frozen=True)
class StackChange:
    """One item that has another value, or one release of it that follows another."""

    item: str
    before: Any
    after: Any

    @property
    def pin(self) -> tuple[str, Any]:
        """Variable that restores it, with its value: of an inventory, or of the ranks."""
        if self.item in COMPONENTS:
            return VERSION_PINS[self.item], self.before
        if self.item.startswith(_PARAMETER):
            return PARAMETERS, {self.item.removeprefix(_PARAMETER): self.before}
        return self.item.removeprefix(_ENV), self.before

    @property
    def shown(self) -> tuple[Any, Any]:
        """Both values, masked if they are secrets of ranks."""
        secret = hides(self.item.removeprefix(_ENV))
        return (HIDDEN, HIDDEN) if secret else (self.before, self.after)

    def __str__(self) -> str:
        title = TITLES.get(self.item, self.item.removeprefix(_ENV).removeprefix(_PARAMETER))
        before, after = self.shown
        if self.item in COMPONENTS or not (isinstance(before, list | dict) or isinstance(after, list | dict)):
            return f"{title} {_word(before)} -> {_word(after)}"
        return f"{title}: {', '.join(_differences(before, after))}"


def chain(
    good: Stack, bad: Stack, releases: Mapping[str, Sequence[str]], possible: Callable[[Stack], bool]
) -> list[StackChange]:
    """Return the changes that lead from ``good`` to ``bad``: one item at a time, release by release.

    ``releases`` are the known ones of each component; those whose stack is not ``possible`` are left out. An
    end may name releases by their beginning (2.4): then the other end's is one of them, or none lies between
    the two. Settings and parameters come first, for they need no build.
    """
    names = sorted({*good.items, *bad.items}, key=_place)
    changes: list[StackChange] = []
    for name in names:
        before, after = good[name], bad[name]
        if before == after or (name in COMPONENTS and _is_one_release(before, after)):
            continue
        values = [before, *_list_between(before, after, releases.get(name, ())), after]
        for value in values[1:]:
            step = StackChange(name, before, value)
            if value == after or possible(good.with_([*changes, step])):
                changes.append(step)
                before = value
    return changes


def _list_between(before: Any, after: Any, releases: Sequence[str]) -> Iterator[str]:
    if not releases or not before or not after:
        return
    low, high = sorted((before, after), key=versions.numbers)
    inside = (
        one for one in releases if versions.numbers(low) < versions.numbers(one) < versions.numbers(high)
    )
    other = (one for one in inside if not _is_one_release(low, one) and not _is_one_release(high, one))
    yield from sorted(other, key=versions.numbers, reverse=low != before)


def _is_one_release(one: Any, other: Any) -> bool:
    both = one and other
    return bool(both) and (versions.is_prefix(one, other) or versions.is_prefix(other, one))


def _place(name: str) -> tuple[int, str]:
    if name in COMPONENTS:
        return 2 + COMPONENTS.index(name), name
    return (1, name) if builds(name) and not name.startswith(_PARAMETER) else (0, name)


def _word(value: Any) -> str:
    return "nothing" if value in (None, "") else str(value)


def _differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            if before.get(name) != after.get(name):
                yield from _differences(before.get(name), after.get(name), f"{path}.{name}" if path else name)
        return
    where = f"{path} " if path else ""
    yield f"{where}{_word(before)} -> {_word(after)}"


def without(changes: Sequence[StackChange], numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of the changes left when some, and later releases of their items, are reverted."""
    first = {changes[number].item: number for number in sorted(numbers, reverse=True)}
    return tuple(at for at, change in enumerate(changes) if at < first.get(change.item, len(changes)))


def join(changes: Sequence[StackChange]) -> list[StackChange]:
    """Merge consecutive changes of the same item."""
    together: list[StackChange] = []
    for change in changes:
        if together and (together[-1].item, together[-1].after) == (change.item, change.before):
            together[-1] = StackChange(change.item, together[-1].before, change.after)
        else:
            together.append(change)
    return together
