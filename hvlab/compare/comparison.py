"""Two runs compared cell by cell, with a verdict only where the repeats carry it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hvlab.compare.matching import Match, differences, match
from hvlab.compare.measurements import Measurements, primary
from hvlab.errors import UsageError, unknown
from hvlab.results.configurations import Cell, Measured
from hvlab.statistics import interval, verdict
from hvlab.statistics.interval import Interval
from hvlab.statistics.verdict import Pair, Verdict
from hvlab.workloads.metrics import METRICS


@dataclass(frozen=True)
class Side:
    """What one run has of a cell: ``ok`` of ``tried`` repeats went well; their median with its interval.

    ``failed`` holds what the others told; repeats that were skipped are in ``tried`` only.
    """

    ok: int
    tried: int
    median: Interval | None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A cell measured by both runs; the verdict tells how A stands to B, in ``metric``."""

    cell: Cell
    metric: str
    a: Side
    b: Side
    verdict: Verdict

    @property
    def unit(self) -> str:
        """Return the metric's unit."""
        return METRICS[self.metric].unit


@dataclass(frozen=True)
class Comparison:
    """Two runs compared; ``without`` are cells of both that have no figure of the metric asked for."""

    a: Measurements
    b: Measurements
    rows: tuple[Row, ...]
    only_a: tuple[Cell, ...]
    only_b: tuple[Cell, ...]
    without: tuple[Cell, ...]
    differences: tuple[str, ...]

    def count(self, kind: verdict.Kind) -> int:
        """Return how many rows have that verdict."""
        return sum(row.verdict.kind == kind for row in self.rows)


def compare(
    a: Measurements,
    b: Measurements,
    *,
    metric: str | None = None,
    matters: float = verdict.MATTERS,
    alarms: float = verdict.ALARMS,
) -> Comparison:
    """Return how run A stands to run B, all its cells being one family of verdicts.

    Compared is ``metric``, by default the step time of trainings and the time of collectives. Raises
    UsageError where neither more nor less of a metric is better.
    """
    if metric is not None:
        _check(metric)
    matches = match(a, b)
    compared = [(found, metric or primary(found.cell)) for found in matches.both]
    kept = [(found, name) for found, name in compared if _measured(found, name)]
    verdicts = verdict.compare_all(
        [
            Pair(_figures(found.a, name), _figures(found.b, name), METRICS[name].better or "low")
            for found, name in kept
        ],
        matters=matters,
        alarms=alarms,
    )
    return Comparison(
        a,
        b,
        tuple(
            Row(found.cell, name, _side(found.a, name), _side(found.b, name), told)
            for (found, name), told in zip(kept, verdicts, strict=True)
        ),
        matches.only_a,
        matches.only_b,
        tuple(found.cell for found, name in compared if not _measured(found, name)),
        tuple(differences(a, b)),
    )


def _check(metric: str) -> None:
    useful = [name for name, known in METRICS.items() if known.better]
    if metric not in METRICS:
        raise unknown("metric", metric, useful)
    if metric not in useful:
        seen = f"neither more nor less of {metric} is better"
        raise UsageError(seen, remedy=f"these can be compared: {', '.join(useful)}")


def _measured(found: Match, metric: str) -> bool:
    """Return whether a side has the metric, or failed before it could."""
    sides = (found.a, found.b)
    return any(_figures(side, metric) for side in sides) or not any(side.ok for side in sides)


def _figures(measured: Measured, metric: str) -> dict[int, float]:
    """Return the figure of each repeat that has one: a loss may have become infinite."""
    found = measured.values.get(metric, {})
    return {repeat: found[repeat] for repeat in sorted(found) if math.isfinite(found[repeat])}


def _side(measured: Measured, metric: str) -> Side:
    values = tuple(_figures(measured, metric).values())
    failed = tuple(dict.fromkeys(measured.errors.values()))
    return Side(len(values), measured.repeats, interval.median(values) if values else None, failed)
