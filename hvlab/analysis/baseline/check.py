"""A run checked against a baseline: what became slower, what fails now, what is undecided. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hvlab.analysis.baseline.merging import merged
from hvlab.analysis.compare import Comparison, ComparisonRow, Measurements, Side, compare
from hvlab.analysis.compare.names import case_names
from hvlab.analysis.compare.rows import why
from hvlab.base.errors import CheckError
from hvlab.results.configurations import Configuration
from hvlab.statistics import ratio, verdict

Status = Literal["regression", "undecided", "better", "fine", "new"]
# Launches that mostly succeeded before and mostly fail now are a regression, though some failed before.
_SUCCEEDED, _SUCCEEDS = 0.9, 0.5


@dataclass(frozen=True)
class Result:
    """What became of a configuration; ``row`` is None where only one side has it.

    A regression is slower, or fails now and did not before: always succeeded before, or in more than 90 % of
    launches and now in fewer than half, or succeeded before and never does now. Undecided means too few
    repeats, or too few runs in the baseline. Fine is the rest: no significant difference.
    """

    status: Status
    configuration: Configuration
    name: str
    reason: str
    row: ComparisonRow | None = None


@dataclass(frozen=True)
class BaselineCheck:
    """A run checked against a baseline: A of the comparison is the run, B the last run of the baseline.

    The rows' B holds the repeats of all runs of the baseline, and the median of their medians.
    """

    comparison: Comparison
    runs: tuple[Measurements, ...]
    results: tuple[Result, ...]

    def of(self, status: Status) -> list[Result]:
        """Return the results of one status."""
        return [result for result in self.results if result.status == status]

    def outcome(self, *, strict: bool = False) -> str:
        """Return ``passed``, ``failed`` or ``undecided``: no regression, but some figures are open."""
        return (
            "failed" if not self.passed(strict=strict) else "undecided" if self.of("undecided") else "passed"
        )

    def passed(self, *, strict: bool = False) -> bool:
        """Return whether there is no regression; ``strict``: and nothing undecided."""
        return not self.of("regression") and not (strict and self.of("undecided"))


def check(
    run: Measurements,
    baseline: Sequence[Measurements],
    *,
    metric: str | None = None,
    matters: float = verdict.MATTERS,
) -> BaselineCheck:
    """Return the result for each configuration. Raises CheckError where run and baseline share none."""
    each = [compare(run, kept, metric=metric, matters=matters) for kept in baseline]
    comparison = merged(each, matters=matters)
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
    return f"{ratio.words(row.verdict.ratio)} than the baseline, {reason}" if row.verdict.ratio else reason


def _status(row: ComparisonRow) -> Status:
    if row.verdict.kind == "slower" or _fails(row.a, row.b):
        return "regression"
    if row.verdict.kind == "too_few":
        return "undecided"
    return "better" if row.verdict.kind == "faster" else "fine"


def _fails(now: Side, before: Side) -> bool:
    """Return whether launches fail now that succeeded before."""
    if not now.failed or not before.ok:
        return False
    mostly = now.ok < _SUCCEEDS * now.tried and before.ok > _SUCCEEDED * before.tried
    return not before.failed or not now.ok or mostly
