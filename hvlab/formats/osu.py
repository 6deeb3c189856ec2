"""The text of the OSU micro-benchmarks: read from any version, and written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hvlab.formats.launch import ORIGIN, Launch, LaunchRow, origin_line, read_origin
from hvlab.formats.lines import lines, number, whole
from hvlab.formats.names import MPI_DTYPES, OSU, OSU_BY_MESSAGE, REDUCING, reverse

_WRITTEN_AS = "7.5"
_ERROR = "# error: "
_TITLE = re.compile(
    r"#?\s*OSU (?P<library>\w+)(?:-(?P<device>\w+))? (?P<test>.+?) Test\s*(?:v(?P<version>\S+))?$"
)
_DATATYPE = re.compile(r"# Datatype: (MPI_\w+)")
_HEADS = re.compile(r"#\s*(?:(?P<size>Size)\s{2,}|(?=Avg Latency\(us\)))(?P<heads>.*)")
_ROW = re.compile(r"[\d.]{1,18}(?:\s+(?:[\d.eE+-]+|Pass|Fail))*")
_DEVICES = {None: "cpu", "CUDA": "cuda", "ROCM": "rocm"}
# Head of a column: its metric, and the factor to hvlab's unit. MB/s there are decimal.
COLUMNS: Mapping[str, tuple[str, float]] = {
    "Avg Latency(us)": ("time", 1.0),
    "Min Latency(us)": ("time_min", 1.0),
    "Max Latency(us)": ("time_max", 1.0),
    "Latency (us)": ("time", 1.0),
    "Avg Lat(us)": ("time", 1.0),
    "P50 Tail Lat(us)": ("time_median", 1.0),
    "Bandwidth (MB/s)": ("algbw", 1e-3),
}
_AVERAGE = ("Avg Latency(us)",)
_FULL = (*_AVERAGE, "Min Latency(us)", "Max Latency(us)")


def knows(text: str) -> bool:
    """Return whether this looks like the text of the OSU micro-benchmarks."""
    return any(_TITLE.match(line) for line, _ in lines(text))


def read(text: str) -> list[Launch]:
    """Return what each benchmark in the text measured; sizes are still those of OSU."""
    benchmarks: list[tuple[re.Match[str], list[str]]] = []
    for line, _ in lines(text):
        if title := _TITLE.match(line):
            benchmarks.append((title, []))
        elif benchmarks:
            benchmarks[-1][1].append(line.strip())
    return [_launch(title, body) for title, body in benchmarks]


def write(measured: Iterable[Launch]) -> str:
    """Return what the OSU micro-benchmarks would have printed, one benchmark after the other."""
    return "".join(f"{line}\n" for launch in measured for line in _printed(launch))


def _launch(title: re.Match[str], body: Iterable[str]) -> Launch:
    """Return what the lines below a title say."""
    heads, sized = ["Avg Latency(us)"], True
    dtype = iterations = error = None
    origin: Mapping[str, Any] = {}
    rows: list[LaunchRow] = []
    workload = OSU.get(title["test"])
    op = "sum" if workload in REDUCING else None
    for line in body:
        if match := _HEADS.match(line):
            heads = re.split(r"\s{2,}", match["heads"].strip())
            sized = sized and bool(match["size"])
        elif match := _DATATYPE.match(line):
            dtype = MPI_DTYPES.get(match[1])
        elif line.startswith(ORIGIN):
            origin = read_origin(line) or origin
        elif line.startswith(_ERROR):
            error = line.removeprefix(_ERROR)
        elif _ROW.fullmatch(line):
            size, *cells = line.split() if sized else ("0", *line.split())
            row = dict(zip(heads, cells, strict=False))
            iterations = whole(row.get("Iterations")) or iterations
            values = _values(row)
            if values and (whole(size) or not sized):
                failed = "the validation failed" if row.get("Validation") == "Fail" else None
                rows.append(LaunchRow(int(size), values, dtype=dtype, op=op, error=failed))
    stack = {
        "source": "osu",
        "tool": f"OSU Micro-Benchmarks {title['version'] or ''}".strip(),
        "library": title["library"],
    }
    if not origin and any("time_min" in row.values or "time_max" in row.values for row in rows):
        stack["spread"] = "time_min and time_max are over the ranks"
    return Launch(
        workload=workload or title["test"].removesuffix(" Latency").lower().replace(" ", "-"),
        rows=tuple(rows),
        iterations=iterations,
        device=_DEVICES.get(title["device"], (title["device"] or "").lower()),
        error=error or (None if rows else "there is no row in it"),
        stack=stack,
        origin=origin,
    )


def _values(row: Mapping[str, str]) -> dict[str, float]:
    """Return the cells of a row in hvlab's units, by metric."""
    values = {}
    for head, cell in row.items():
        value = number(cell)
        if head in COLUMNS and value is not None:
            metric, factor = COLUMNS[head]
            values[metric] = value * factor
    return values


def _printed(launch: Launch) -> Iterator[str]:
    full = bool(launch.rows) and all({"time_min", "time_max"} <= row.values.keys() for row in launch.rows)
    heads = _FULL if full else _AVERAGE
    device = {"cuda": "-CUDA", "rocm": "-ROCM"}.get(launch.device or "", "")
    dtype = reverse(MPI_DTYPES, launch.rows[0].dtype) if launch.rows else None
    ranks = (launch.ranks or 1) if launch.workload in OSU_BY_MESSAGE else 1
    yield ""
    yield f"# OSU MPI{device} {reverse(OSU, launch.workload)} Test v{_WRITTEN_AS}"
    if dtype in MPI_DTYPES:
        yield f"# Datatype: {dtype}."
    yield origin_line(launch.origin)
    if full:
        yield "# hvlab: Min and Max are over the iterations, of the mean over the ranks."
    yield f"{'# Size':<10}" + "".join(f"{head:>18}" for head in heads) + f"{'Iterations':>12}" * full
    for row in launch.rows:
        if "time" in row.values:
            values = (row.values[COLUMNS[head][0]] / COLUMNS[head][1] for head in heads)
            iterations = f"{launch.iterations or 0:>12d}" * full
            yield f"{row.size // ranks:<10d}" + "".join(f"{value:>18.2f}" for value in values) + iterations
    if launch.error:
        yield _ERROR + " ".join(launch.error.split())
