"""The collectives: their parameters, and their JSON result -> figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvlab.statistics import interval
from hvlab.workloads import answered, samples
from hvlab.workloads.case import Case
from hvlab.workloads.metrics import TABLES
from hvlab.workloads.operations import OPERATIONS
from hvlab.workloads.outcome import Figure, Outcome, Workload, figure, open_outcome
from hvlab.workloads.parameters import from_table

_PROGRAM = "collective.py"
_COMMON = from_table(TABLES["collective"])


def parse(case: Case, ended: Mapping[str, Any], folder: Path) -> Outcome:
    """Return the figures of a case, or why it does not count."""
    outcome, result = open_outcome(case, ended, folder, answered.CollectiveResult)
    if outcome.error:
        return outcome
    expected, measured = list(case.params["sizes"]), [row["size_bytes"] for row in result["sizes"]]
    if expected != measured:
        return replace(outcome, error=f"asked for the sizes {expected}, measured {measured}")
    figures = tuple(figure for row in result["sizes"] for figure in _figures(case, row))
    return replace(outcome, figures=figures)


def _figures(case: Case, row: Mapping[str, Any]) -> Iterator[Figure]:
    size, timed = row["size_bytes"], samples.of_size(row)
    mean = statistics.fmean(timed.times)
    median = interval.median(timed.times)
    algbw = size / mean / 1e3
    values = {
        "time": mean,
        "time_median": median.mid,
        "time_low": median.low,
        "time_high": median.high,
        **timed.percentiles(),
        "time_min": min(timed.times),
        "time_max": max(timed.times),
        "algbw": algbw,
        "busbw": algbw * OPERATIONS[case.workload].busbw(case.world_size),
        "warmup": timed.warmup,
    }
    return (figure(metric, value, size_bytes=size) for metric, value in values.items())


COLLECTIVES = tuple(
    Workload(name, _PROGRAM, (*_COMMON, *operation.settings), parse, "time", collective=name)
    for name, operation in OPERATIONS.items()
    if operation.mpi
)
