"""A run held to a baseline: what became slower, what fails now, and what nobody can tell. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hvlab.compare import Comparison, Measurements, Row, compare
from hvlab.compare.names import case_names
from hvlab.compare.rows import why
from hvlab.errors import CheckError
from hvlab.results.configurations import Cell
from hvlab.statistics import ratio, verdict

Status = Literal["regression", "undecided", "better", "fine", "new"]


@dataclass(frozen=True)
class Result:
    """What became of a cell; ``row`` is None where only one side has it.

    A regression is slower, or went well every time before and fails now. Undecided is what was measured too
    few times, or not at all. Fine is the rest: no difference was shown.
    """

    status: Status
    cell: Cell
    name: str
    reason: str
    row: Row | None = None


@dataclass(frozen=True)
class Check:
    """A run held to a baseline: A of the comparison is the run, B the baseline."""

    comparison: Comparison
    results: tuple[Result, ...]

    def of(self, status: Status) -> list[Result]:
        """Return the results of one status."""
        return [result for result in self.results if result.status == status]

    def passed(self, *, strict: bool = False) -> bool:
        """Return whether there is no regression; ``strict``: and nothing undecided."""
        return not self.of("regression") and not (strict and self.of("undecided"))


def check(
    run: Measurements,
    baseline: Measurements,
    *,
    metric: str | None = None,
    matters: float = verdict.MATTERS,
) -> Check:
    """Return what became of each cell since the baseline. Raises CheckError where they share none."""
    found = compare(run, baseline, metric=metric, matters=matters)
    if not found.rows:
        raise CheckError(
            f"run {run.run_id} and the baseline of run {baseline.run_id} have no figure in common",
            remedy="measure the same cases, or set another baseline: `hvlab baseline set`",
        )
    names = case_names([*(row.cell for row in found.rows), *found.only_a, *found.only_b])
    results = [Result(_status(row), row.cell, names[row.cell], _why(row), row) for row in found.rows]
    results += [
        Result("undecided", cell, names[cell], "the baseline has it, the run has not")
        for cell in found.only_b
    ]
    results += [Result("new", cell, names[cell], "the baseline does not have it") for cell in found.only_a]
    return Check(found, tuple(results))


def _why(row: Row) -> str:
    told = why(row, a="the run", b="the baseline")
    return f"{ratio.words(row.verdict.ratio)} than the baseline, {told}" if row.verdict.ratio else told


def _status(row: Row) -> Status:
    if row.a.failed and row.b.ok and not row.b.failed:
        return "regression"
    if row.verdict.kind == "slower" or (row.a.failed and row.b.ok and not row.a.ok):
        return "regression"
    if row.verdict.kind == "too_few":
        return "undecided"
    return "better" if row.verdict.kind == "faster" else "fine"
