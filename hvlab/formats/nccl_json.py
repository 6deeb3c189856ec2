"""The JSON that nccl-tests writes with -J (src/util.cu): read and written. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hvlab.formats import nccl_write, origin
from hvlab.formats.lines import number, whole
from hvlab.formats.names import DTYPES, OPS, PROGRAMS
from hvlab.formats.nccl_sweep import Device, about, code, placed
from hvlab.formats.sweep import Row, Sweep

_VERSION = 2
_FIGURES = {"time": "time", "cpu_time": "time", "alg_bw": "algbw", "bus_bw": "busbw"}
_ITERATIONS = {"min_us": "time_min", "max_us": "time_max", "p50_us": "time_median"}


def knows(text: str) -> bool:
    """Return whether this is JSON of nccl-tests."""
    return any("results" in found and ("config" in found or "args" in found) for found in _objects(text))


def read(text: str) -> list[Sweep]:
    """Return what each object of the text holds; one of several operations is one sweep each."""
    return [sweep for found in _objects(text) for sweep in _sweeps(found)]


def write(sweeps: Iterable[Sweep]) -> str:
    """Return an object a sweep, each on its line, as nccl-tests writes one a file."""
    return "".join(f"{json.dumps(_object(sweep))}\n" for sweep in sweeps)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that stand one after the other; nothing where the text is no JSON."""
    decoder, at = json.JSONDecoder(), 0
    text = text.strip()
    while at < len(text):
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, dict):
                yield each
        at += len(text[at:]) - len(text[at:].lstrip())


def _sweeps(found: Mapping[str, Any]) -> Iterator[Sweep]:
    config = _mapping(found.get("config"))
    devices = [_device(row) for row in _list(config.get("devices") or found.get("devices"))]
    hosts, slots, ranks = placed(devices)
    library = whole(found.get("nccl_version"))
    rows: dict[str | None, list[Row]] = {}
    for result in map(_mapping, _list(found.get("results"))):
        rows.setdefault(_program(found, result), []).extend(_rows(result))
    error = "; ".join(str(error) for error in _list(found.get("errors"))) or None
    wrong = whole(_mapping(found.get("out_of_bounds")).get("count"))
    for program, measured in (rows or {_program(found, {}): []}).items():
        told = f"out of bounds values: {wrong}" if wrong and not any(row.error for row in measured) else None
        yield Sweep(
            workload=PROGRAMS.get(program or ""),
            rows=tuple(measured),
            ranks=ranks,
            hosts=hosts,
            slots=slots,
            iterations=whole(config.get("iterations")),
            warmup=whole(config.get("warmup_iters")),
            device="cuda",
            error=error or told or (None if measured else "there is no result in it"),
            about=about(None, str(library) if library else None, devices) | _times(found),
            origin=_mapping(found.get("hvlab")),
        )


def _times(found: Mapping[str, Any]) -> dict[str, str]:
    started = found.get("start_time")
    return {"measured_at": started} if isinstance(started, str) else {}


def _program(found: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    """Return the program that gave a result, without its ending."""
    named = result.get("experiment_name") or next(iter(_list(found.get("args"))), None)
    name = str(named or "").rpartition("/")[2].removesuffix("_mpi").removesuffix("_perf")
    return name if name in PROGRAMS else None


def _device(row: object) -> Device:
    told = _mapping(row)
    name = str(told.get("device_info") or "").strip()
    return Device(
        whole(told.get("rank")) or 0, whole(told.get("group")) or 0, str(told.get("hostname") or "?"), name
    )


def _rows(result: Mapping[str, Any]) -> Iterator[Row]:
    size, dtype, redop = whole(result.get("size")), str(result.get("type")), str(result.get("redop"))
    root = whole(result.get("root"))
    for in_place, key in ((False, "out_of_place"), (True, "in_place")):
        half, each = _mapping(result.get(key)), _mapping(result.get(f"{key}_per_iter"))
        told = [(_FIGURES[name], value) for name, value in half.items() if name in _FIGURES]
        told += [(_ITERATIONS[name], value) for name, value in each.items() if name in _ITERATIONS]
        figures = {name: value for name, given in told if (value := number(given)) is not None}
        wrong = number(half.get("nwrong"))
        if size and "time" in figures:
            yield Row(
                size=size,
                figures=figures,
                in_place=in_place,
                dtype=DTYPES.get(dtype, dtype),
                op=None if redop == "none" else OPS.get(redop, redop),
                root=root if root is not None and root >= 0 else None,
                error=f"{wrong:.0f} wrong values" if wrong else None,
            )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(sweep: Sweep) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "hvlab": origin.told(sweep),
        "args": [nccl_write.program(sweep)],
        "env": [],
        "nccl_version": code(sweep.about.get("nccl")),
        "config": _config(sweep),
        "results": [_result(pair, sweep) for pair in nccl_write.pairs(sweep)],
        "out_of_bounds": None if sweep.error else {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": nccl_write.average(sweep), "okay": "unchecked"},
        "errors": [sweep.error] if sweep.error else [],
    }


def _config(sweep: Sweep) -> dict[str, Any]:
    kind, by = nccl_write.step(sweep)
    warmup, timed = nccl_write.counts(sweep)
    return {
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": min(sweep.sizes, default=0),
        "maximum_bytes": max(sweep.sizes, default=0),
        f"step_{kind}": by,
        "warmup_iters": warmup,
        "iterations": timed,
        "aggregated_iterations": 1,
        "validation": 1,
        "graph": 0,
        "blocking_collectives": "false",
        "parallel_init": "false",
        "devices": [
            {
                "rank": rank,
                "group": 0,
                "pid": None,
                "hostname": host,
                "device": local,
                "device_hex": None,
                "device_info": nccl_write.device_name(sweep, host),
            }
            for rank, host, local in nccl_write.ranks(sweep)
        ],
    }


def _result(pair: nccl_write.Pair, sweep: Sweep) -> dict[str, Any]:
    told: dict[str, Any] = {
        "size": pair.size,
        "count": pair.count,
        "type": pair.dtype,
        "redop": pair.redop,
        "root": f"{pair.root:6d}",
    }
    for key, row in (("out_of_place", pair.out), ("in_place", pair.inside)):
        told[key] = _half(row)
        each = (
            {name: row.figures[ours] for name, ours in _ITERATIONS.items() if ours in row.figures}
            if row
            else {}
        )
        if each:
            told[f"{key}_per_iter"] = each
    return told | {
        "actual_iterations": nccl_write.counts(sweep)[1],
        "experiment_name": nccl_write.program(sweep),
    }


def _half(row: Row | None) -> dict[str, Any] | None:
    if row is None or "time" not in row.figures:
        return None
    return {name: row.figures.get(ours) for name, ours in _FIGURES.items() if name != "cpu_time"} | {
        "nwrong": 0
    }
