"""Launches measured by other tools, as records of the store. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hvlab.base import answers
from hvlab.base.errors import CheckError, UsageError
from hvlab.results.formats.launch import Launch, LaunchRow, sort_items
from hvlab.results.formats.names import COPIES, OSU_BY_MESSAGE, PROGRAMS
from hvlab.results.store import UNKNOWN, Record
from hvlab.workloads import read_back
from hvlab.workloads.metrics import METRICS
from hvlab.workloads.operations import OPERATIONS

_BACKENDS = {"nccl-tests": "nccl", "osu": "mpi", "training": UNKNOWN}
# Libraries in OSU's titles.
_LIBRARIES = {"MPI": "mpi", "NCCL": "nccl", "RCCL": "nccl"}
_FILE_NAMES = {name.replace("_", ""): workload for name, workload in PROGRAMS.items()}
_FILE_NAMES["bcast"] = "broadcast"
# Half of the last digit that nccl-tests prints: of a bandwidth, and of a time in ms.
_PRINTED_GB_S = 0.00501
_PRINTED_US = 0.5
# Largest factor between size/time and algbw: before 2019 an allgather's algbw was (n-1)/n of it.
_APART = 2.0
_MOST = 2**31
_Key = tuple[Any, ...]


@dataclass(frozen=True)
class LaunchOverrides:
    """The user's word on the files; None leaves it to the file. ``hardware`` are facts of each host."""

    workload: str | None = None
    backend: str | None = None
    hosts: tuple[str, ...] | None = None
    slots: int | None = None
    hardware: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class LogSource:
    """A file that was read: its name, its copy (relative to the results), its launches."""

    name: str
    raw_path: str
    launches: Sequence[Launch]


def records(
    sources: Iterable[LogSource], overrides: LaunchOverrides, *, run_id: str, started_at: str
) -> list[Record]:
    """Return every figure of the files as a record; a failed launch is one without a metric.

    Launches that are alike are repeats. Raises UsageError if a file tells neither its operation nor its
    message sizes, and CheckError if a row's time and bandwidth contradict each other.
    """
    numbers: Counter[_Key] = Counter()
    return [
        record
        for source in sources
        for launch in source.launches
        for record in _records(
            launch, _common(launch, source, overrides, run_id=run_id, started_at=started_at), numbers
        )
    ]


def _common(
    launch: Launch, source: LogSource, overrides: LaunchOverrides, *, run_id: str, started_at: str
) -> Record:
    # Files are trusted no more than hosts.
    origin = answers.check(dict(launch.origin), source.name)
    hosts = overrides.hosts or launch.hosts or _texts(origin.get("hosts"))
    slots = overrides.slots or launch.slots or _count(origin.get("slots")) or 0
    name = str(launch.stack.get("library") or "")
    library = _LIBRARIES.get(name) or name.lower() or _BACKENDS[launch.stack["source"]]
    stated = None if overrides.hosts or overrides.slots else launch.ranks
    params = origin.get("params")
    workload = (
        overrides.workload or launch.workload or _text(origin.get("workload")) or _operation(source.name)
    )
    return Record(
        run_id=run_id,
        case_id="",
        started_at=started_at,
        workload=workload,
        launcher=_text(origin.get("launcher")) or UNKNOWN,
        backend=overrides.backend or _text(origin.get("backend")) or library,
        proved_backend=_text(origin.get("proved")),
        hosts=hosts,
        slots_per_host=slots,
        world_size=stated or len(hosts) * slots or None,
        params=_check_stated(params, workload, source.name)
        if isinstance(params, Mapping) and params
        else _select_known({"device": launch.device, "iterations": launch.iterations, **launch.settings}),
        repeat=1,
        metric=None,
        value=None,
        unit=None,
        status="ok",
        error=None,
        stack={
            **answers.check(dict(launch.stack), source.name),
            "file": source.name,
            "checked": any(row.checked for row in launch.rows)
            and all(row.checked or row.error for row in launch.rows),
        }
        | _select_known({"left_out": list(launch.left_out) or None}),
        raw_path=source.raw_path,
    )


def _records(launch: Launch, common: Record, numbers: Counter[_Key]) -> list[Record]:
    _refuse_lone(launch, common)
    if common.stack["source"] == "osu":
        launch = _scale(launch, common)
    both = len({row.in_place for row in launch.rows}) > 1
    result: list[Record] = []
    for params, rows in _cases(launch, common.params):
        mark = ("in" if rows[0].in_place else "out",) if both else ()
        case = _number(replace(common, params=params), mark, numbers)
        for row in rows:
            result += _row_records(row, case)
    if launch.error:
        first = result[0] if result else _number(_record_launch(launch, common), (), numbers)
        params = {name: value for name, value in first.params.items() if name != "size_bytes"}
        bare = replace(first, params=params, metric=None, value=None, unit=None)
        result.append(replace(bare, status="failed", error=launch.error))
    return result


