"""The allreduce benchmark: how the program is called, and its JSON result -> figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvlab.matrix import Case
from hvlab.stack import BACKENDS
from hvlab.workloads.outcome import Figure, Outcome, launcher_error, read_json, started


def command(case: Case) -> tuple[str, ...]:
    """Return the program's file name and arguments."""
    return (
        "allreduce.py",
        *("--world-size", str(case.world_size)),
        *("--hosts", str(len(case.hosts))),
        *("--sizes", ",".join(map(str, case.sizes))),
        *("--iterations", str(case.iterations)),
        *("--warmup", str(case.warmup)),
        *("--dtype", case.dtype),
    )


def parse(case: Case, ended: Mapping[str, Any], folder: Path) -> Outcome:
    """Return the figures of a case, or why it does not count."""
    begun = started(ended)
    result = read_json(folder / "result.json")
    failed = launcher_error(case, ended, folder)
    if not isinstance(result, dict):
        return replace(begun, error=failed or "the program wrote no result")
    found = replace(
        begun,
        proved_backend=proved(result),
        world_size=(result.get("world") or {}).get("size"),
        versions=(result.get("state") or {}).get("versions") or {},
    )
    error = "; ".join(result.get("checks") or []) or failed or _unproved(case, found, result)
    if error:
        return replace(found, error=error)
    device = result.get("device", "cpu")
    figures = (figure for row in result["sizes"] for figure in _figures(case, row, device))
    return replace(found, figures=tuple(figures))


def proved(result: Mapping[str, Any]) -> str | None:
    """Return the backend whose activity the timeline shows; several are joined by +, none is None."""
    names = (result.get("proof") or {}).get("activities") or []
    seen = [backend.name for backend in BACKENDS.values() if any(n.startswith(backend.proof) for n in names)]
    return "+".join(seen) or None


def busbw_factor(ranks: int) -> float:
    """Return busbw/algbw of an allreduce, 2(n-1)/n (nccl-tests, doc/PERFORMANCE.md)."""
    return 2 * (ranks - 1) / ranks


def _unproved(case: Case, found: Outcome, result: Mapping[str, Any]) -> str | None:
    if found.proved_backend != case.backend:
        seen = ", ".join((result.get("proof") or {}).get("activities") or []) or "nothing"
        carried = found.proved_backend or "no known backend"
        return f"asked for {case.backend}, but {carried} carried it (Horovod's timeline shows {seen})"
    sizes = tuple(row["size_bytes"] for row in result.get("sizes", ()))
    return None if sizes == case.sizes else f"asked for the sizes {case.sizes}, measured {sizes}"


def _figures(case: Case, row: Mapping[str, Any], device: str) -> Iterator[Figure]:
    size = row["size_bytes"]
    times = row["mean_s"]
    mean = statistics.fmean(times)
    params = {
        "size_bytes": size,
        "dtype": case.dtype,
        "op": "sum",
        "iterations": len(times),
        "device": device,
    }
    microseconds = {
        "time": mean,
        "time_min": min(times),
        "time_median": statistics.median(times),
        "time_max": max(times),
    }
    for metric, seconds in microseconds.items():
        yield Figure(metric, seconds * 1e6, "us", params)
    yield Figure("algbw", size / mean / 1e9, "GB/s", params)
    yield Figure("busbw", size / mean / 1e9 * busbw_factor(case.world_size), "GB/s", params)
