"""Settings measured in turn by one run, compared pair by pair: their time is the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hvlab.analysis.compare.comparison import (
    ComparisonRow,
    Measurements,
    check,
    figures,
    pair_of,
    primary,
    side_of,
    without_size,
)
from hvlab.lab.backends import BACKENDS
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics import verdict
from hvlab.statistics.looks import LOOKS, Look
from hvlab.statistics.sequential import compare_in_looks, is_answered, repeats_to_decide
from hvlab.workloads import WORKLOADS, parameters
from hvlab.workloads.parameters import DEVICE, ENV, OPTIONAL, SAMPLES, TUNING, find

# A run with a fixed number of repeats is judged once.
_ONCE = (Look(2**31, verdict.ALPHA),)
# Parameters that follow from the backend or the framework.
_FOLLOWS = (DEVICE.name,)
# Parameters that change how the work is done, not how much of it there is.
_SETTINGS = (
    *("framework", "compression", "form", "in_place"),
    *(one.name for one in (*OPTIONAL, DEVICE, *TUNING)),
)


@dataclass(frozen=True)
class Decision:
    """Two settings compared, all else equal; ``row`` has their figures, A's first, and the verdict.

    ``needed``: repeats of each that would probably decide it, None if answered or hopeless. ``switched``: the
    settings of an A/B run's sides.
    """

    a: Configuration
    b: Configuration
    row: ComparisonRow
    needed: int | None = None
    switched: tuple[str, ...] = ()

    @property
    def answered(self) -> bool:
        """More repeats are not worth their time."""
        return is_answered(self.row.verdict)

    @property
    def names(self) -> tuple[str, str]:
        """Names of A and B: the value of the switched setting, or of whatever else differs."""
        return _name_sides(self.a, self.b, self.switched)


@dataclass(frozen=True)
class Unmeasured:
    """A setting without figures in some comparison: its launches, their failures and ``reasons``."""

    name: str
    failed: int
    skipped: int
    tried: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Decisions:
    """All comparable settings of a run, one family of tests at each of its ``looks``.

    ``sides`` has the settings of A and B in an A/B run; ``unmeasured`` settings have no row for lack of
    figures.
    """

    run: Measurements
    rows: tuple[Decision, ...]
    looks: tuple[Look, ...]
    sides: Mapping[str, Mapping[str, Any]]
    unmeasured: tuple[Unmeasured, ...] = ()

    def count(self, *kinds: verdict.Kind) -> int:
        """Number of rows with one of these verdicts."""
        return sum(each.row.verdict.kind in kinds for each in self.rows)


def decide(
    run: Measurements, spec: Mapping[str, Any], *, metric: str | None = None, matters: float = verdict.MATTERS
) -> Decisions:
    """Compare the settings of one run with one another; ``spec`` is its stored specification.

    Compared are A and B of a run with two sides, else every two configurations that differ in their backend,
    or in one parameter that leaves the work as it is. Raises UsageError for a metric without a better
    direction.
    """
    if metric is not None:
        check(metric)
    sides = {name: dict(values) for name, values in (spec.get("sides") or {}).items()}
    looks, measured = LOOKS if spec.get("auto") else _ONCE, run.configurations
    asked = [(a, b, metric or deciding(a, b, measured)) for a, b in questions(measured, sides)]
    asked = [each for each in asked if all(figures(measured[side], each[2]) for side in each[:2])]
    pairs = [
        pair_of(measured[a], measured[b], name, (without_size(a), without_size(b))) for a, b, name in asked
    ]
    verdicts = compare_in_looks(pairs, matters=matters, looks=looks)
    switched = tuple(dict.fromkeys(setting for chosen in sides.values() for setting in chosen))
    rows = []
    for (a, b, name), pair, judged in zip(asked, pairs, verdicts, strict=True):
        one, other = (side_of(measured[side], name) for side in (a, b))
        needed = None
        if not is_answered(judged):
            needed = repeats_to_decide(pair, family=len(pairs), matters=matters, alpha=looks[-1].alpha)
        rows.append(Decision(a, b, ComparisonRow(a, name, one, other, judged), needed, switched))
    return Decisions(run, tuple(rows), looks, sides, tuple(_find_unmeasured(run, sides)))


def _find_unmeasured(run: Measurements, sides: Mapping[str, Mapping[str, Any]]) -> Iterator[Unmeasured]:
    """Yield each setting that lacks a figure in a comparison, with all its launches.

    Whole cases count here: one that failed before its first size has no sizes.
    """
    cases: dict[Configuration, list[Repeats]] = {}
    for configuration, repeats in run.configurations.items():
        cases.setdefault(without_size(configuration), []).append(repeats)
    asked: dict[str, dict[Configuration, list[Repeats]]] = {}
    for a, b in questions(cases, sides):
        for name, one in zip("AB" if sides else _name_sides(a, b), (a, b), strict=True):
            asked.setdefault(name or "default", {})[one] = cases[one]
    for name, own in asked.items():
        if not all(any(one.ok for one in repeats) for repeats in own.values()):
            measured = [(case, one) for case, repeats in own.items() for one in repeats]
            # By launch: all its sizes end alike.
            ok = {(case, repeat) for case, one in measured for repeat in one.ok}
            failed = {(case, repeat): text for case, one in measured for repeat, text in one.errors.items()}
            skipped = {(case, repeat): text for case, one in measured for repeat, text in one.skipped.items()}
            tried = ok | failed.keys() | skipped.keys()
            reasons = dict.fromkeys([*failed.values(), *skipped.values()])
            yield Unmeasured(name, len(failed), len(skipped), len(tried), tuple(reasons))


def deciding(a: Configuration, b: Configuration, measured: Mapping[Configuration, Repeats]) -> str:
    """Return the default metric for A and B: throughput if their steps differ in their samples."""
    if any(a.get(name) != b.get(name) for name in SAMPLES):
        return "throughput"
    return primary(a, measured[a], measured[b])


def questions(
    configurations: Iterable[Configuration], sides: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[tuple[Configuration, Configuration]]:
    """Yield every two configurations that a run can decide between: A and B if it has sides."""
    groups: dict[Configuration, list[Configuration]] = {}
    if sides:
        switched = {name for values in sides.values() for name in values}
        for configuration in configurations:
            groups.setdefault(_common(configuration, switched), []).append(configuration)
        for members in groups.values():
            by_side = {configuration.get("side"): configuration for configuration in members}
            if {"A", "B"} <= by_side.keys():
                yield by_side["A"], by_side["B"]
        return
    for configuration in configurations:
        if BACKENDS.get(configuration.backend) is None or BACKENDS[configuration.backend].parallel:
            groups.setdefault(_common(configuration, {"backend", *_SETTINGS}), []).append(configuration)
    for members in groups.values():
        for one, other in itertools.combinations(sorted(members, key=_order), 2):
            if len(_different(one, other)) == 1:
                yield one, other


def _order(configuration: Configuration) -> tuple[int, str]:
    known = list(BACKENDS)
    place = known.index(configuration.backend) if configuration.backend in known else len(known)
    return place, str(configuration.params)


def _common(configuration: Configuration, switched: set[str]) -> Configuration:
    follows = _FOLLOWS if {"backend", "framework"} & switched else ()
    return replace(
        configuration,
        backend="" if "backend" in switched else configuration.backend,
        launcher="" if {"backend", "launcher"} & switched else configuration.launcher,
        params=configuration.without("side", *switched, *follows),
    )


def _different(one: Configuration, other: Configuration) -> list[str]:
    names = ["backend"] if one.backend != other.backend else []
    names += [name for name in _SETTINGS if one.get(name) != other.get(name)]
    return [name for name in names if len(names) == 1 or name not in _FOLLOWS]


def _settings(configuration: Configuration) -> dict[str, Any]:
    own = {"backend": configuration.backend, "launcher": configuration.launcher}
    return {**own, **dict(configuration.params)}


def _name_sides(a: Configuration, b: Configuration, switched: Sequence[str] = ()) -> tuple[str, str]:
    differ = list(switched) or _different(a, b)
    return _words(a.workload, _settings(a), differ), _words(b.workload, _settings(b), differ)


def _words(workload: str, settings: Mapping[str, Any], names: Sequence[str]) -> str:
    if names == ["backend"]:
        return str(settings["backend"])
    known = parameters(workload) if workload in WORKLOADS else ()
    words = []
    for name in names:
        if name in settings:
            item, value = find(name, known), settings[name]
            text = item.format_value(value) if item else value
            words.append(str(value) if item is ENV else f"{name}={text}")
    return " ".join(words)
