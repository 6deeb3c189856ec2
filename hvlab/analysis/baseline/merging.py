"""Comparisons of a run with each run of a baseline, as one comparison with verdicts on runs. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from hvlab.analysis.compare import Comparison, ComparisonRow, Side
from hvlab.analysis.compare.measurements import whole
from hvlab.results.configurations import Configuration
from hvlab.statistics import interval
from hvlab.statistics.between import FEWEST, RunMedians, compare_to_runs
from hvlab.statistics.verdict import Verdict
from hvlab.workloads.metrics import METRICS

T = TypeVar("T")
# The rows of one configuration, by the number of the run in the baseline.
Rows = Mapping[int, ComparisonRow]


def merged(comparisons: Sequence[Comparison], *, matters: float) -> Comparison:
    """Return the comparisons of one run, A, with each run of a baseline, B, as one.

    The verdicts are those of :func:`hvlab.statistics.between.compare_to_runs`. A configuration that has fewer
    repeats in the run than in any run of the baseline has none: its median varies more.
    """
    groups: dict[Configuration, dict[int, ComparisonRow]] = {}
    for number, comparison in enumerate(comparisons):
        for row in comparison.rows:
            groups.setdefault(row.configuration, {})[number] = row
    cells = {one: _cell(rows) for one, rows in groups.items() if not _undecidable(rows)}
    verdicts = dict(zip(cells, compare_to_runs(list(cells.values()), matters=matters), strict=True))
    return dataclasses.replace(
        comparisons[-1],
        rows=tuple(_row(rows, verdicts.get(one)) for one, rows in groups.items()),
        only_a=tuple(
            one for one in comparisons[0].only_a if all(one in other.only_a for other in comparisons)
        ),
        only_b=_unique(comparison.only_b for comparison in comparisons),
        without=tuple(one for one in _unique(each.without for each in comparisons) if one not in groups),
        differences=_unique(comparison.differences for comparison in comparisons),
    )


def _undecidable(rows: Rows) -> str:
    """Return why a configuration can have no verdict; empty where it can have one."""
    ok, usual = _run(rows).ok, [row.b.ok for row in rows.values() if row.b.ok]
    if not ok or not usual:
        return "no figure in " + ("the run" if usual else "the baseline" if ok else "both")
    if ok < min(usual):
        return f"{ok} {'repeats' if ok > 1 else 'repeat'} in the run, {min(usual)} in the baseline's"
    return ""


def _cell(rows: Rows) -> RunMedians:
    medians = {number: row.b.median.mid for number, row in rows.items() if row.b.median}
    first = next(iter(rows.values()))
    if first.a.median is None:
        raise ValueError("a configuration without a figure has no cell")
    better = METRICS[first.metric].better or "low"
    return RunMedians(first.a.median.mid, medians, better, whole(first.configuration))


def _run(rows: Rows) -> Side:
    """Return the run's own side, which is the same in every row."""
    return next(iter(rows.values())).a


def _row(rows: Rows, verdict: Verdict | None) -> ComparisonRow:
    first = next(iter(rows.values()))
    judged = verdict or Verdict("too_few", None, _undecidable(rows), FEWEST)
    if judged.ratio is None and len(rows) == 1:  # of one run, the repeats' interval is all there is
        judged = dataclasses.replace(judged, ratio=first.verdict.ratio)
    return dataclasses.replace(first, b=_together([row.b for row in rows.values()]), verdict=judged)


def _together(sides: Sequence[Side]) -> Side:
    """Return the sides of several runs as one; its median is that of the runs' medians."""
    if len(sides) == 1:
        return sides[0]
    medians = [side.median.mid for side in sides if side.median]
    return Side(
        sum(side.ok for side in sides),
        sum(side.tried for side in sides),
        interval.median(medians) if medians else None,
        _unique(side.failed for side in sides),
    )


def _unique(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(one for group in groups for one in group))
