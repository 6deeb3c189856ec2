"""Short names of configurations: only what differs between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hvlab.results.configurations import Configuration
from hvlab.workloads.sizes import shown

_SIZE = "size_bytes"


def place(configuration: Configuration, names: Mapping[Configuration, str]) -> dict[str, Any]:
    """Return the columns that identify a configuration."""
    return {
        "workload": configuration.workload,
        "backend": configuration.backend,
        "hosts": len(configuration.hosts),
        "slots": configuration.slots,
        "case": names[configuration],
    }


def case_names(configurations: Iterable[Configuration]) -> dict[Configuration, str]:
    """Return each configuration's size, with hosts and parameters where those of its workload differ."""
    members: dict[str, list[Configuration]] = {}
    for configuration in configurations:
        members.setdefault(configuration.workload, []).append(configuration)
    return {configuration: name for alike in members.values() for configuration, name in _names(alike)}


def _names(configurations: Sequence[Configuration]) -> list[tuple[Configuration, str]]:
    params = {configuration: dict(configuration.params) for configuration in configurations}
    known = sorted({name for given in params.values() for name in given} - {_SIZE})
    varied = [name for name in known if len({given.get(name) for given in params.values()}) > 1]
    sets: dict[tuple[str, int, int], set[tuple[str, ...]]] = {}
    for configuration in configurations:
        sets.setdefault(_shape(configuration), set()).add(configuration.hosts)
    return [
        (configuration, " ".join(_parts(configuration, varied, several=len(sets[_shape(configuration)]) > 1)))
        for configuration in configurations
    ]


def _parts(configuration: Configuration, varied: Sequence[str], *, several: bool) -> Iterator[str]:
    if configuration.get(_SIZE) is not None:
        yield shown(configuration.get(_SIZE))
    if several:
        yield "+".join(configuration.hosts)
    yield from (f"{name}={configuration.get(name)}" for name in varied if configuration.get(name) is not None)


def _shape(configuration: Configuration) -> tuple[str, int, int]:
    return (configuration.backend, configuration.slots, len(configuration.hosts))