def _refuse_lone(launch: Launch, common: Record) -> None:
    """Raise CheckError if ranks that should have measured together each ran alone, which makes busbw 0."""
    figures = [
        row.values["busbw"]
        for row in launch.rows
        if row.values.get("algbw", 0) >= 1 and "busbw" in row.values
    ]
    if figures and not any(figures) and common.world_size != 1:
        raise CheckError(
            f"{common.stack['file']}: busbw is 0 in every row: each rank ran alone, and sent nothing",
            remedy="build nccl-tests again (`make clean`, `make MPI=1`), and measure again; if one rank was"
            " meant, give --ran-on 1 --slots 1",
        )


def _cases(launch: Launch, common: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], list[LaunchRow]]]:
    """Group the rows by their parameters; a second row of the same size is a repeat."""
    cases: dict[_Key, tuple[dict[str, Any], list[LaunchRow]]] = {}
    times: Counter[_Key] = Counter()
    for row in launch.rows:
        own = {"dtype": row.dtype, "op": row.op, "root": row.root or None, "iterations": row.iterations}
        # hvlab's exports carry their own parameters; only the halves come from the table.
        params = {**({} if launch.origin.get("params") else _select_known(own)), **common}
        if row.in_place is not None and launch.origin.get("in_place") != [None]:
            params["in_place"] = row.in_place
        key = sort_items(params)
        times[key, row.size] += 1
        cases.setdefault((key, times[key, row.size]), (params, []))[1].append(row)
    return cases.values()


def _record_launch(launch: Launch, common: Record) -> Record:
    match launch.origin.get("in_place"):
        case [bool(in_place)]:
            return replace(common, params={**common.params, "in_place": in_place})
        case _:
            return common


def _number(case: Record, mark: Iterable[str], numbers: Counter[_Key]) -> Record:
    alike = (case.workload, case.backend, case.hosts, case.slots_per_host, *sort_items(case.params))
    numbers[alike] += 1
    place = f"{len(case.hosts)}x{case.slots_per_host}"
    name = "-".join((case.workload, case.backend, place, *mark, f"r{numbers[alike]}"))
    numbers[name,] += 1
    case_id = name if numbers[name,] == 1 else f"{name}-{numbers[name,]}"
    return replace(case, case_id=case_id, repeat=numbers[alike])


def _row_records(row: LaunchRow, case: Record) -> Iterator[Record]:
    sized = replace(case, params={**case.params, **({"size_bytes": row.size} if row.size else {})})
    if row.error:
        yield replace(sized, status="failed", error=row.error)
        return
    for metric, value in _values(row, case).items():
        yield replace(sized, metric=metric, value=value, unit=METRICS[metric].unit)


def _values(row: LaunchRow, case: Record) -> dict[str, float]:
    """Return the values of a row, and the bandwidths that were not printed.

    Raises CheckError if size (bytes) over time (us) contradicts the printed bandwidth (GB/s).
    """
    values = dict(row.values)
    time, algbw = values.get("time", 0.0), values.get("algbw")
    if algbw is not None and case.workload in COPIES:
        return {**values, "busbw": algbw * COPIES[case.workload]}
    if time <= 0 or not row.size:
        return values
    derived = row.size / time / 1e3
    if algbw is not None and algbw > _PRINTED_GB_S:
        least = row.size / (time + _PRINTED_US) / 1e3
        most = row.size / (time - _PRINTED_US) / 1e3 if time > _PRINTED_US else math.inf
        if least / _APART > algbw + _PRINTED_GB_S or most * _APART < algbw - _PRINTED_GB_S:
            where = ", ".join(filter(None, (case.stack["file"], row.place)))
            raise CheckError(
                f"{where}: {row.size} bytes in {time:g} us are {derived:.3g} GB/s, but algbw"
                f" in its row is {algbw:g} GB/s",
                remedy="the time is in another unit, or CPU time (-C): give the complete output, whose"
                " header tells the unit, or measure without -C",
            )
    if case.workload in OPERATIONS:
        values.setdefault("algbw", derived)
        if case.world_size:
            values.setdefault("busbw", derived * OPERATIONS[case.workload].busbw(case.world_size))
    return values


def _operation(file: str) -> str:
    letters = re.sub(r"[^a-z]", "", file.lower())
    for name in sorted(_FILE_NAMES, key=len, reverse=True):
        if name in letters:
            return _FILE_NAMES[name]
    raise UsageError(
        f"{file} does not name its operation (old versions do not print it)",
        remedy="name it with --workload, such as --workload alltoall",
    )


def _scale(launch: Launch, common: Record) -> Launch:
    """Return a launch of OSU with hvlab's sizes, those of the whole buffer."""
    if launch.workload not in OSU_BY_MESSAGE:
        return launch
    ranks = common.world_size
    if not ranks:
        raise UsageError(
            f"{common.stack['file']}: OSU gives {launch.workload} the size of one message, hvlab that of the"
            " whole buffer, and the file does not tell the number of ranks",
            remedy="give it with --ran-on and --slots",
        )
    return replace(launch, rows=tuple(replace(row, size=row.size * ranks) for row in launch.rows))


def _check_stated(params: Mapping[str, Any], workload: str, file: str) -> dict[str, Any]:
    try:
        return read_back(workload, {name: value for name, value in params.items() if name != "size_bytes"})
    except UsageError as error:
        raise CheckError(f"{file}: {error}", remedy="correct it in the file") from error


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST else None


def _select_known(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
