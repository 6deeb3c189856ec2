"""The JSON of nccl-tests (-J, src/util.cu), read and written. Pure.

Its text holds the same: nccl_text reads a text into such an object and prints one, so that every conversion
between the tool's and hvlab's figures stands here once.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hvlab.formats.launch import Launch, LaunchRow
from hvlab.formats.lines import number, whole
from hvlab.formats.names import DTYPES, ITEM_BYTES, OPS, PROGRAMS, REDUCING, reverse
from hvlab.formats.nccl_columns import HALF, HALVES, ITERATIONS

_VERSION = 2
_DEFAULT_STEP = 2**20
# Each rank has this share of the bytes; elements are counted for each rank.
_SHARED = ("allgather", "alltoall", "reducescatter")
_METRICS = {"cpu_time": "time"} | {
    column.key: column.metric for column in (*HALF, *ITERATIONS) if column.metric
}


def knows(text: str) -> bool:
    """Return whether this is JSON of nccl-tests."""
    return any("results" in each and ("config" in each or "args" in each) for each in _objects(text))


def read(text: str) -> list[Launch]:
    """Return what each object of the text holds; one of several operations is one launch each."""
    return [launch for each in _objects(text) for launch in launches(each, empty="there is no result in it")]


def write(measured: Iterable[Launch]) -> str:
    """Return an object a launch, each on its line, as nccl-tests writes one a file."""
    return "".join(f"{json.dumps(document(launch))}\n" for launch in measured)


def launches(document: Mapping[str, Any], *, empty: str | None) -> Iterator[Launch]:
    """Yield what an object holds, an operation each; ``empty`` is the error of one without rows."""
    config = _mapping(document.get("config"))
    devices = [_mapping(each) for each in _list(config.get("devices") or document.get("devices"))]
    ranks = Counter(str(device.get("hostname") or "?") for device in devices)
    slots = next(iter(ranks.values())) if len({*ranks.values()}) == 1 else None
    rows: dict[str | None, list[LaunchRow]] = {}
    for result in map(_mapping, _list(document.get("results"))):
        rows.setdefault(_operation(document, result), []).extend(_rows(result))
    errors = "; ".join(str(error) for error in _list(document.get("errors"))) or None
    wrong = whole(_mapping(document.get("out_of_bounds")).get("count"))
    for workload, measured in (rows or {_operation(document, {}): []}).items():
        error = errors
        if wrong and not any(row.error for row in measured):
            error = error or f"out of bounds values: {wrong}"
        elif not measured:
            error = error or empty
        yield Launch(
            workload=workload,
            rows=tuple(measured),
            ranks=len(devices) or None,
            hosts=tuple(ranks),
            slots=slots,
            iterations=whole(config.get("iterations")),
            warmup=whole(config.get("warmup_iters")),
            device="cuda",
            error=error,
            stack=_stack(document, devices),
            origin=_mapping(document.get("hvlab")),
        )


def document(launch: Launch) -> dict[str, Any]:
    """Return a launch as nccl-tests would have written it, and under ``hvlab`` what that has no place for."""
    program = f"{reverse(PROGRAMS, launch.workload)}_perf"
    warmup = launch.warmup or 0
    timed = max((launch.iterations or 0) - warmup, 0)
    step, by = _step(launch.sizes)
    busbw = [row.values["busbw"] for row in launch.rows if "busbw" in row.values]
    halves: dict[int, dict[bool, LaunchRow]] = {}
    for row in launch.rows:
        # Without a word on it: Horovod's allreduce is in place, the others have a result of their own.
        in_place = launch.workload == "allreduce" if row.in_place is None else row.in_place
        halves.setdefault(row.size, {})[in_place] = row
    return {
        "version": _VERSION,
        "hvlab": launch.origin,
        "args": [program],
        "env": [],
        "nccl_version": version_code(launch.stack.get("nccl")),
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "minimum_bytes": min(launch.sizes, default=0),
            "maximum_bytes": max(launch.sizes, default=0),
            f"step_{step}": by,
            "warmup_iters": warmup,
            "iterations": timed,
            "aggregated_iterations": 1,
            "validation": 1,
            "graph": 0,
            "blocking_collectives": "false",
            "parallel_init": "false",
            "devices": [_device(launch, rank) for rank in range(len(launch.hosts) * (launch.slots or 0))],
        },
        "results": [
            _result(launch, size, rows) | {"actual_iterations": timed, "experiment_name": program}
            for size, rows in halves.items()
        ],
        "out_of_bounds": None if launch.error else {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {
            "bandwidth": statistics.fmean(busbw) if busbw else 0.0,
            "okay": "unchecked",
        },
        "errors": [launch.error] if launch.error else [],
    }


def version_code(version: object) -> int | None:
    """Return NCCL's version as its own number, 2.28.9 as 22809; None where it is unknown."""
    parts = re.match(r"(\d+)\.(\d+)\.(\d+)", str(version))
    if parts is None:
        return None
    major, minor, patch = map(int, parts.groups())
    return major * 10000 + minor * 100 + patch


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that stand one after the other, until something else stands there."""
    decoder, at = json.JSONDecoder(), 0
    text = text.strip()
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        values = value if isinstance(value, list) else [value]
        yield from (each for each in values if isinstance(each, dict))
        at += len(text[at:]) - len(text[at:].lstrip())


def _operation(document: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    """Return the operation that a result is of, by the name of the program."""
    name = result.get("experiment_name") or next(iter(_list(document.get("args"))), None)
    program = str(name or "").rpartition("/")[2].removesuffix("_mpi").removesuffix("_perf")
    return PROGRAMS.get(program)


def _rows(result: Mapping[str, Any]) -> Iterator[LaunchRow]:
    size, root = whole(result.get("size")), whole(result.get("root"))
    dtype, redop = str(result.get("type")), str(result.get("redop"))
    for half, in_place in HALVES.items():
        cells = {**_mapping(result.get(half)), **_mapping(result.get(f"{half}_per_iter"))}
        values = {
            _METRICS[key]: value
            for key, cell in cells.items()
            if key in _METRICS and (value := number(cell)) is not None
        }
        # What the columns `error` and `res` of old versions hold is the largest relative error, below 1.
        wrong = number(cells.get("nwrong")) or 0
        if size and "time" in values:
            yield LaunchRow(
                size=size,
                values=values,
                in_place=in_place,
                dtype=DTYPES.get(dtype, dtype),
                op=None if redop == "none" else OPS.get(redop, redop),
                root=root if root is not None and root >= 0 else None,
                error=f"{wrong:.0f} wrong values" if not 0 <= wrong < 1 else None,
            )


def _stack(document: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the tool, the library and the GPUs of the first host, as far as they are known."""
    tool, code = document.get("nccl_tests_version"), whole(document.get("nccl_version"))
    started = document.get("start_time")
    gpus = Counter(
        name
        for device in devices
        if device.get("hostname") == devices[0].get("hostname")
        and (name := str(device.get("device_info") or "").strip())
    )
    stack = {
        "source": "nccl-tests",
        "tool": f"nccl-tests {tool}" if tool else None,
        "nccl": _dotted(code) if code else None,
        "gpus": "; ".join(f"{count} x {name}" for name, count in gpus.items()),
        "measured_at": started if isinstance(started, str) else None,
    }
    return {name: value for name, value in stack.items() if value}


def _dotted(code: int) -> str:
    """Return 22809 as 2.28.9; before 2.9 a release was written 2804."""
    factor = 10000 if code >= 10000 else 1000  # noqa: PLR2004 - how NCCL numbers its releases (nccl.h)
    return f"{code // factor}.{code % factor // 100}.{code % 100}"


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
    """Return factor or bytes, and by how much a size exceeds the one before; 0 where they differ."""
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
    ranks = (launch.ranks or 1) if launch.workload in _SHARED else 1
    op = first.op if launch.workload in REDUCING else None
    result: dict[str, Any] = {
        "size": size,
        "count": size // ITEM_BYTES.get(dtype, 1) // ranks,
        "type": reverse(DTYPES, dtype),
        "redop": reverse(OPS, op) or "none",
        "root": f"{0 if launch.workload == 'broadcast' else -1:6d}",
    }
    for half, in_place in HALVES.items():
        values = rows[in_place].values if in_place in rows else {}
        cells = {column.key: values.get(column.metric) if column.metric else 0 for column in HALF}
        result[half] = cells if "time" in values else None
        if each := {c.key: values[c.metric] for c in ITERATIONS if c.metric in values}:
            result[f"{half}_per_iter"] = each
    return result


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
