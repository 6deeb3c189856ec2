"""Two runs compared configuration by configuration: figures side by side, with a verdict."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from hvlab.analysis.compare.matching import Match, Measurements, differences, match, primary, whole
from hvlab.base.errors import UsageError, unknown
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics import interval, verdict
from hvlab.statistics.interval import Interval
from hvlab.statistics.verdict import Pair, Verdict, compare_two_runs
from hvlab.workloads.metrics import METRICS


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
    a: Measurements,
    b: Measurements,
    *,
    metric: str | None = None,
    matters: float = verdict.MATTERS,
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
    comparable = [(pair, name) for pair, name in compared if _measured(pair, name)]
    pairs = [
        pair_of(one.a, one.b, name, (("A", whole(one.configuration)), ("B", whole(one.configuration))))
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
        tuple(pair.configuration for pair, name in compared if not _measured(pair, name)),
        tuple(differences(a, b)),
    )


def pair_of(a: Repeats, b: Repeats, metric: str, launches: tuple[Hashable, Hashable]) -> Pair:
    """Return two sides to compare in a metric; ``launches`` identifies the launch of each."""
    return Pair(figures(a, metric), figures(b, metric), METRICS[metric].better or "low", launches)


def check(metric: str) -> None:
    """Raise UsageError for a metric without a better direction."""
    useful = [name for name, known in METRICS.items() if known.better]
    if metric not in METRICS:
        raise unknown("metric", metric, useful)
    if metric not in useful:
        problem = f"neither more nor less of {metric} is better"
        raise UsageError(problem, remedy=f"these can be compared: {', '.join(useful)}")


def _measured(pair: Match, metric: str) -> bool:
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
