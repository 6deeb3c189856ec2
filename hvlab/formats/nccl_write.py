"""Sweeps as nccl-tests prints them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from hvlab.formats import origin
from hvlab.formats.names import DTYPES, ITEM_BYTES, OPS, PROGRAMS, REDUCING, other_way
from hvlab.formats.sweep import Row, Sweep

_NOT_MEASURED = ("N/A",) * 4
_DEFAULT_STEP = 2**20
_BY_RANK = ("allgather", "alltoall", "reducescatter")


@dataclass(frozen=True)
class Pair:
    """One row of the table: a size out of place and in place; a half that was not measured is None."""

    size: int
    count: int
    dtype: str
    redop: str
    root: int
    out: Row | None
    inside: Row | None


def write(sweeps: Iterable[Sweep]) -> str:
    """Return what nccl-tests would have printed, one program's output after the other.

    A half that was not measured is N/A; a case that failed has its error in the footer's place.
    """
    return "".join(f"{line}\n" for sweep in sweeps for line in _lines(sweep))


def program(sweep: Sweep) -> str:
    """Return the name of nccl-tests' program for this operation."""
    return f"{other_way(PROGRAMS, sweep.workload)}_perf"


def pairs(sweep: Sweep) -> list[Pair]:
    """Return the rows of the table."""
    halves: dict[int, dict[bool, Row]] = {}
    for row in sweep.rows:
        # Horovod's first allreduce here was in place; what gathers and scatters has a result of its own.
        inside = sweep.workload == "allreduce" if row.in_place is None else row.in_place
        halves.setdefault(row.size, {})[inside] = row
    return [_pair(sweep, size, half.get(False), half.get(True)) for size, half in halves.items()]


def counts(sweep: Sweep) -> tuple[int, int]:
    """Return how many iterations were warm-up, and how many were timed."""
    warmup = sweep.warmup or 0
    return warmup, max((sweep.iterations or 0) - warmup, 0)


def step(sweep: Sweep) -> tuple[str, int]:
    """Return factor or bytes, and by how much a size exceeds the one before; 0 where they differ."""
    sizes = sweep.sizes
    if len(sizes) <= 1:
        return "bytes", _DEFAULT_STEP
    factors = {after / before for before, after in pairwise(sizes)}
    if len(factors) == 1 and (factor := factors.pop()) == int(factor):
        return "factor", int(factor)
    distances = {after - before for before, after in pairwise(sizes)}
    return "bytes", distances.pop() if len(distances) == 1 else 0


def average(sweep: Sweep) -> float:
    """Return the mean bus bandwidth of all that was measured, in GB/s."""
    found = [row.figures["busbw"] for row in sweep.rows if "busbw" in row.figures]
    return statistics.fmean(found) if found else 0.0


def ranks(sweep: Sweep) -> Iterator[tuple[int, str, int]]:
    """Yield each rank with its host and its number there."""
    for index, host in enumerate(sweep.hosts):
        for local in range(sweep.slots or 0):
            yield index * (sweep.slots or 0) + local, host, local


def device_name(sweep: Sweep, host: str) -> str:
    """Return what the ranks of a host computed on."""
    gpus = sweep.about.get("gpus")
    named = gpus.get(host) if isinstance(gpus, dict) else gpus
    return str(named) if sweep.device != "cpu" and named else str(sweep.device or "unknown")


def rounded(value: float, width: int) -> str:
    """Return a number as nccl-tests rounds it to a width (src/util.cu, getFloatStr)."""
    digits = len(str(int(value))) if value >= 1 else 0
    if digits < width - 2:
        return f"{value:{width}.2f}"
    if digits < width - 1:
        return f"{value:{width}.1f}"
    return f"{value:{width}.0f}" if digits < width + 1 else f"{value:{width}.1e}"


def _pair(sweep: Sweep, size: int, out: Row | None, inside: Row | None) -> Pair:
    first = out or inside
    dtype = (first.dtype if first else None) or "uint8"
    share = (sweep.ranks or 1) if sweep.workload in _BY_RANK else 1
    op = (first.op if first else None) if sweep.workload in REDUCING else None
    return Pair(
        size=size,
        count=size // ITEM_BYTES.get(dtype, 1) // share,
        dtype=other_way(DTYPES, dtype) or dtype,
        redop=other_way(OPS, op) or "none",
        root=0 if sweep.workload == "broadcast" else -1,
        out=out,
        inside=inside,
    )


def _lines(sweep: Sweep) -> Iterator[str]:
    sizes = sweep.sizes
    kind, by = step(sweep)
    warmup, timed = counts(sweep)
    yield origin.line(sweep)
    yield f"# Collective test starting: {program(sweep)}"
    yield (
        f"# nThread 1 nGpus 1 minBytes {min(sizes, default=0)} maxBytes {max(sizes, default=0)} "
        f"step: {by}({kind}) warmup iters: {warmup} iters: {timed} agg iters: 1 validation: 1 graph: 0"
    )
    yield "#"
    yield "# Using devices"
    for rank, host, local in ranks(sweep):
        yield (
            f"#  Rank {rank:2d} Group  0 Pid {0:6d} on {host:>10s} device {local:2d} [0000:00:00] "
            f"{device_name(sweep, host)}"
        )
    yield "#"
    yield from _head()
    for pair in pairs(sweep):
        left = f"{pair.size:12d}  {pair.count:12d}  {pair.dtype:>8s}  {pair.redop:>6s}  {pair.root:6d}"
        yield left + _half(pair.out) + _half(pair.inside)
    if sweep.error:
        yield "# error: " + " ".join(sweep.error.split())
    else:
        yield f"# {'Out of bounds values':<20s} : 0 OK"
        yield f"# {'Avg bus bandwidth':<20s} : {average(sweep):g} "
    yield "#"
    yield f"# Collective test concluded: {program(sweep)}"
    yield "#"


def _head() -> Iterator[str]:
    first = ("", "", "", "", "")
    yield _titles(first) + "           out-of-place                       in-place          "
    names = ("time", "algbw", "busbw", "#wrong")
    yield _titles(("size", "count", "type", "redop", "root")) + _half_titles(names) * 2 + " "
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    yield _titles(("(B)", "(elements)", "", "", "")) + _half_titles(units) * 2 + " "


def _titles(names: tuple[str, ...]) -> str:
    widths = (10, 12, 8, 6, 6)
    return "# " + "  ".join(f"{name:>{width}s}" for name, width in zip(names, widths, strict=True))


def _half_titles(names: tuple[str, ...]) -> str:
    return "".join(f"  {name:>{width}s}" for name, width in zip(names, (7, 6, 6, 6), strict=True))


def _half(row: Row | None) -> str:
    if row is None or "time" not in row.figures:
        return _half_titles(_NOT_MEASURED)
    cells = [
        rounded(row.figures[name], width) if name in row.figures else "N/A"
        for name, width in (("time", 7), ("algbw", 6), ("busbw", 6))
    ]
    return _half_titles((*cells, "0"))
