"""The iterations of a case, as its programs timed them: each one the mean over the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.statistics import distribution
from hvlab.workloads import answered

# As in the metrics: microseconds of a collective's iterations, seconds of a training's steps.
_US = 1e6


@dataclass(frozen=True)
class Iterations:
    """One launch's iterations of one size, or its steps, in the order of measurement.

    ``times`` are those after ``warmup`` iterations, in the unit of ``metric``: ``time`` (us) or ``step_time``
    (s). ``size_bytes`` is None for steps.
    """

    metric: str
    size_bytes: int | None
    warmup: int
    times: tuple[float, ...]

    def percentiles(self) -> dict[str, float]:
        """Return p95 and p99 by metric, if there are enough iterations."""
        ordered = sorted(self.times)
        values = {f"{self.metric}_{name}": distribution.percentile(ordered, name) for name in ("p95", "p99")}
        return {name: value for name, value in values.items() if value is not None}


def of_size(row: Mapping[str, Any]) -> Iterations:
    """Return the iterations of one size of a collective's result."""
    return _samples("time", row["size_bytes"], row["mean_s"], _US)


def of_steps(steps: Mapping[str, Any]) -> Iterations:
    """Return the steps of a training's result."""
    return _samples("step_time", None, steps["mean_s"], 1)


def read(folder: Path) -> tuple[Iterations, ...]:
    """Return all iterations in the files of a case, ``folder`` being its own."""
    try:
        return tuple(_iterate_all(answers.read(folder / "result.json", str(folder), answered.Sampled)))
    except (FileNotFoundError, AnswerError):
        return ()


def _iterate_all(result: Mapping[str, Any]) -> Iterator[Iterations]:
    yield from (of_size(row) for row in result.get("sizes") or () if row["mean_s"])
    if (result.get("steps") or {}).get("mean_s"):
        yield of_steps(result["steps"])


def _samples(metric: str, size: int | None, every: list[float], factor: float) -> Iterations:
    dropped = distribution.warmup_length(every)
    return Iterations(metric, size, dropped, tuple(seconds * factor for seconds in every[dropped:]))
