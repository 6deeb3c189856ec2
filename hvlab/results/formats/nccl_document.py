"""Launches in the form of nccl-tests, as JSON (unknown values are null) and as text. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hvlab.results.formats.launch import Launch, LaunchRow, origin_line, shares, with_figures
from hvlab.results.formats.names import (
    DTYPES,
    HALF,
    HALVES,
    ITEM_BYTES,
    ITERATIONS,
    LEFT,
    OPS,
    PROGRAMS,
    REDUCING,
    reverse,
)
from hvlab.workloads.operations import OPERATIONS

_VERSION = 2
_DEFAULT_STEP = 2**20
# Elements are counted for each rank.
_SHARED = tuple(item.name for item in OPERATIONS.values() if item.shared)


def document(launch: Launch) -> dict[str, Any]:
    """Return a launch as nccl-tests would have written it; ``hvlab`` holds data without a place there."""
    program = f"{reverse(PROGRAMS, launch.workload)}_perf"
    step, by = _step(launch.sizes)
    busbw = [row.values["busbw"] for row in launch.rows if "busbw" in row.values]
    checked = bool(launch.rows) and all(row.checked for row in launch.rows)
    halves: dict[int, dict[bool, LaunchRow]] = {}
    for row in launch.rows:
        # Where unknown: Horovod's allreduce is in place, the others have a result of their own.
        in_place = launch.workload == "allreduce" if row.in_place is None else row.in_place
        halves.setdefault(row.size, {})[in_place] = row
    own = "source" not in launch.stack
    return {
        "version": _VERSION,
        "hvlab": launch.origin,
        "args": [program],
        "env": [],
        "nccl_version": version_code(launch.stack.get("nccl")),
        # Unknown values are null. A process of hvlab's own has one thread and one device.
        "config": {
            "nthreads": launch.settings.get("threads_per_process", 1 if own else None),
            "ngpus": launch.settings.get("gpus_per_thread", 1 if own else None),
            "minimum_bytes": min(launch.sizes, default=0),
            "maximum_bytes": max(launch.sizes, default=0),
            f"step_{step}": by,
            "warmup_iters": launch.warmup,
            "iterations": launch.iterations,
            "aggregated_iterations": launch.settings.get("aggregated_iterations", 1 if own else None),
            "validation": int(checked),
            "graph": launch.settings.get("graph", 0 if own else None),
            "devices": [_device(launch, rank) for rank in range(len(launch.hosts) * (launch.slots or 0))],
        },
        "results": [
            _result(launch, size, rows) | {"actual_iterations": launch.iterations, "experiment_name": program}
            for size, rows in halves.items()
        ],
        "out_of_bounds": {"count": 0, "okay": "true"} if checked and not launch.error else None,
        "average_bus_bandwidth": {"bandwidth": statistics.fmean(busbw), "okay": "unchecked"}
        if busbw
        else None,
        "errors": [launch.error] if launch.error else [],
    }


def version_code(version: object) -> int | None:
    """Return NCCL's version as its own number, 2.28.9 as 22809; None if unknown."""
    parts = re.match(r"(\d+)\.(\d+)\.(\d+)", str(version))
    if parts is None:
        return None
    major, minor, patch = map(int, parts.groups())
    return major * 10000 + minor * 100 + patch


def _device(launch: Launch, rank: int) -> dict[str, Any]:
    place, local = divmod(rank, launch.slots or 1)
    host, gpus = launch.hosts[place], launch.stack.get("gpus")
    name = gpus.get(host) if isinstance(gpus, dict) else gpus
    return {
        "rank": rank,
        "group": 0,
        "pid": None,
        "hostname": host,
        "device": local,
        "device_hex": None,
        "device_info": str(name) if launch.device != "cpu" and name else str(launch.device or "unknown"),
    }


def _step(sizes: Sequence[int]) -> tuple[str, int]:
    """Return factor or bytes, and the step between sizes; 0 if it varies."""
    if len(sizes) <= 1:
        return "bytes", _DEFAULT_STEP
    factors = {after / before for before, after in pairwise(sizes)}
    if len(factors) == 1 and (factor := factors.pop()) == int(factor):
        return "factor", int(factor)
    distances = {after - before for before, after in pairwise(sizes)}
    return "bytes", distances.pop() if len(distances) == 1 else 0


