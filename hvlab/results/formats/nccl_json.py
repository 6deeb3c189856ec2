"""The JSON of nccl-tests (-J, src/util.cu), read and written (nccl_document). Pure.

`nccl_text` turns the tool's text into such an object, so that every conversion between the tool's and
hvlab's figures exists once, here.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hvlab.results.formats import nccl_document
from hvlab.results.formats.launch import Launch, LaunchRow, with_digits
from hvlab.results.formats.lines import impossible, number, parse_whole
from hvlab.results.formats.names import DTYPES, EITHER, HALF, HALVES, ITERATIONS, OPS, PROGRAMS
from hvlab.workloads.operations import OPERATIONS

_METRICS = {column.key: column.metric for column in (*HALF, *ITERATIONS) if column.metric}
# Beside the metrics: the mean is the time itself, and each iteration's time is in its minimum and maximum.
_NO_FIGURES = ("nwrong", "avg_us", "times_us", "per_process_max_times_us", "skipped_iterations")
# Settings under the tool's names, and under hvlab's with their defaults.
_SETTINGS: Mapping[str, tuple[str, object]] = {
    "nthreads": ("threads_per_process", 1),
    "ngpus": ("gpus_per_thread", 1),
    "warmup_iters": ("warmup_iterations", None),
    "aggregated_iterations": ("aggregated_iterations", 1),
    "graph": ("graph", 0),
    "blocking_collectives": ("blocking", "false"),
    "unalign": ("unalign", 0),
}


def knows(text: str) -> bool:
    """Recognise JSON of nccl-tests."""
    return any("results" in each and ("config" in each or "args" in each) for each in _objects(text))


def read(text: str) -> list[Launch]:
    """Parse each object of the text; an object with several operations holds a launch of each."""
    return [launch for each in _objects(text) for launch in launches(each, empty="it has no results")]


def write(measured: Iterable[Launch]) -> str:
    """Return an object for each launch, a line each; nccl-tests writes one object a file."""
    return "".join(f"{json.dumps(nccl_document.document(launch))}\n" for launch in measured)


def launches(document: Mapping[str, Any], *, empty: str | None) -> Iterator[Launch]:
    """Yield the operations of an object; ``empty`` is the error of one without rows."""
    config = _mapping(document.get("config"))
    devices = [_mapping(each) for each in _list(config.get("devices") or document.get("devices"))]
    origin = _mapping(document.get("hvlab"))
    hosts = layout(
        devices, (parse_whole(config.get("nthreads")) or 1) * (parse_whole(config.get("ngpus")) or 1)
    )
    results: dict[str | None, list[Mapping[str, Any]]] = {}
    for number_, result in enumerate(map(_mapping, _list(document.get("results"))), 1):
        numbered = {"place": f"result {number_}", **result}
        results.setdefault(_operation(document, result), []).append(numbered)
    errors = "; ".join(str(error) for error in _list(document.get("errors"))) or None
    wrong = parse_whole(_mapping(document.get("out_of_bounds")).get("count"))
    for workload, measured in (results or {_operation(document, {}): []}).items():
        rows = with_digits((row for result in measured for row in _rows(result)), origin)
        ranks = hosts if agree(workload, sum(hosts.values()), rows) else Counter[str]()
        error = errors
        if wrong and not any(row.error for row in rows):
            error = error or f"out of bounds values: {wrong}"
        elif not measured:
            error = error or empty
        yield Launch(
            workload=workload,
            rows=rows,
            ranks=sum(ranks.values()) or None,
            hosts=tuple(ranks),
            slots=next(iter(ranks.values())) if len({*ranks.values()}) == 1 else None,
            iterations=parse_whole(config.get("iterations")),
            device=str(document.get("device") or "cuda"),
            error=error,
            settings=_settings(document, config),
            left_out=tuple(dict.fromkeys(name for result in measured for name in _list_left_out(result))),
            stack=_stack(document, devices, hosts),
            origin=origin,
        )


def _settings(document: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        ours: config[theirs]
        for theirs, (ours, usual) in _SETTINGS.items()
        if isinstance(config.get(theirs), str | int) and config[theirs] != usual
    }
    args = [str(each) for each in _list(document.get("args"))]
    args = [each for at, each in enumerate(args) if "-J" not in args[max(at - 1, 0) : at + 1]]
    env = [str(each) for each in _list(document.get("env")) if str(each).startswith("NCCL_")]
    settings["command"] = document.get("command") or (" ".join(args) if len(args) > 1 else None)
    settings["environment"] = " ".join(sorted(env)) or None
    return {name: value for name, value in settings.items() if value is not None}


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield consecutive JSON objects, up to anything else."""
    decoder = json.JSONDecoder()
    text, at = text.strip(), 0
    while text.startswith(("{", "["), at):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        values = value if isinstance(value, list) else [value]
        yield from (each for each in values if isinstance(each, dict))
        at = next((place for place in range(at, len(text)) if not text[place].isspace()), at)


