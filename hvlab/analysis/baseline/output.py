"""A check as a table, JSON and JUnit. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from junitparser import TestCase

from hvlab.analysis.baseline.check import BaselineCheck, Result, Status
from hvlab.analysis.compare import rows
from hvlab.results import tables
from hvlab.results.formats import junit
from hvlab.statistics.between import FEWEST

COLUMNS = (
    *("status", "workload", "backend", "hosts", "slots", "case"),
    *("metric", "run", "baseline", "ratio", "why"),
)
_WORDS: Mapping[Status, str] = {
    "regression": "regressions",
    "undecided": "cannot be judged",
    "better": "better",
    "fine": "fine",
    "new": "new",
}


def summary(checked: BaselineCheck, *, strict: bool) -> str:
    """Return the outcome in a line."""
    counts = ", ".join(f"{len(own)} {word}" for status, word in _WORDS.items() if (own := checked.of(status)))
    few = len(checked.runs) < FEWEST
    hint = f"; a verdict needs {FEWEST} runs in the baseline, it has {len(checked.runs)}" if few else ""
    return f"{checked.outcome(strict=strict)}: {counts}{hint}"


def render(checked: BaselineCheck, output_format: str, *, strict: bool) -> str:
    """Return a check as table, json or junit, without a newline at the end."""
    if output_format == "json":
        return json.dumps(as_json(checked, strict=strict), indent=1)
    if output_format == "junit":
        return as_junit(checked, strict=strict).rstrip("\n")
    return tables.render([_row(result) for result in checked.results], COLUMNS, "table")


def as_json(checked: BaselineCheck, *, strict: bool) -> dict[str, Any]:
    """Return a complete check, JSON-ready."""
    return {
        "outcome": checked.outcome(strict=strict),
        "passed": checked.passed(strict=strict),
        "strict": strict,
        "run": rows.run_json(checked.comparison.a),
        "baseline": rows.run_json(checked.comparison.b),
        "baseline_runs": [run.run_id for run in checked.runs],
        "counts": {status: len(checked.of(status)) for status in _WORDS},
        "results": [
            {
                "status": result.status,
                "reason": result.reason,
                **(
                    rows.row_json(result.row) if result.row else rows.configuration_json(result.configuration)
                ),
            }
            for result in checked.results
        ],
        "differences": list(checked.comparison.differences),
        "note": rows.NOTE,
    }


def as_junit(checked: BaselineCheck, *, strict: bool) -> str:
    """Return a check as JUnit XML; ``strict`` makes undecided results fail, else they are skipped."""
    run, baseline = checked.comparison.a, " ".join(kept.run_id for kept in checked.runs)
    suite = junit.suite(
        "hvlab baseline",
        [_test(result, strict=strict) for result in checked.results],
        timestamp=run.started_at,
        properties={"run": run.run_id, "baseline": baseline, "lab": run.lab},
    )
    return junit.document("hvlab baseline check", [suite])


def _test(result: Result, *, strict: bool) -> TestCase:
    configuration = result.configuration
    failed = result.status == "regression" or (strict and result.status == "undecided")
    message = f"{result.status}: {result.reason}"
    return junit.case(
        " ".join(part for part in (f"{len(configuration.hosts)}x{configuration.slots}", result.name) if part),
        f"{configuration.workload}.{configuration.backend}",
        failure=message if failed else None,
        skipped=message if not failed and result.status in ("undecided", "new") else None,
        output=message if not failed else None,
    )


def _row(result: Result) -> dict[str, Any]:
    row = result.row
    columns = {
        "status": result.status,
        **rows.place(result.configuration, {result.configuration: result.name}),
        "why": result.reason,
    }
    if row is None:
        return columns
    return columns | {
        "metric": f"{row.metric} {row.unit}",
        "run": row.a.median.mid if row.a.median else None,
        "baseline": row.b.median.mid if row.b.median else None,
        "ratio": f"{row.verdict.ratio.mid:.3f}" if row.verdict.ratio else None,
    }
