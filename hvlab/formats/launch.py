"""The two shapes that every format is written from and read into: a run, and one launch. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hvlab import __version__
from hvlab.results.store import Record, Run

# What benchmark logs have a place for.
COLLECTIVES = ("allreduce", "broadcast", "allgather", "alltoall", "reducescatter")
# Before the line in which hvlab says what a tool's own format has no place for.
ORIGIN = "# hvlab: "


@dataclass(frozen=True)
class MeasuredRun:
    """A run and its records; ``seconds`` is how long each case took, where that is known."""

    run: Run
    records: Sequence[Record]
    seconds: Mapping[str, float] = field(default_factory=dict)

    def cases(self) -> dict[str, list[Record]]:
        """Return the records of each case, in the order they were measured."""
        cases: dict[str, list[Record]] = {}
        for record in self.records:
            cases.setdefault(record.case_id, []).append(record)
        return cases


@dataclass(frozen=True)
class LaunchRow:
    """One size of a launch, in place or out of place; ``in_place`` is None where nobody says which.

    ``size`` is in bytes as nccl-tests counts them; ``values`` are by metric, in the units of hvlab.metrics.
    """

    size: int
    values: Mapping[str, float] = field(default_factory=dict)
    in_place: bool | None = None
    dtype: str | None = None
    op: str | None = None
    root: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Launch:
    """What one launch of a program measured.

    ``ranks`` and ``slots`` are None, and ``hosts`` is empty, where they are not known. ``device`` is cpu,
    cuda or rocm; ``stack`` is the tool and the hardware; ``origin`` is what hvlab wrote into its own export.
    """

    workload: str | None
    rows: tuple[LaunchRow, ...]
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    slots: int | None = None
    iterations: int | None = None
    warmup: int | None = None
    device: str | None = None
    error: str | None = None
    stack: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """Return the sizes in bytes, each once, in their order."""
        return list(dict.fromkeys(row.size for row in self.rows))


def status(records: Sequence[Record]) -> str:
    """Return how a case ended: failed, skipped or ok; one failed record is enough."""
    statuses = {record.status for record in records}
    return next(status for status in ("failed", "skipped", "ok") if status in statuses or status == "ok")


def launches(records: Iterable[Record], *, pair: bool = True) -> list[Launch]:
    """Return the collectives among the records, launch by launch; skipped cases were never launched.

    With ``pair``, an in-place case and an out-of-place case that are otherwise alike make one launch.
    """
    varying = ("size_bytes", "sizes", *["in_place"] * pair)
    groups: dict[tuple[Any, ...], list[Record]] = {}
    twins: dict[tuple[Any, ...], list[str]] = {}
    for record in records:
        if record.workload not in COLLECTIVES or record.status == "skipped":
            continue
        params = {name: value for name, value in record.params.items() if name not in varying}
        place = (record.workload, record.backend, record.launcher, record.hosts, record.slots_per_host)
        key = (*place, record.repeat, sorted_items(params))
        cases = twins.setdefault((*key, record.params.get("in_place")), [])
        if record.case_id not in cases:
            cases.append(record.case_id)
        groups.setdefault((*key, cases.index(record.case_id)), []).append(record)
    return [_launch(group, varying) for group in groups.values()]


def _launch(group: Sequence[Record], varying: Iterable[str]) -> Launch:
    first = group[0]
    values: dict[tuple[int, bool | None], dict[str, float]] = {}
    errors = []
    for record in group:
        size = record.params.get("size_bytes")
        if record.metric is not None and record.value is not None and size is not None:
            values.setdefault((size, record.params.get("in_place")), {})[record.metric] = record.value
        elif record.status != "ok":
            errors.append(record.error or "failed, no reason was recorded")
    warmups = [row["warmup"] for row in values.values() if "warmup" in row]
    return Launch(
        workload=first.workload,
        rows=tuple(
            LaunchRow(size, row, in_place, first.params.get("dtype"), first.params.get("op"))
            for (size, in_place), row in values.items()
        ),
        ranks=len(first.hosts) * first.slots_per_host or first.world_size,
        hosts=first.hosts,
        slots=first.slots_per_host or None,
        iterations=first.params.get("iterations"),
        warmup=round(max(warmups)) if warmups else None,
        device=first.params.get("device"),
        error="; ".join(dict.fromkeys(errors)) or None,
        stack=first.stack,
        origin={
            "version": __version__,
            "run": first.run_id,
            "cases": list(dict.fromkeys(record.case_id for record in group)),
            "workload": first.workload,
            "backend": first.backend,
            "proved": first.proved_backend,
            "launcher": first.launcher,
            "hosts": list(first.hosts),
            "slots": first.slots_per_host,
            "repeat": first.repeat,
            "in_place": list(dict.fromkeys(record.params.get("in_place") for record in group)),
            "params": {name: value for name, value in first.params.items() if name not in varying},
        },
    )


def sorted_items(params: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return parameters as a key: any two that are equal give the same one."""
    return tuple(sorted((name, repr(value)) for name, value in params.items()))


def origin_line(origin: Mapping[str, Any]) -> str:
    """Return an origin as the line that stands in a log."""
    return ORIGIN + json.dumps(origin)


def read_origin(line: str) -> dict[str, Any]:
    """Return the origin of such a line; nothing where it is damaged."""
    try:
        origin = json.loads(line.removeprefix(ORIGIN))
    except (ValueError, RecursionError):
        return {}
    return origin if isinstance(origin, dict) else {}
