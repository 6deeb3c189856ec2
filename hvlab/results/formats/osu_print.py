"""What hvlab measured, as the text of the OSU micro-benchmarks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hvlab.results.formats.launch import Launch, origin_line, shares, with_figures
from hvlab.results.formats.names import MPI_DTYPES, OSU, OSU_BY_MESSAGE, reverse
from hvlab.results.formats.osu import COLUMNS, ERROR

_WRITTEN_AS = "7.5"
_AVERAGE = ("Avg Latency(us)",)
_FULL = (*_AVERAGE, "Min Latency(us)", "Max Latency(us)")


def write(measured: Iterable[Launch]) -> str:
    """Return what the OSU micro-benchmarks would have printed, one benchmark after the other."""
    return "".join(f"{line}\n" for launch in measured for line in _printed(launch))


def _printed(launch: Launch) -> Iterator[str]:
    whole_rows = [row for row in launch.rows if "time" in row.values]
    full = launch.iterations is not None and all(
        {"time_min", "time_max"} <= row.values.keys() for row in whole_rows
    )
    heads = _FULL if full else _AVERAGE
    device = {"cuda": "-CUDA", "rocm": "-ROCM"}.get(launch.device or "", "")
    dtype = reverse(MPI_DTYPES, launch.rows[0].dtype) if launch.rows else None
    parts = shares(launch, OSU_BY_MESSAGE)
    library = launch.stack.get("library") or ("NCCL" if launch.origin.get("backend") == "nccl" else "MPI")
    yield ""
    yield f"# OSU {library}{device} {reverse(OSU, launch.workload)} Test v{_WRITTEN_AS}"
    if dtype in MPI_DTYPES:
        yield f"# Datatype: {dtype}."
    printed = [replace(row, size=row.size // parts, in_place=None) for row in whole_rows]
    yield origin_line(with_figures(launch.origin, printed))
    if full and "source" not in launch.stack:
        yield "# hvlab: Min and Max are over the iterations, of the mean over the ranks."
    yield f"{'# Size':<10}" + "".join(f"{head:>18}" for head in heads) + f"{'Iterations':>12}" * full
    for row in printed:
        values = (row.values[COLUMNS[head][0]] / COLUMNS[head][1] for head in heads)
        iterations = f"{launch.iterations:>12d}" * full if full else ""
        yield f"{row.size:<10d}" + "".join(f"{value:>18.2f}" for value in values) + iterations
    if launch.error:
        yield ERROR + " ".join(launch.error.split())
