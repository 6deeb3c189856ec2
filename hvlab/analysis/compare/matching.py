"""Which configurations of two runs are the same measurement, and what else differs between the runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from hvlab.analysis.compare.measurements import Measurements, whole
from hvlab.results.configurations import Configuration, Repeats


@dataclass(frozen=True)
class Match:
    """A configuration with its repeats in both runs; ``configuration`` is as A has it."""

    configuration: Configuration
    a: Repeats
    b: Repeats


@dataclass(frozen=True)
class Matches:
    """The configurations of two runs: those of both, and those of only one."""

    both: tuple[Match, ...]
    only_a: tuple[Configuration, ...]
    only_b: tuple[Configuration, ...]


def match(a: Measurements, b: Measurements) -> Matches:
    """Return the configurations of two runs side by side.

    They match where everything that was asked for is equal. Between runs without a common host, the number
    of hosts counts instead of their names. Where a run was imported, the launcher and the parameters that
    only one run records do not count. A case that failed before its first size matches every size of the
    other run.
    """
    left, right = _keyed(a, b), _keyed(b, a)
    candidates = [
        (configuration, right.get(key) or right.get(whole(key))) for key, configuration in left.items()
    ]
    pairs = [(configuration, other) for configuration, other in candidates if other is not None]
    pairs += [
        (left[whole(key)], configuration)
        for key, configuration in right.items()
        if key not in left and whole(key) in left
    ]
    used_a, used_b = {one for one, _ in pairs}, {other for _, other in pairs}
    return Matches(
        tuple(
            Match(_sized(one, other), a.configurations[one], b.configurations[other]) for one, other in pairs
        ),
        tuple(configuration for configuration in a.configurations if configuration not in used_a),
        tuple(configuration for configuration in b.configurations if configuration not in used_b),
    )


def differences(a: Measurements, b: Measurements) -> list[str]:
    """Return what differs between two runs besides the figures, a phrase each."""
    return [
        *([f"lab: {a.lab} in A, {b.lab} in B"] if a.lab != b.lab else []),
        *_of_hosts(a, b),
        *_of_origin(a, b),
        *of_stacks(a, b),
        *_of_parameters(a, b),
    ]


def _keyed(run: Measurements, other: Measurements) -> dict[Configuration, Configuration]:
    """Return the configurations by what has to match; of several that match, the first."""
    params = _named_params(run), _named_params(other)
    keyed: dict[Configuration, Configuration] = {}
    for configuration in run.configurations:
        key = configuration
        if not run.hosts & other.hosts:
            key = dataclasses.replace(key, hosts=("",) * len(configuration.hosts))
        if run.imported or other.imported:
            ours, theirs = (names.get(configuration.workload, set()) for names in params)
            key = dataclasses.replace(key, launcher="", params=key.without(*(ours ^ theirs)))
        keyed.setdefault(key, configuration)
    return keyed


def _named_params(run: Measurements) -> dict[str, set[str]]:
    """Return the names of the parameters that a run records, by workload."""
    names: dict[str, set[str]] = {}
    for configuration in run.configurations:
        names.setdefault(configuration.workload, set()).update(
            name for name, _ in configuration.params if name != "size_bytes"
        )
    return names


def _sized(a: Configuration, b: Configuration) -> Configuration:
    """Return A's configuration, with the size where only B's has one."""
    size = b.get("size_bytes")
    if size is None or a.get("size_bytes") is not None:
        return a
    return dataclasses.replace(a, params=tuple(sorted((*a.params, ("size_bytes", size)))))


def _of_hosts(a: Measurements, b: Measurements) -> Iterator[str]:
    if not a.hosts & b.hosts:
        names = [", ".join(sorted(side.hosts)) for side in (a, b)]
        yield f"hosts: {names[0]} in A, {names[1]} in B; matched by the number of hosts"


def _of_origin(a: Measurements, b: Measurements) -> Iterator[str]:
    imported = " and ".join(name for name, run in (("A", a), ("B", b)) if run.imported)
    if imported:
        yield f"imported: {imported}; matched by backend, size and the parameters that both record"


def of_stacks(a: Measurements, b: Measurements) -> Iterator[str]:
    """Yield what is of another version in B than in A, a phrase each."""
    for part in sorted(a.stack.keys() | b.stack.keys()):
        one, other = (" and ".join(side.stack.get(part, ())) or "none" for side in (a, b))
        if one != other:
            yield f"{part}: {one} in A, {other} in B"


def _of_parameters(a: Measurements, b: Measurements) -> Iterator[str]:
    """Yield the parameters of which A and B have no value in common, so that nothing matches."""
    known = _values(a), _values(b)
    for workload, name in sorted(known[0].keys() | known[1].keys()):
        one, other = (side.get((workload, name), set()) for side in known)
        shared = workload in {key[0] for key in known[0]} & {key[0] for key in known[1]}
        if shared and not one & other:
            texts = [", ".join(sorted(values)) or "none" for values in (one, other)]
            yield f"{workload}: {name} is {texts[0]} in A, {texts[1]} in B"


def _values(run: Measurements) -> dict[tuple[str, str], set[str]]:
    values: dict[tuple[str, str], set[str]] = {}
    for configuration in run.configurations:
        for name, value in configuration.params:
            if name != "size_bytes":
                values.setdefault((configuration.workload, name), set()).add(str(value))
    return values
