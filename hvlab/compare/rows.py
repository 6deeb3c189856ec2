"""A comparison as rows and sentences to read, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hvlab.compare.comparison import Comparison, Row, Side
from hvlab.compare.measurements import Measurements
from hvlab.compare.names import case_names, place
from hvlab.results.configurations import Cell
from hvlab.statistics.interval import Interval
from hvlab.statistics.verdict import Kind
from hvlab.workloads.metrics import METRICS

COLUMNS = (
    "workload",
    "backend",
    "hosts",
    "slots",
    "case",
    "metric",
    "ok A",
    "A",
    "ok B",
    "B",
    "A/B",
    "95 %",
    "A is",
    "why",
)
NOTE = (
    "The repeats of one run share the state of their hour: the network, the heat, the neighbours. "
    "A difference between two runs may be that of their hours; to compare two settings, measure both in one "
    "run."
)
_KINDS: Mapping[Kind, str] = {
    "faster": "A is faster or better in",
    "slower": "A is slower or worse in",
    "same": "the same in",
    "unclear": "unclear in",
    "too_few": "too few runs in",
}
_TIMES = ("s", "us")


def table(found: Comparison) -> list[dict[str, Any]]:
    """Return a row for each cell, those of only one run last; see COLUMNS."""
    one_sided = (*((cell, "A") for cell in found.only_a), *((cell, "B") for cell in found.only_b))
    names = case_names([*(row.cell for row in found.rows), *(cell for cell, _ in one_sided)])
    rows = [
        {
            **place(row.cell, names),
            "metric": f"{row.metric} {row.unit}",
            "ok A": _of(row.a),
            "A": row.a.median.mid if row.a.median else None,
            "ok B": _of(row.b),
            "B": row.b.median.mid if row.b.median else None,
            **_ratio(row.verdict.ratio),
            "A is": word(row),
            "why": why(row),
        }
        for row in found.rows
    ]
    rows += [{**place(cell, names), "A is": f"only in {side}"} for cell, side in one_sided]
    return rows


def notes(found: Comparison) -> list[str]:
    """Return what has to be known beside the rows, a sentence each."""
    counts = [f"{told} {found.count(kind)}" for kind, told in _KINDS.items() if found.count(kind)]
    said = [f"{len(found.rows)} cells: {', '.join(counts)}." if counts else "No cell is in both."]
    for side, cells in (("A", found.only_a), ("B", found.only_b)):
        if cells:
            said.append(f"{len(cells)} cells are only in {side}.")
    if found.without:
        said.append(f"{len(found.without)} cells of both have no such metric.")
    return [*said, *(f"Differs: {difference}." for difference in found.differences), NOTE]


def as_json(found: Comparison) -> dict[str, Any]:
    """Return all of a comparison, JSON-ready."""
    return {
        "a": run_json(found.a),
        "b": run_json(found.b),
        "differences": list(found.differences),
        "rows": [row_json(row) for row in found.rows],
        "only_a": [cell_json(cell) for cell in found.only_a],
        "only_b": [cell_json(cell) for cell in found.only_b],
        "without_metric": [cell_json(cell) for cell in found.without],
        "note": NOTE,
    }


def row_json(row: Row) -> dict[str, Any]:
    """Return one row, JSON-ready."""
    figures = {name: value for name, value in asdict(row).items() if name != "cell"}
    return {**cell_json(row.cell), "unit": row.unit, **figures}


def cell_json(cell: Cell) -> dict[str, Any]:
    """Return a cell, its parameters by name."""
    return {**asdict(cell), "params": dict(cell.params)}


def run_json(run: Measurements) -> dict[str, Any]:
    """Return what tells a run apart from others."""
    stack = {part: list(values) for part, values in run.stack.items()}
    return {"run_id": run.run_id, "lab": run.lab, "started_at": run.started_at, "stack": stack}


def word(row: Row) -> str:
    """Return how A stands to B in one word: figures that are no times are better or worse."""
    if METRICS[row.metric].unit in _TIMES:
        return row.verdict.kind.replace("_", " ")
    return {"faster": "better", "slower": "worse", "too_few": "too few"}.get(
        row.verdict.kind, row.verdict.kind
    )


def why(row: Row, *, a: str = "A", b: str = "B") -> str:
    """Return what the verdict rests on, and what failed; ``a`` and ``b`` name the runs."""
    failed = {name: side for name, side in ((a, row.a), (b, row.b)) if side.failed}
    if len(failed) > 1 and row.a == row.b:
        failed = {"both": row.a}
    told = [
        f"{side.tried - side.ok} of {side.tried} failed in {name}: {'; '.join(side.failed)}"
        for name, side in failed.items()
    ]
    return "; ".join((row.verdict.reason, *told))


def _of(side: Side) -> str:
    return f"{side.ok} of {side.tried}"


def _ratio(found: Interval | None) -> dict[str, str]:
    if found is None:
        return {}
    return {"A/B": f"{found.mid:.3f}", "95 %": f"{found.low:.3f}..{found.high:.3f}"}
