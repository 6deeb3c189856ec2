"""The text of nccl-tests, of any version: what its programs measured. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from hvlab.errors import CheckError
from hvlab.formats import nccl_rows, origin
from hvlab.formats.lines import lines
from hvlab.formats.names import PROGRAMS
from hvlab.formats.nccl_rows import Columns
from hvlab.formats.nccl_sweep import Device, about, guess, placed
from hvlab.formats.sweep import Sweep

# The head of the table until early 2019, when times were in milliseconds.
_OLD = r"#\s+bytes\s+N\s+type\b"
_TOOL = (
    r"#.*\b(?:nThread \d+|nccl-tests version|Collective test starting|Using devices)"
    rf"|#\s+size\s+count\s+type\b|{_OLD}"
)
_HEAD = re.compile(f"{origin.MARK}|{_TOOL}")
_DEVICE = re.compile(
    r"#\s+Rank\s+(?P<rank>\d{1,6})\s+(?:Group\s+(?P<group>\d{1,6})\s+)?(?:Pid\s+\d+\s+)?on\s+(?P<host>\S+)"
    r"\s+device\s+\d+\s+\[[^\]]*\]\s*(?P<name>.*)"
)
_PROGRAM = re.compile(rf"(?<![a-z_])({'|'.join(PROGRAMS)})_perf(?:_mpi)?\b")
_FOOTER = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\s*(\w*)")
_FAILURE = re.compile(r"Test (?:CUDA|NCCL) failure.*|Test failure .*|Invalid number of GPUs.*")
_TOLD = re.compile(r"#\s*error: (.*)")
_VERSION = re.compile(r"# nccl-tests version (\S+)(?:.*nccl-library=(\d{3,6}))?")
_LIBRARY = re.compile(r"\bNCCL version (\d+\.\d+\.\d+)")
_ITERATIONS = re.compile(r"warmup iters: (\d{1,9}) iters: (\d{1,9})")


def knows(text: str) -> bool:
    """Return whether this looks like the text of nccl-tests."""
    return any(re.match(_TOOL, line) or nccl_rows.parse(line) for line, _ in lines(text))


def read(text: str) -> list[Sweep]:
    """Return what each program in the text measured.

    Raises CheckError where ranks that ran apart printed into one another.
    """
    library = _LIBRARY.search(text)
    found = [_Open()]
    for line in nccl_rows.mended(lines(text)):
        if _HEAD.match(line) and found[-1].ended:
            found.append(_Open(program=found[-1].next_program))
        found[-1].take(line)
    return [one.sweep(library and library.group(1)) for one in found if one.begun or one.columns]


@dataclass
class _Open:
    """One program's output as far as it has been read."""

    program: str | None = None
    next_program: str | None = None
    version: str | None = None
    library: str | None = None
    devices: list[Device] = field(default_factory=list)
    lists: int = 0
    columns: list[Columns] = field(default_factory=list)
    unit: float = 1.0
    iterations: tuple[int, int] | None = None
    footers: int = 0
    failed: int = 0
    error: str | None = None
    begun: bool = False
    origin: dict[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Return whether a head that follows is that of another program."""
        return bool(self.columns or self.footers or self.error)

    def take(self, line: str) -> None:
        """Take in one line."""
        columns = nccl_rows.parse(line)
        if columns:
            self.columns.append(replace(columns, unit=self.unit))
        elif line.startswith("#"):
            self._comment(line)
        elif found := _PROGRAM.search(line):
            self.next_program = found.group(1)
            self.program = self.program if self.begun or self.ended else found.group(1)
        elif (found := _FAILURE.search(line)) and not self.footers:
            self.error = self.error or found.group(0)

    def _comment(self, line: str) -> None:
        self.begun = self.begun or bool(_HEAD.match(line))
        if found := _DEVICE.match(line):
            device = Device(
                int(found["rank"]), int(found["group"] or 0), found["host"], found["name"].strip()
            )
            if device.rank == 0:
                self.devices, self.lists = [], self.lists + 1
            self.devices.append(device)
        elif re.match(_OLD, line):
            self.unit = 1e3
        elif found := _FOOTER.match(line):
            self.footers += 1
            self.failed = int(found[1]) if found[2] != "OK" else 0
        elif found := _TOLD.match(line):
            self.error = found[1]
        elif found := _VERSION.match(line):
            self.version, self.library = found[1], found[2]
        elif line.startswith(origin.MARK):
            self.origin = origin.read(line)
        elif found := _PROGRAM.search(line):
            self.program = found[1]
        if found := _ITERATIONS.search(line):
            self.iterations = int(found[1]), int(found[2])

    def sweep(self, library: str | None) -> Sweep:
        """Return what was read."""
        if self.lists > 1 and self.footers > 1:
            raise CheckError(
                f"{self.lists} programs printed into one another: rank 0 is listed {self.lists} times before"
                " the first row, so it cannot be told which row is whose",
                remedy="each rank ran alone: build nccl-tests with MPI=1, or give each its own file",
            )
        rows = [row for columns in self.columns for row in columns.rows() if row.size]
        error = self.error
        if self.failed and not any(row.error for row in rows):
            error = error or f"out of bounds values: {self.failed}"
        elif not rows and not self.origin:
            error = error or "the output ends before the first row"
        hosts, slots, ranks = placed(self.devices)
        return Sweep(
            workload=PROGRAMS.get(self.program or "") or guess(self.columns, ranks),
            rows=tuple(rows),
            ranks=ranks,
            hosts=hosts,
            slots=slots,
            iterations=self.iterations and self.iterations[1],
            warmup=self.iterations and self.iterations[0],
            device="cuda",
            error=error,
            about=about(self.version, self.library or library, self.devices),
            origin=self.origin,
        )
