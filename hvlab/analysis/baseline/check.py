"""A run checked against a baseline: regressions, new failures, undecided figures. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from hvlab.analysis.compare import Comparison, ComparisonRow, Measurements, Side, compare
from hvlab.analysis.compare.comparison import without_size
from hvlab.analysis.compare.rows import case_names, why
from hvlab.base.errors import CheckError
from hvlab.results.configurations import Configuration
from hvlab.statistics import interval, verdict
from hvlab.statistics.between import FEWEST, RunMedians, compare_to_runs
from hvlab.statistics.verdict import Verdict
from hvlab.workloads.metrics import METRICS

Status = Literal["regression", "undecided", "better", "fine", "new"]
# Mostly succeeded before, and mostly fails now: a regression despite earlier failures.
_SUCCEEDED, _SUCCEEDS = 0.9, 0.5


@dataclass(frozen=True)
class Result:
    """The result for a configuration; ``row`` is None if only one side has it.

    A regression is slower, or fails now: it always succeeded before, or did in more than 90 % of launches and
    now in fewer than half, or succeeded before and never does now. Undecided: too few repeats or baseline
    runs.
    """

    status: Status
    configuration: Configuration
    name: str
    reason: str
    row: ComparisonRow | None = None


@dataclass(frozen=True)
class BaselineCheck:
    """A run (A of the comparison) checked against a baseline (B: its last run).

    B of the rows holds the repeats of all baseline runs, and the median of their medians.
    """

    comparison: Comparison
    runs: tuple[Measurements, ...]
    results: tuple[Result, ...]

    def of(self, status: Status) -> list[Result]:
        """Results of one status."""
        return [result for result in self.results if result.status == status]

    def outcome(self, *, strict: bool = False) -> str:
        """Return ``passed``, ``failed`` or ``undecided``: no regression, but open figures."""
        if not self.passed(strict=strict):
            return "failed"
        return "undecided" if self.of("undecided") else "passed"

    def passed(self, *, strict: bool = False) -> bool:
        """No regression and, if ``strict``, nothing undecided."""
        return not self.of("regression") and not (strict and self.of("undecided"))


def check(
    run: Measurements,
    baseline: Sequence[Measurements],
    *,
    metric: str | None = None,
    matters: float = verdict.MATTERS,
) -> BaselineCheck:
    """Return the result for each configuration. Raises CheckError if run and baseline share none."""
    each = [compare(run, kept, metric=metric, matters=matters) for kept in baseline]
    comparison = merge(each, matters=matters)
    if not comparison.rows:
        raise CheckError(
            f"run {run.run_id} and the baseline of run {', '.join(kept.run_id for kept in baseline)} "
            "have no figure in common",
            remedy="measure the same cases, or set another baseline: `hvlab baseline set`",
        )
    names = case_names(
        [*(row.configuration for row in comparison.rows), *comparison.only_a, *comparison.only_b]
    )
    results = [
        Result(_status(row), row.configuration, names[row.configuration], _why(row), row)
        for row in comparison.rows
    ]
    results += [
        Result("undecided", configuration, names[configuration], "in the baseline, but not in the run")
        for configuration in comparison.only_b
    ]
    results += [
        Result("new", configuration, names[configuration], "not in the baseline")
        for configuration in comparison.only_a
    ]
    return BaselineCheck(comparison, tuple(baseline), tuple(results))


def _why(row: ComparisonRow) -> str:
    reason = why(row, a="the run", b="the baseline")
    return f"{interval.words(row.verdict.ratio)} than the baseline, {reason}" if row.verdict.ratio else reason


def _status(row: ComparisonRow) -> Status:
    if row.verdict.kind == "slower" or _is_failure(row.a, row.b):
        return "regression"
    if row.verdict.kind == "too_few":
        return "undecided"
    return "better" if row.verdict.kind == "faster" else "fine"


def _is_failure(now: Side, before: Side) -> bool:
    if not now.failed or not before.ok:
        return False
    mostly = now.ok < _SUCCEEDS * now.tried and before.ok > _SUCCEEDED * before.tried
    return not before.failed or not now.ok or mostly


T = TypeVar("T")
# The rows of one configuration, by the number of the run in the baseline.
Rows = Mapping[int, ComparisonRow]


def merge(comparisons: Sequence[Comparison], *, matters: float) -> Comparison:
    """Return the comparisons of one run (A) with each baseline run (B) as one.

    Verdicts are those of :func:`hvlab.statistics.between.compare_to_runs`. A configuration with fewer repeats
    in the run than in any baseline run has none: its median varies more.
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
    """Return why a configuration cannot have a verdict; empty if it can."""
    ok, usual = next(iter(rows.values())).a.ok, [row.b.ok for row in rows.values() if row.b.ok]
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
    return RunMedians(first.a.median.mid, medians, better, without_size(first.configuration))


def _row(rows: Rows, verdict: Verdict | None) -> ComparisonRow:
    first = next(iter(rows.values()))
    judged = verdict or Verdict("too_few", None, _undecidable(rows), FEWEST)
    if judged.ratio is None and len(rows) == 1:  # one run has only its repeats' interval
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