def _result(launch: Launch, size: int, rows: Mapping[bool, LaunchRow]) -> dict[str, Any]:
    first = rows.get(False) or rows[True]
    dtype = first.dtype or "uint8"
    root = (first.root or 0) if launch.workload == "broadcast" else -1
    result: dict[str, Any] = {
        "size": size,
        "count": size // ITEM_BYTES.get(dtype, 1) // shares(launch, _SHARED),
        "type": reverse(DTYPES, dtype),
        "redop": reverse(OPS, first.op if launch.workload in REDUCING else None) or "none",
        "root": f"{root:6d}",
    }
    for half, in_place in HALVES.items():
        row = rows.get(in_place)
        values = row.values if row else {}
        cells = {column.key: values.get(column.metric) for column in HALF if column.metric}
        result[half] = cells | {"nwrong": 0 if row and row.checked else None} if values else None
        if each := {c.key: values[c.metric] for c in ITERATIONS if c.metric in values}:
            result[f"{half}_per_iter"] = each
    return result


# The line on how a program was launched; unknown values are left out.
_WORDS = (
    ("nThread", "nthreads"), ("nGpus", "ngpus"), ("minBytes", "minimum_bytes"), ("maxBytes", "maximum_bytes"),
    ("step:", "step"), ("warmup iters:", "warmup_iters"), ("iters:", "iterations"),
    ("agg iters:", "aggregated_iterations"), ("validation:", "validation"), ("graph:", "graph"),
)  # fmt: skip


def write(measured: Iterable[Launch]) -> str:
    """Return the text that nccl-tests would have printed, one program after the other.

    A half that was not measured is N/A; a failed launch has its error in place of the footer.
    """
    documents = (
        document(launch) | {"hvlab": with_figures(launch.origin, launch.rows)} for launch in measured
    )
    return "".join(f"{line}\n" for document in documents for line in _print_lines(document))


def _print_lines(document: Mapping[str, Any]) -> Iterator[str]:
    config, (program,), errors = document["config"], document["args"], document["errors"]
    step, by = next((name[5:], value) for name, value in config.items() if name.startswith("step_"))
    yield origin_line(document["hvlab"])
    yield f"# Collective test starting: {program}"
    said = {**config, "step": f"{by}({step})"}
    yield "# " + " ".join(f"{words} {said[key]}" for words, key in _WORDS if said.get(key) is not None)
    yield "#"
    yield "# Using devices"
    for device in config["devices"]:
        yield (
            f"#  Rank {device['rank']:2d} Group  0 Pid {0:6d} on {device['hostname']:>10s} "
            f"device {device['device']:2d} [0000:00:00] {device['device_info']}"
        )
    yield "#"
    yield _align_left([""] * len(LEFT)) + "           out-of-place                       in-place          "
    yield _align_left([column.head for column in LEFT]) + _half([column.head for column in HALF]) * 2 + " "
    yield _align_left([column.unit for column in LEFT]) + _half([column.unit for column in HALF]) * 2 + " "
    for result in document["results"]:
        left = "  ".join(f"{result[column.key]:>{column.width}}" for column in LEFT)
        yield left + "".join(_half(_texts(result[half])) for half in HALVES)
    if errors:
        yield "# error: " + " ".join(errors[0].split())
    if document["out_of_bounds"]:
        yield f"# {'Out of bounds values':<20s} : 0 OK"
    if busbw := document["average_bus_bandwidth"]:
        yield f"# {'Avg bus bandwidth':<20s} : {busbw['bandwidth']:g} "
    yield "#"
    yield f"# Collective test concluded: {program}"
    yield "#"


def _align_left(words: Sequence[str]) -> str:
    line = "  ".join(f"{word:>{column.width}}" for column, word in zip(LEFT, words, strict=True))
    return "#" + line[1:]


def _half(words: Sequence[str]) -> str:
    return "".join(f"  {word:>{column.width}}" for column, word in zip(HALF, words, strict=True))


def _texts(values: Mapping[str, float | None] | None) -> list[str]:
    if values is None:
        return ["N/A"] * len(HALF)
    return [
        "N/A" if (value := values[column.key]) is None
        else round_to_width(value, column.width) if column.metric else str(value)
        for column in HALF
    ]  # fmt: skip


def round_to_width(value: float, width: int) -> str:
    """Return a number as nccl-tests rounds it to a width (src/util.cu, getFloatStr)."""
    digits = len(str(int(value))) if value >= 1 else 0
    if digits < width - 2:
        return f"{value:{width}.2f}"
    if digits < width - 1:
        return f"{value:{width}.1f}"
    return f"{value:{width}.0f}" if digits < width + 1 else f"{value:{width}.1e}"
