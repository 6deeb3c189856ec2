"""A collective over its sizes: what the tools for collectives write, and what is read from them. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvlab.results.store import Record

WORKLOADS = ("allreduce", "broadcast", "allgather", "alltoall", "reducescatter")
# Busbw/algbw of n ranks (nccl-tests, doc/PERFORMANCE.md); 1 for all others.
_ALL_TO_ALL = ("reducescatter", "allgather", "alltoall", "gather", "scatter")


@dataclass(frozen=True)
class Row:
    """One size, one way of giving the buffers; ``in_place`` is None where that is not told.

    ``size`` is in bytes as nccl-tests counts them; ``figures`` holds values by metric, in the units of
    hvlab.metrics. ``repeat`` is 0 where the rows of one size are to be counted.
    """

    size: int
    figures: Mapping[str, float] = field(default_factory=dict)
    in_place: bool | None = None
    dtype: str | None = None
    op: str | None = None
    root: int | None = None
    repeat: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Sweep:
    """What one launch of a program measured.

    ``ranks`` and ``slots`` are None, and ``hosts`` is empty, where they are not known. ``device`` is cpu,
    cuda or rocm; ``about`` says which tool on which hardware; ``origin`` is what hvlab wrote of itself.
    """

    workload: str | None
    rows: tuple[Row, ...]
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    slots: int | None = None
    iterations: int | None = None
    warmup: int | None = None
    device: str | None = None
    error: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """Return the sizes in bytes, each once, in their order."""
        return list(dict.fromkeys(row.size for row in self.rows))


def busbw_factor(workload: str | None, ranks: int) -> float:
    """Return busbw/algbw: 2(n-1)/n, (n-1)/n or 1 (nccl-tests, doc/PERFORMANCE.md)."""
    if workload == "allreduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if workload in _ALL_TO_ALL else 1.0


def gather(records: Iterable[Record], *, pair: bool = True) -> list[Sweep]:
    """Return the collectives among the records as sweeps in their order, those that failed included.

    A case that was skipped was never started, and is none.
    With ``pair`` the cases in place and out of place that are alike otherwise make one sweep.
    """
    apart = ("size_bytes", "sizes", *["in_place"] * pair)
    groups: dict[tuple[Any, ...], list[Record]] = {}
    alike: dict[tuple[Any, ...], list[str]] = {}
    for record in records:
        if record.workload in WORKLOADS and record.status != "skipped":
            params = tuple(sorted((k, repr(v)) for k, v in record.params.items() if k not in apart))
            where = (record.workload, record.backend, record.launcher, record.hosts, record.slots_per_host)
            key = (*where, record.repeat, params)
            cases = alike.setdefault((*key, record.params.get("in_place")), [])
            if record.case_id not in cases:
                cases.append(record.case_id)
            groups.setdefault((*key, cases.index(record.case_id)), []).append(record)
    return [_sweep(group, apart) for group in groups.values()]


def _sweep(group: list[Record], apart: Container[str]) -> Sweep:
    first = group[0]
    rows: dict[tuple[int, bool | None], dict[str, float]] = {}
    errors = []
    for record in group:
        size, in_place = record.params.get("size_bytes"), record.params.get("in_place")
        if record.metric is not None and record.value is not None and size is not None:
            rows.setdefault((size, in_place), {})[record.metric] = record.value
        elif record.status != "ok":
            errors.append(record.error or "failed, and no reason was told")
    warmup = [figures["warmup"] for figures in rows.values() if "warmup" in figures]
    return Sweep(
        workload=first.workload,
        rows=tuple(
            Row(size, figures, in_place, first.params.get("dtype"), first.params.get("op"))
            for (size, in_place), figures in rows.items()
        ),
        ranks=len(first.hosts) * first.slots_per_host or first.world_size,
        hosts=first.hosts,
        slots=first.slots_per_host or None,
        iterations=first.params.get("iterations"),
        warmup=round(max(warmup)) if warmup else None,
        device=first.params.get("device"),
        error="; ".join(dict.fromkeys(errors)) or None,
        about=first.stack,
        origin=_origin(group, apart),
    )


def _origin(group: list[Record], apart: Container[str]) -> dict[str, Any]:
    first = group[0]
    return {
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
        "params": {name: value for name, value in first.params.items() if name not in apart},
    }
