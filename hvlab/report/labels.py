"""Backends in order, and names for groups of configurations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from hvlab.analysis.model.training import Training
from hvlab.base.groups import grouped
from hvlab.lab.backends import BACKENDS, SERIAL
from hvlab.results.configurations import Configuration, Param


class Code(str):
    """A text for machines: a page sets it as code."""

    __slots__ = ()


class Lines(tuple["Value", ...]):
    """Values, each on its own line."""

    __slots__ = ()


# The content of a cell: a text, a number, or several.
Value: TypeAlias = "str | int | tuple[Value, ...]"
Params = tuple[tuple[str, Param], ...]
# The parameters that name a training.
_NAMING = ("model", "data", "command")


def plane(configuration: Configuration) -> str:
    """Return a configuration's backend, and its launcher if unusual."""
    known = BACKENDS.get(configuration.backend)
    unusual = known is not None and configuration.launcher in known.launchers[1:]
    return f"{configuration.backend}/{configuration.launcher}" if unusual else configuration.backend


def tone(name: str) -> str:
    """Return the name of the colour of a backend or plane."""
    return name.partition("/")[0]


def order(name: str) -> tuple[int, str]:
    """Return a key that sorts backends as the lab sheet does: MPI, Gloo, NCCL, oneCCL."""
    known = (SERIAL, *BACKENDS)
    name, _, launcher = name.partition("/")
    return (known.index(name) if name in known else len(known), f"{name}/{launcher}")


class Names:
    """Names of groups of configurations: the workload, and the parameters that differ between groups."""

    def __init__(self, groups: Iterable[tuple[str, Params]]) -> None:
        by_workload = grouped((workload, dict(params)) for workload, params in set(groups))
        # A parameter that only some groups have sets them apart as well.
        self._telling = {
            workload: {
                name
                for name in itertools.chain(*several)
                if len({params.get(name, Names) for params in several}) > 1
            }
            for workload, several in by_workload.items()
        }

    def of(self, one: Configuration | Training) -> Value:
        """Return the name of a configuration's or training's group."""
        return self.name(one.workload, one.params)

    def name(self, workload: str, params: Params) -> Value:
        """Return the name of a group."""
        given: Mapping[str, Param] = dict(params)
        named = next((str(given[name]) for name in _NAMING if given.get(name)), None)
        if given.get("unit"):
            named = f"{named} ({given['unit']})"
        telling = self._telling.get(workload, set()) - {*_NAMING, "unit"}
        title = f"{workload} · {named}" if named else workload
        more = tuple(Code(f"{name}={given[name]}") for name in given if name in telling)
        return (title, *more) if more else title
