"""The text of the OSU micro-benchmarks: read from any version, and written. Pure.

Sizes of gathers and all-to-alls are those of one message there, and times n what nccl-tests and hvlab count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hvlab.formats import origin
from hvlab.formats.lines import lines, number, whole
from hvlab.formats.names import MPI_DTYPES, OSU, OSU_BY_RANK, REDUCING, other_way
from hvlab.formats.sweep import Row, Sweep

_WRITTEN_AS = "7.5"
_ERROR = "# error: "
_TITLE = re.compile(
    r"#?\s*OSU (?P<library>\w+)(?:-(?P<device>\w+))? (?P<test>.+?) Test\s*(?:v(?P<version>\S+))?$"
)
_DATATYPE = re.compile(r"# Datatype: (MPI_\w+)")
_COLUMNS = re.compile(r"#\s*Size\s{2,}(.*)")
_WITHOUT_SIZE = re.compile(r"#\s*(Avg Latency\(us\).*)")
_ROW = re.compile(r"[\d.]{1,18}(?:\s+(?:[\d.eE+-]+|Pass|Fail))*")
_DEVICES = {None: "cpu", "CUDA": "cuda", "ROCM": "rocm"}
# What a column is called, and what it holds in our units: MB/s there are decimal.
_METRICS = {
    "Avg Latency(us)": ("time", 1.0),
    "Latency (us)": ("time", 1.0),
    "Avg Lat(us)": ("time", 1.0),
    "Min Latency(us)": ("time_min", 1.0),
    "Max Latency(us)": ("time_max", 1.0),
    "P50 Tail Lat(us)": ("time_median", 1.0),
    "Bandwidth (MB/s)": ("algbw", 1e-3),
    "Iterations": ("", 1.0),
    "Validation": ("", 1.0),
}
_SPREAD = ("time_min", "time_max")


def knows(text: str) -> bool:
    """Return whether this looks like the text of the OSU micro-benchmarks."""
    return any(_TITLE.match(line) for line, _ in lines(text))


def read(text: str) -> list[Sweep]:
    """Return what each benchmark in the text measured; sizes are still those of OSU."""
    found: list[_Open] = []
    for line, _ in lines(text):
        title = _TITLE.match(line)
        if title:
            found.append(_Open(title["library"], title["device"], title["test"], title["version"]))
        elif found:
            found[-1].take(line.strip())
    return [one.sweep() for one in found]


def scaled(sweep: Sweep, ranks: int | None) -> Sweep | None:
    """Return a sweep with hvlab's sizes; None where the number of ranks has to be known for that."""
    if sweep.workload not in OSU_BY_RANK:
        return sweep
    if not ranks:
        return None
    return replace(sweep, rows=tuple(replace(row, size=row.size * ranks) for row in sweep.rows))


def write(sweeps: Iterable[Sweep]) -> str:
    """Return what the OSU micro-benchmarks would have printed, one benchmark after the other."""
    return "".join(f"{line}\n" for sweep in sweeps for line in _lines(sweep))


@dataclass
class _Open:
    """One benchmark's output as far as it has been read."""

    library: str
    device: str | None
    test: str
    version: str | None
    titles: Sequence[str] = ("Avg Latency(us)",)
    sized: bool = True
    dtype: str | None = None
    iterations: int | None = None
    rows: list[Row] = field(default_factory=list)
    error: str | None = None
    origin: dict[str, Any] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """Take in one line."""
        if found := _COLUMNS.match(line):
            self.titles = re.split(r"\s{2,}", found[1].strip())
        elif found := _WITHOUT_SIZE.match(line):
            self.titles, self.sized = re.split(r"\s{2,}", found[1].strip()), False
        elif found := _DATATYPE.match(line):
            self.dtype = MPI_DTYPES.get(found[1])
        elif line.startswith(origin.MARK):
            self.origin = origin.read(line) or self.origin
        elif line.startswith(_ERROR):
            self.error = line.removeprefix(_ERROR)
        elif _ROW.fullmatch(line):
            cells = line.split()
            size = whole(cells.pop(0)) if self.sized else 0
            if size is not None:
                self._row(size, cells)

    def _row(self, size: int, cells: Sequence[str]) -> None:
        told = dict(zip(self.titles, cells, strict=False))
        figures = {}
        for title, cell in told.items():
            metric, factor = _METRICS.get(title, ("", 1.0))
            value = number(cell)
            if metric and value is not None:
                figures[metric] = value * factor
        self.iterations = whole(told.get("Iterations")) or self.iterations
        wrong = "the validation failed" if told.get("Validation") == "Fail" else None
        if figures and (size or not self.sized):
            self.rows.append(Row(size, figures, dtype=self.dtype, error=wrong))

    def sweep(self) -> Sweep:
        """Return what was read."""
        workload = OSU.get(self.test)
        op = "sum" if workload in REDUCING else None
        told = {
            "source": "osu",
            "tool": f"OSU Micro-Benchmarks {self.version or ''}".strip(),
            "library": self.library,
        }
        if not self.origin and any(name in row.figures for row in self.rows for name in _SPREAD):
            told["spread"] = "time_min and time_max are over the ranks"
        return Sweep(
            workload=workload or self.test.removesuffix(" Latency").lower().replace(" ", "-"),
            rows=tuple(replace(row, op=op) for row in self.rows),
            iterations=self.iterations,
            device=_DEVICES.get(self.device, (self.device or "").lower()),
            error=self.error or (None if self.rows else "there is no row in it"),
            about=told,
            origin=self.origin,
        )


def _lines(sweep: Sweep) -> Iterator[str]:
    full = bool(sweep.rows) and all(name in row.figures for row in sweep.rows for name in _SPREAD)
    device = {"cuda": "-CUDA", "rocm": "-ROCM"}.get(sweep.device or "", "")
    yield ""
    yield f"# OSU MPI{device} {other_way(OSU, sweep.workload)} Test v{_WRITTEN_AS}"
    dtype = other_way(MPI_DTYPES, sweep.rows[0].dtype) if sweep.rows else None
    if dtype in MPI_DTYPES:
        yield f"# Datatype: {dtype}."
    yield origin.line(sweep)
    if full:
        yield "# hvlab: Min and Max are over the iterations, of the mean over the ranks."
    yield f"{'# Size':<10}{'Avg Latency(us)':>18}" + (
        f"{'Min Latency(us)':>18}{'Max Latency(us)':>18}{'Iterations':>12}" if full else ""
    )
    share = (sweep.ranks or 1) if sweep.workload in OSU_BY_RANK else 1
    for row in sweep.rows:
        if "time" not in row.figures:
            continue
        shown = f"{row.size // share:<10d}{row.figures['time']:>18.2f}"
        if full:
            shown += (
                "".join(f"{row.figures[name]:>18.2f}" for name in _SPREAD) + f"{sweep.iterations or 0:>12d}"
            )
        yield shown
    if sweep.error:
        yield _ERROR + " ".join(sweep.error.split())
