"""Two runs compared by configuration: matched, side by side with a verdict, with further differences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hvlab.base.errors import UsageError, explain_unknown
from hvlab.results.configurations import Configuration, Repeats, gather
from hvlab.results.store import UNKNOWN, Record, Run
from hvlab.statistics import interval, verdict
from hvlab.statistics.interval import Interval
from hvlab.statistics.verdict import Pair, Verdict, compare_two_runs
from hvlab.workloads import WORKLOADS
from hvlab.workloads.command import COMMAND
from hvlab.workloads.metrics import METRICS


@dataclass(frozen=True)
class Measurements:
    """A run's configurations; ``stack`` holds, for each part, every version on its hosts."""

    run_id: str
    lab: str
    started_at: str
    stack: Mapping[str, tuple[str, ...]]
    configurations: Mapping[Configuration, Repeats]

    @property
    def hosts(self) -> set[str]:
        """Names of the hosts that took part."""
        return {host for configuration in self.configurations for host in configuration.hosts}

    @property
    def imported(self) -> bool:
        """All figures are from another program's output."""
        return {one.launcher for one in self.configurations} == {UNKNOWN}


def measurements(run: Run, records: Sequence[Record]) -> Measurements:
    """Return the figures of a run."""
    return Measurements(run.run_id, run.lab, run.started_at, _stack(records), add_failures(gather(records)))


def add_failures(configurations: Mapping[Configuration, Repeats]) -> dict[Configuration, Repeats]:
    """Return the configurations; a repeat that failed before any size counts at every size of its case."""
    sized: dict[Configuration, list[Configuration]] = {}
    for configuration in configurations:
        if configuration.get("size_bytes") is not None:
            sized.setdefault(without_size(configuration), []).append(configuration)
    counted = {one: repeats for one, repeats in configurations.items() if one not in sized}
    for case, members in sized.items():
        failed = configurations.get(case, Repeats())
        for configuration in members:
            repeats = configurations[configuration]
            counted[configuration] = dataclasses.replace(
                repeats,
                errors={**failed.errors, **repeats.errors},
                skipped={**failed.skipped, **repeats.skipped},
            )
    return counted


def without_size(configuration: Configuration) -> Configuration:
    """Return the configuration of a case as a whole, without a size."""
    return dataclasses.replace(configuration, params=configuration.without("size_bytes"))


def primary(configuration: Configuration, *measured: Repeats) -> str:
    """Return the default metric; a command's throughput, if all ``measured`` have it, precedes its time."""
    command = configuration.workload == COMMAND.name
    if command and measured and all(each.of("throughput") for each in measured):
        return "throughput"
    return WORKLOADS[configuration.workload].primary if configuration.workload in WORKLOADS else "time"


