"""The space of a search: the settings of each of its candidates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.bench.settings import SettingsFile
from hvlab.searches.tune.space_file import SpaceParameter, Word
from hvlab.workloads.parameters import BY_VARIABLE, COMMON

# Smallest number of ranks for Open MPI's rules.
_RANKS = 2
# The index of the value of each parameter.
Candidate = tuple[int, ...]
_DEFAULTS: Mapping[str, Word] = {
    name: item.default for name, item in BY_VARIABLE.items() if not isinstance(item.default, tuple)
}


@dataclass(frozen=True)
class Space:
    """The parameters of a search, and today's settings, from which it starts.

    Parts of ``today`` that no parameter sets stay in every candidate.
    """

    parameters: tuple[SpaceParameter, ...]
    today: SettingsFile

    @property
    def start(self) -> Candidate:
        """Candidate of today's settings."""
        algorithms = _algorithms(self.today.rules, self.parameters)
        return tuple(_index(item, self.today, algorithms) for item in self.parameters)

    def settings(self, candidate: Candidate) -> SettingsFile:
        """Return the settings of a candidate: its differences from the defaults, over today's settings."""
        if candidate == self.start:
            return self.today
        env, options = dict(self.today.env), self.today.mpirun
        for item, value in self._choose(candidate):
            if item.to == "env":
                env.pop(item.variable, None)
                if not item.same(value, item.default):
                    env[item.variable] = value
            elif item.to == "mpirun":
                options = str(value) if value != item.default else ""
        return SettingsFile(
            env={name: value for name, value in env.items() if value != ""},
            mpirun=options,
            rules=self._rules(candidate),
        )

    def as_today(self, candidate: Candidate) -> bool:
        """Whether a candidate equals today's settings, perhaps in other words."""
        if any(self.parameters[place].to == "host" for place in self._list_changed(candidate)):
            return False
        return _read(self.settings(candidate)) == _read(self.today)

    def words(self, candidate: Candidate) -> str:
        """Describe the differences between a candidate and today's settings."""
        return ", ".join(f"{name}={value}" for name, value in self.changes(candidate).items()) or "as today"

    def changes(self, candidate: Candidate) -> dict[str, Word]:
        """Return the values in which a candidate differs from today's settings."""
        chosen = self._choose(candidate)
        return {
            item.name: value for item, value in (chosen[place] for place in self._list_changed(candidate))
        }

    def _list_changed(self, candidate: Candidate) -> list[int]:
        both = enumerate(zip(candidate, self.start, strict=True))
        return [place for place, (one, other) in both if one != other]

    def _choose(self, candidate: Candidate) -> list[tuple[SpaceParameter, Word]]:
        return [(item, item.values[index]) for item, index in zip(self.parameters, candidate, strict=True)]

    def _rules(self, candidate: Candidate) -> str:
        tables: dict[int, dict[int, tuple[int, int]]] = {}
        for item, value in self._choose(candidate):
            if item.collective is not None:
                algorithm, _, segment = str(value).partition(":")
                rule = int(algorithm), int(segment or 0)
                tables.setdefault(item.collective, {})[item.from_bytes] = rule
        tables = {
            collective: table
            for collective, table in tables.items()
            if any(algorithm for algorithm, _ in table.values())
        }
        if not tables:
            return self.today.rules if not any(item.to == "rules" for item in self.parameters) else ""
        words: list[int] = [len(tables)]
        for collective, table in sorted(tables.items()):
            sizes = {0: (0, 0)} | table
            words += [collective, 1, _RANKS, len(sizes)]
            words += [
                word for size, (number, bytes_) in sorted(sizes.items()) for word in (size, number, 0, bytes_)
            ]
        return " ".join(map(str, words))


def space(
    parameters: Sequence[SpaceParameter], today: SettingsFile, *, rank_env: Mapping[str, Word] | None = None
) -> Space:
    """Return a space that includes today's values. Raises UsageError.

    ``rank_env``, the inventory's environment of all ranks, overrides the defaults.
    """
    parameters = [_take_lab_default(item, rank_env or {}) for item in parameters]
    if today.rules and any(item.to == "rules" for item in parameters):
        space = Space(tuple(parameters), today)
        again = replace(space, today=today.model_copy(update={"rules": ""}))
        if again._rules(space.start) != today.rules:
            raise UsageError(
                "today's rules file is not one that this space can write",
                remedy="leave the algorithms out of the space (--space FILE), or the rules out of --settings",
            )
    return Space(tuple(_add_today(item, today) for item in parameters), today)


def including(space: Space, settings: SettingsFile) -> tuple[Space, Candidate]:
    """Return a space that includes these settings, and their candidate."""
    wider = Space(tuple(_add_today(item, settings) for item in space.parameters), space.today)
    return wider, replace(wider, today=settings).start


def _take_lab_default(item: SpaceParameter, rank_env: Mapping[str, Word]) -> SpaceParameter:
    """Return a parameter with its real default, if the inventory or hvlab sets it."""
    known = {**_DEFAULTS, **rank_env}
    if item.to != "env" or item.variable not in known:
        return item
    default = known[item.variable]
    default = item.default if item.same(item.default, default) else item.read(default)
    # Such a variable cannot be unset.
    values = [value for value in item.values if value != ""]
    return _add_value(item.model_copy(update={"values": values, "default": default}), default)


def _read(settings: SettingsFile) -> dict[str, Any]:
    known = {item.name: item for item in COMMON}
    return {name: known[name].read(text) for name, text in settings.parameters.items()}


def _add_today(item: SpaceParameter, today: SettingsFile) -> SpaceParameter:
    value = _today(item, today)
    return item if value is None else _add_value(item, value)


def _add_value(item: SpaceParameter, value: Word) -> SpaceParameter:
    if item.has(value):
        return item
    number = item.read(value)
    if item.ordered and isinstance(number, int | float):
        return item.model_copy(update={"values": sorted([*item.values, number], key=float)})
    return item.model_copy(update={"values": [*item.values, value]})


def _today(item: SpaceParameter, today: SettingsFile) -> Word | None:
    if item.to == "env":
        return today.env.get(item.variable)
    return today.mpirun or None if item.to == "mpirun" else None


def _index(item: SpaceParameter, today: SettingsFile, algorithms: Mapping[str, str]) -> int:
    value = algorithms.get(item.name) if item.to == "rules" else _today(item, today)
    return item.place(item.default if value is None else value)


def _algorithms(text: str, parameters: Sequence[SpaceParameter]) -> dict[str, str]:
    """Return the algorithm of each parameter in a rules file, if it has one number of ranks."""
    numbers = list(map(int, text.split()))
    if not numbers:
        return {}
    chosen: dict[tuple[int, int], str] = {}
    place = 1
    for _ in range(numbers[0]):
        collective, ranks = numbers[place : place + 2]
        place += 2
        for _ in range(ranks):
            sizes = numbers[place + 1]
            rows = numbers[place + 2 : place + 2 + 4 * sizes]
            for size, algorithm, segment in zip(rows[::4], rows[1::4], rows[3::4], strict=True):
                chosen[collective, size] = f"{algorithm}:{segment}" if segment else str(algorithm)
            place += 2 + 4 * sizes
    return {
        item.name: chosen[key]
        for item in parameters
        if item.collective is not None and (key := (item.collective, item.from_bytes)) in chosen
        if chosen[key] in map(str, item.values)
    }
