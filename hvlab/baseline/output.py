"""A check as a table, JSON and JUnit. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hvlab.baseline.check import Check, Result, Status
from hvlab.compare import names, rows
from hvlab.formats import junit
from hvlab.results import tables

COLUMNS = (
    "status",
    "workload",
    "backend",
    "hosts",
    "slots",
    "case",
    "metric",
    "run",
    "baseline",
    "ratio",
    "why",
)
_WORDS: Mapping[Status, str] = {
    "regression": "regressions",
    "undecided": "undecided",
    "better": "better",
    "fine": "fine",
    "new": "new",
}


def summary(found: Check, *, strict: bool) -> str:
    """Return the outcome in a line."""
    counts = ", ".join(
        f"{len(found.of(status))} {told}" for status, told in _WORDS.items() if found.of(status)
    )
    outcome = "passed" if found.passed(strict=strict) else "failed"
    few = sum(result.row is not None for result in found.of("undecided"))
    needed = max((result.row.verdict.needed for result in found.of("undecided") if result.row), default=0)
    hint = f"; {few} cells need {needed} repeats for a verdict" if few else ""
    return f"{outcome}: {counts}{hint}"


def render(found: Check, output_format: str, *, strict: bool) -> str:
    """Return a check as table, json or junit, without a newline at the end."""
    if output_format == "json":
        return json.dumps(as_json(found, strict=strict), indent=1)
    if output_format == "junit":
        return as_junit(found, strict=strict).rstrip("\n")
    return tables.render([_row(result) for result in found.results], COLUMNS, "table")


def as_json(found: Check, *, strict: bool) -> dict[str, Any]:
    """Return all of a check, JSON-ready."""
    return {
        "passed": found.passed(strict=strict),
        "strict": strict,
        "run": rows.run_json(found.comparison.a),
        "baseline": rows.run_json(found.comparison.b),
        "counts": {status: len(found.of(status)) for status in _WORDS},
        "results": [
            {
                "status": result.status,
                "reason": result.reason,
                **(rows.row_json(result.row) if result.row else rows.cell_json(result.cell)),
            }
            for result in found.results
        ],
        "differences": list(found.comparison.differences),
        "note": rows.NOTE,
    }


def as_junit(found: Check, *, strict: bool) -> str:
    """Return a check as JUnit XML: a regression is a failure, what is undecided or new is skipped.

    With ``strict``, what is undecided is a failure too.
    """
    run, baseline = found.comparison.a, found.comparison.b
    suite = junit.Suite(
        "hvlab baseline",
        [_test(result, strict=strict) for result in found.results],
        run.started_at,
        {"run": run.run_id, "baseline": baseline.run_id, "lab": run.lab},
    )
    return junit.document("hvlab baseline check", [suite])


def _test(result: Result, *, strict: bool) -> junit.Test:
    cell = result.cell
    failed = result.status == "regression" or (strict and result.status == "undecided")
    told = f"{result.status}: {result.reason}"
    return junit.Test(
        " ".join(part for part in (f"{len(cell.hosts)}x{cell.slots}", result.name) if part),
        f"{cell.workload}.{cell.backend}",
        failure=told if failed else None,
        skipped=told if not failed and result.status in ("undecided", "new") else None,
        output=told if not failed else None,
    )


def _row(result: Result) -> dict[str, Any]:
    row = result.row
    found = {
        "status": result.status,
        **names.place(result.cell, {result.cell: result.name}),
        "why": result.reason,
    }
    if row is None:
        return found
    return found | {
        "metric": f"{row.metric} {row.unit}",
        "run": row.a.median.mid if row.a.median else None,
        "baseline": row.b.median.mid if row.b.median else None,
        "ratio": f"{row.verdict.ratio.mid:.3f}" if row.verdict.ratio else None,
    }