def _stack(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    versions: dict[str, set[str]] = {}
    for record in records:
        for part, value in record.stack.items():
            # By host where hosts differ.
            each = value.values() if isinstance(value, Mapping) else [value]
            versions.setdefault(part, set()).update(map(str, each))
    return {part: tuple(sorted(values)) for part, values in versions.items()}


@dataclass(frozen=True)
class Match:
    """A configuration with its repeats in both runs; ``configuration`` is A's."""

    configuration: Configuration
    a: Repeats
    b: Repeats


@dataclass(frozen=True)
class Matches:
    """The configurations of two runs: common ones, and those of only one."""

    both: tuple[Match, ...]
    only_a: tuple[Configuration, ...]
    only_b: tuple[Configuration, ...]


def match(a: Measurements, b: Measurements) -> Matches:
    """Return the configurations of two runs side by side.

    All that was requested must be equal. Between runs without a common host, the number of hosts counts
    instead of names. If a run was imported, the launcher and parameters that only one run records are
    ignored. A case that failed before its first size matches every size of the other run.
    """
    left, right = _index_by_match(a, b), _index_by_match(b, a)
    candidates = [
        (configuration, right.get(key) or right.get(without_size(key))) for key, configuration in left.items()
    ]
    pairs = [(configuration, other) for configuration, other in candidates if other is not None]
    pairs += [
        (left[without_size(key)], configuration)
        for key, configuration in right.items()
        if key not in left and without_size(key) in left
    ]
    used_a, used_b = {one for one, _ in pairs}, {other for _, other in pairs}
    return Matches(
        tuple(
            Match(_with_size(one, other), a.configurations[one], b.configurations[other])
            for one, other in pairs
        ),
        tuple(configuration for configuration in a.configurations if configuration not in used_a),
        tuple(configuration for configuration in b.configurations if configuration not in used_b),
    )


def differences(a: Measurements, b: Measurements) -> list[str]:
    """Return all differences between two runs besides the figures, a phrase each."""
    texts = [f"lab: {a.lab} in A, {b.lab} in B"] if a.lab != b.lab else []
    if not a.hosts & b.hosts:
        names = [", ".join(sorted(side.hosts)) for side in (a, b)]
        texts.append(f"hosts: {names[0]} in A, {names[1]} in B; matched by the number of hosts")
    if imported := " and ".join(name for name, run in (("A", a), ("B", b)) if run.imported):
        texts.append(f"imported: {imported}; matched by backend, size and the parameters that both record")
    return [*texts, *of_stacks(a, b), *_list_disjoint_parameters(a, b)]


def _index_by_match(run: Measurements, other: Measurements) -> dict[Configuration, Configuration]:
    """Return the configurations by the parts that must match; the first of several."""
    params = [_values(side).keys() for side in (run, other)]
    keyed: dict[Configuration, Configuration] = {}
    for configuration in run.configurations:
        key = configuration
        if not run.hosts & other.hosts:
            key = dataclasses.replace(key, hosts=("",) * len(configuration.hosts))
        if run.imported or other.imported:
            alone = (name for workload, name in params[0] ^ params[1] if workload == key.workload)
            key = dataclasses.replace(key, launcher="", params=key.without(*alone))
        keyed.setdefault(key, configuration)
    return keyed


def _with_size(a: Configuration, b: Configuration) -> Configuration:
    """Return A's configuration, with B's size if only B has one."""
    size = b.get("size_bytes")
    if size is None or a.get("size_bytes") is not None:
        return a
    return dataclasses.replace(a, params=tuple(sorted((*a.params, ("size_bytes", size)))))


def of_stacks(a: Measurements, b: Measurements) -> Iterator[str]:
    """Yield each component whose version differs between A and B, a phrase each."""
    for part in sorted(a.stack.keys() | b.stack.keys()):
        one, other = (" and ".join(side.stack.get(part, ())) or "none" for side in (a, b))
        if one != other:
            yield f"{part}: {one} in A, {other} in B"


def _list_disjoint_parameters(a: Measurements, b: Measurements) -> Iterator[str]:
    """Yield the parameters for which A and B share no value, so that nothing matches."""
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


@dataclass(frozen=True)
class Side:
    """One run's share of a configuration: ``ok`` of ``tried`` repeats succeeded; their median, its interval.

    ``failed`` holds the errors of the others; skipped repeats count in ``tried`` only.
    """

    ok: int
    tried: int
    median: Interval | None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComparisonRow:
    """A configuration measured by both runs; the verdict compares A with B in ``metric``."""

    configuration: Configuration
    metric: str
    a: Side
    b: Side
    verdict: Verdict

    @property
    def unit(self) -> str:
        """Unit of the metric."""
        return self.configuration.unit(self.metric)


@dataclass(frozen=True)
class Comparison:
    """Two runs compared; ``without`` are configurations of both that lack the metric."""

    a: Measurements
    b: Measurements
    rows: tuple[ComparisonRow, ...]
    only_a: tuple[Configuration, ...]
    only_b: tuple[Configuration, ...]
    without: tuple[Configuration, ...]
    differences: tuple[str, ...]

    def count(self, kind: verdict.Kind) -> int:
        """Number of rows with that verdict."""
        return sum(row.verdict.kind == kind for row in self.rows)


def compare(
    a: Measurements, b: Measurements, *, metric: str | None = None, matters: float = verdict.MATTERS
) -> Comparison:
    """Compare run A with run B; all configurations are one family of tests.

    Repeats share the conditions of their run's time, so that runs may differ merely by it: a difference is
    never "faster" or "slower", but "differs". ``metric``: by default the step time of trainings, the time of
    collectives. Raises UsageError for a metric without a better direction.
    """
    if metric is not None:
        check(metric)
    matches = match(a, b)
    compared = [(pair, metric or primary(pair.configuration, pair.a, pair.b)) for pair in matches.both]
    comparable = [(pair, name) for pair, name in compared if _is_measured(pair, name)]
    pairs = [
        pair_of(
            one.a,
            one.b,
            name,
            (("A", without_size(one.configuration)), ("B", without_size(one.configuration))),
        )
        for one, name in comparable
    ]
    verdicts = compare_two_runs(pairs, matters=matters)
    return Comparison(
        a,
        b,
        tuple(
            ComparisonRow(pair.configuration, name, side_of(pair.a, name), side_of(pair.b, name), judged)
            for (pair, name), judged in zip(comparable, verdicts, strict=True)
        ),
        matches.only_a,
        matches.only_b,
        tuple(pair.configuration for pair, name in compared if not _is_measured(pair, name)),
        tuple(differences(a, b)),
    )


def pair_of(a: Repeats, b: Repeats, metric: str, launches: tuple[Hashable, Hashable]) -> Pair:
    """Return two sides to compare in a metric; ``launches`` identifies the launch of each."""
    return Pair(figures(a, metric), figures(b, metric), METRICS[metric].better or "low", launches)


def check(metric: str) -> None:
    """Raise UsageError for a metric without a better direction."""
    useful = [name for name, known in METRICS.items() if known.better]
    if metric not in METRICS:
        raise explain_unknown("metric", metric, useful)
    if metric not in useful:
        problem = f"neither more nor less of {metric} is better"
        raise UsageError(problem, remedy=f"these can be compared: {', '.join(useful)}")


def _is_measured(pair: Match, metric: str) -> bool:
    sides = (pair.a, pair.b)
    return any(figures(side, metric) for side in sides) or not any(side.ok for side in sides)


def figures(repeats: Repeats, metric: str) -> dict[int, float]:
    """Return the figure of each repeat that has a finite one: a loss may become infinite."""
    values = repeats.values.get(metric, {})
    return {repeat: values[repeat] for repeat in sorted(values) if math.isfinite(values[repeat])}


def side_of(repeats: Repeats, metric: str) -> Side:
    """Return the number of repeats with a metric, and its median."""
    values = tuple(figures(repeats, metric).values())
    failed = tuple(dict.fromkeys(repeats.errors.values()))
    return Side(len(values), repeats.tried, interval.median(values) if values else None, failed)