def _operation(document: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    name = result.get("experiment_name") or next(iter(_list(document.get("args"))), None)
    file = str(name or "").rpartition("/")[2].removesuffix("_mpi")
    program = file.removesuffix("_perf")
    # Programs without a word of hvlab's, as alltoallv_perf, keep their own.
    return PROGRAMS.get(program, program.replace("_", "-") if program != file else None)


def _rows(result: Mapping[str, Any]) -> Iterator[LaunchRow]:
    size, root = parse_whole(result.get("size")), parse_whole(result.get("root"))
    dtype, redop = str(result.get("type") or ""), str(result.get("redop"))
    row = LaunchRow(
        size=max(size or 0, 0),
        dtype=DTYPES.get(dtype, dtype) or None,
        op=None if redop == "none" else OPS.get(redop, redop),
        root=root if root is not None and root >= 0 else None,
        place=str(result["place"]),
    )
    for half, in_place in {**HALVES, EITHER: None}.items():
        cells = _cells(result, half)
        values = {
            _METRICS[key]: value
            for key, cell in cells.items()
            if key in _METRICS and (value := number(cell)) is not None
        }
        # The columns `error` and `res` of old versions hold the largest relative error, below 1.
        wrong = number(cells.get("nwrong"))
        error = f"{wrong:.0f} wrong values" if not 0 <= (wrong or 0) < 1 else None
        if refused := impossible(values):
            error = f"{row.place}: {refused}"
        if size and size > 0 and values:
            yield replace(row, values=values, in_place=in_place, checked=wrong is not None, error=error)
    if refused := result.get("refused") or ("it has no size" if size is None or size < 0 else None):
        yield replace(row, error=f"{row.place}: {refused}")


def _cells(result: Mapping[str, Any], half: str) -> dict[str, Any]:
    own = _mapping(result.get(half))
    return {**own, **_mapping(result.get(f"{half}_per_iter"))} if own else {}


def _list_left_out(result: Mapping[str, Any]) -> Iterator[str]:
    if parse_whole(result.get("size")) == 0:
        yield "rows of 0 bytes"
    for half in (*HALVES, EITHER):
        yield from (key for key in _cells(result, half) if key not in (*_METRICS, *_NO_FIGURES))


def _stack(
    document: Mapping[str, Any], devices: Sequence[Mapping[str, Any]], hosts: Mapping[str, int]
) -> dict[str, Any]:
    tool, code = document.get("nccl_tests_version"), parse_whole(document.get("nccl_version"))
    # How NCCL numbers its releases (nccl.h): 2.28.9 is 22809; before 2.9, 2.8.4 was 2804.
    factor = 10000 if (code or 0) >= 10000 else 1000  # noqa: PLR2004
    started = document.get("start_time")
    names = [(device.get("hostname"), str(device.get("device_info") or "").strip()) for device in devices]
    gpus = Counter(name for host, name in names if host == names[0][0] and name)
    # What other hosts have besides: which host has which is not kept.
    gpus.update({name for _, name in names if name} - gpus.keys())
    if len(gpus) == 1 and hosts:
        gpus = Counter(dict.fromkeys(gpus, next(iter(hosts.values()))))
    stack = {
        "source": "nccl-tests",
        "tool": f"nccl-tests {tool}" if tool else None,
        "nccl": f"{code // factor}.{code % factor // 100}.{code % 100}" if code else None,
        "gpus": "; ".join(f"{count} x {name}" for name, count in gpus.items()),
        "measured_at": started if isinstance(started, str) else None,
    }
    return {name: value for name, value in stack.items() if value}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# A bandwidth from which two digits after the point tell one number of ranks from the next.
_CLEAR_GB_S = 1.0
_APART = 0.02


def layout(devices: Sequence[Mapping[str, Any]], each: int) -> Counter[str]:
    """Return the number of ranks of each host; nothing if the list of devices does not tell.

    A process has ``each`` devices; the JSON of 2.16 and later lists only the first. People leave out those
    between a host's first and last.
    """
    count = len(devices)
    numbers = [parse_whole(device.get("rank")) for device in devices]
    if len({str(device.get("group") or 0).strip() for device in devices}) > 1:
        return Counter()
    names = [str(device.get("hostname") or "?") for device in devices]
    if "?" in names and len({str(device.get("bus", at)) for at, device in enumerate(devices)}) < count:
        return Counter()
    if numbers == list(range(count)) and count % each == 0:
        each = 1
    elif numbers != list(range(0, count * each, each)):
        return _blocks(names, numbers)
    hosts = Counter(names)
    return Counter({host: ranks * each for host, ranks in hosts.items()})


def _blocks(names: Sequence[str], numbers: Sequence[int | None]) -> Counter[str]:
    """Return the ranks of hosts that hold equal blocks of them, one after the other, from rank 0."""
    blocks: dict[str, list[int]] = {}
    for name, rank in zip(names, numbers, strict=True):
        blocks.setdefault(name, []).append(-1 if rank is None else rank)
    size = max(next(iter(blocks.values()), [0])) + 1
    whole = all(
        (ranks[0], ranks[-1]) == (at * size, (at + 1) * size - 1) and ranks == sorted(ranks)
        for at, ranks in enumerate(blocks.values())
    )
    return Counter(dict.fromkeys(blocks, size)) if whole and size > 1 else Counter()


def agree(workload: str | None, ranks: int, rows: Iterable[LaunchRow]) -> bool:
    """Whether busbw over algbw, 2(n-1)/n for an allreduce, fits this number of ranks."""
    ratios = [
        row.values["busbw"] / row.values["algbw"] for row in rows
        if row.values.get("algbw", 0) >= _CLEAR_GB_S and "busbw" in row.values
    ]  # fmt: skip
    if workload != "allreduce" or not ratios or not ranks:
        return True
    return abs(statistics.median(ratios) - OPERATIONS[workload].busbw(ranks)) <= _APART
