"""The text of the OSU micro-benchmarks, read from any version, and written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hvlab.base.errors import CheckError
from hvlab.results.formats.launch import (
    Launch,
    LaunchRow,
    origin_line,
    read_origin,
    shares,
    with_digits,
    with_figures,
)
from hvlab.results.formats.lines import ORIGIN, LogLine, failure, impossible, lines, number, parse_whole
from hvlab.results.formats.names import MPI_DTYPES, OSU, OSU_BY_MESSAGE, OSU_COLUMNS, REDUCING, reverse

ERROR = "# error: "
_DEVICES = {"": "cpu", "CUDA": "cuda", "ROCM": "rocm"}
_DEVICE = re.compile(r"-(CUDA|ROCM|SYCL|OPENACC|MANAGED)\b")
_TITLE = re.compile(
    r"\s*(?:#\s*)?OSU (?P<library>MPI|NCCL|RCCL|XCCL|OpenSHMEM|UPC\+\+|UPC)(?:_(?P<call>\w+))?"
    r" (?P<test>.+?) Test\s*(?:v(?P<version>\S+))?$"
)
# Lines that only the program writes; anything before them is its launcher's.
_WRITTEN = re.compile(r"#? ?OSU (?:MPI|NCCL|RCCL|XCCL|OpenSHMEM|UPC)\S* .{1,100} Test|# Size\s+\S")
# Without a size: barriers, whose non-blocking one has no # before its head.
_HEAD = re.compile(
    r"#?\s*(?:(?P<size>Size)\s+|(?=Avg Lat|Overall ?\(|Bandwidth ?\(|MB/s))(?P<heads>[^=\s][^=]*)$"
)
_COLUMN = re.compile(r"(?:[^\s()]+ ){0,3}?[^\s()]*\([^()]*\)|\S+")
_CELL = re.compile(r"-?[\d.]+(?:[eE][+-]?\d+)?|-?nan|-?inf|Pass|Fail|N/A|-")
# Every figure has two digits after its point (FLOAT_PRECISION): with fewer, the line was cut.
_CUT = re.compile(r"\d+(?:\.\d?)?")
_COMMAND = re.compile(r"(?<!\S)\S*osu_[a-z_]{1,40}(?:\s.*)?$")
# Lines between a title and its table on how the test was launched.
_BUFFERS = re.compile(r"# Send Buffer on (\w+)\b.* Receive Buffer on (\w+)")
_BRACKETS = re.compile(r"\[ ([\w ]+): (\S+) \]")
_SETTING = re.compile(r"# ([A-Z][\w ]{2,40}): (.+)")
_BY_LETTERS = {head.replace(" ", ""): column for head, column in OSU_COLUMNS.items()}
_NO_FIGURES = ("Iterations", "Validation")


def knows(text: str) -> bool:
    """Recognise the text of the OSU micro-benchmarks."""
    return any(_title(line.text) for line in lines(text, _WRITTEN))


def read(text: str) -> list[Launch]:
    """Parse each benchmark, sizes as OSU counts them. Raises CheckError if benchmarks mixed their output."""
    benchmarks: list[_Benchmark] = []
    command = None
    for line in lines(text, _WRITTEN):
        if title := _title(line.text):
            benchmarks.append(_Benchmark(*title, command))
            command = None
        elif _COMMAND.search(line.text) and not (line.text.lstrip().startswith("#") or failure(line.text)):
            command = line.text.strip(" $")
        elif benchmarks:
            benchmarks[-1].add(line)
    return [each.launch() for each in benchmarks]


def _title(line: str) -> tuple[re.Match[str], str] | None:
    title = _TITLE.match(_DEVICE.sub("", line, count=1))
    device = _DEVICE.search(line)
    return (title, device[1] if device else "") if title else None


@dataclass
class _Benchmark:
    title: re.Match[str]
    device: str
    command: str | None
    heads: list[str] = field(default_factory=list)
    sized: bool = True
    dtype: str | None = None
    rows: list[LaunchRow] = field(default_factory=list)
    last: int = -1
    error: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, None] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    def add(self, line: LogLine) -> None:
        """Add the content of a line below the title."""
        text = line.text.strip()
        tokens = text.split()
        if text.startswith("#") or _HEAD.match(text):
            self._read_comment(text)
        elif broken := failure(text):
            self.error = self.error or broken
        elif len(tokens) > self.sized and all(map(_CELL.fullmatch, tokens)):
            self._read_row(tokens, f"line {line.number}")
        elif len(tokens) > 1 and self.sized and self.rows and all(map(number, tokens[:2])):
            self.rows.append(self._refuse(tokens, f"line {line.number}", "it contains other words"))
        elif self.sized and self.heads and (size := parse_whole(text)) is not None and size > self.last:
            self.rows.append(self._refuse(tokens, f"line {line.number}", "cut after its size"))

    def _read_comment(self, text: str) -> None:
        if match := _HEAD.match(text):
            self.heads = _COLUMN.findall(match["heads"])
            self.sized, self.last = bool(match["size"]), -1
        elif match := re.match(r"# Datatype: (MPI_\w+)", text):
            self.dtype, self.last = MPI_DTYPES.get(match[1], match[1]), -1
        elif text.startswith(ORIGIN):
            self.origin = read_origin(text) or self.origin
        elif text.startswith(ERROR):
            self.error = text.removeprefix(ERROR)
        elif match := _BUFFERS.match(text):
            self.settings["buffers"] = " ".join(match.groups())
        elif match := _SETTING.match(text):
            self.settings[match[1].lower().replace(" ", "_")] = match[2]
        self.settings |= {name.replace(" ", "_"): value for name, value in _BRACKETS.findall(text)}

    def _read_row(self, tokens: list[str], place: str) -> None:
        cells = tokens[1:] if self.sized else tokens
        if len(cells) != len(self.heads) or (_CUT.fullmatch(cells[-1]) and self.heads[-1] != "Iterations"):
            heads = ", ".join(self.heads) or "none"
            self.rows.append(self._refuse(tokens, place, f"cut, or not of the columns {heads}"))
            return
        size = (parse_whole(tokens[0]) or 0) if self.sized else 0
        if self.sized and size <= self.last:
            raise CheckError(
                f"{place}: {size} bytes come after {self.last} in one table of {self.title[0].strip('# ')}",
                remedy="two programs printed into one another, or a title is missing: give each its own file",
            )
        self.last = size
        row = dict(zip(self.heads, cells, strict=True))
        values = _values(row)
        self.left_out |= dict.fromkeys(
            head for head in self.heads if _letters(head) not in _BY_LETTERS and head not in _NO_FIGURES
        )
        if not values:
            self.rows.append(self._refuse(tokens, place, f"hvlab has no metric for {', '.join(self.heads)}"))
        elif self.sized and not size:
            self.left_out["rows of 0 bytes"] = None
        else:
            error = "the validation failed" if row.get("Validation") == "Fail" else None
            if refused := impossible(values):
                error = f"{place}: {refused}"
            iterations, checked = parse_whole(row.get("Iterations")), row.get("Validation") == "Pass"
            self.rows.append(
                LaunchRow(
                    size,
                    values,
                    dtype=self.dtype,
                    iterations=iterations,
                    checked=checked,
                    place=place,
                    error=error,
                )
            )

    def _refuse(self, tokens: list[str], place: str, why: str) -> LaunchRow:
        size = max(parse_whole(tokens[0]) or 0, 0) if self.sized else 0
        return LaunchRow(size, dtype=self.dtype, error=f"{place}: {' '.join(tokens)[:60]!r} is no row: {why}")

    def launch(self) -> Launch:
        """Return the measured values."""
        title, workload = self.title, self._workload()
        op = "sum" if workload in REDUCING else None
        iterations = {row.iterations for row in self.rows if not row.error}
        same = iterations.pop() if len(iterations) == 1 else None
        spread = any({"time_min", "time_max"} & row.values.keys() for row in self.rows)
        stack = {
            "source": "osu",
            "tool": f"OSU Micro-Benchmarks {title['version'] or ''}".strip(),
            "library": title["library"],
        }
        if spread and not self.origin:
            stack["spread"] = "time_min and time_max are over the ranks"
        return Launch(
            workload=workload,
            rows=with_digits(
                (replace(row, op=op, iterations=None if same else row.iterations) for row in self.rows),
                self.origin,
            ),
            iterations=same,
            device=_DEVICES.get(self.device, self.device.lower()),
            error=self.error or (None if self.rows else "it has no rows"),
            settings=self.settings | ({"command": self.command} if self.command else {}),
            left_out=tuple(self.left_out),
            stack=stack,
            origin=self.origin,
        )

    def _workload(self) -> str:
        """Return hvlab's word for a collective, else the tool's; one-sided tests begin with their call."""
        call, test = self.title["call"], self.title["test"]
        if not call and test in OSU:
            return OSU[test]
        words = f"{call} {test}" if call or test.startswith("Multi") else test.removesuffix(" Latency")
        return re.sub(r"\W+|_", "-", words.removeprefix("None ").lower())


def _letters(head: str) -> str:
    return head.replace(" ", "")


def _values(row: Mapping[str, str]) -> dict[str, float]:
    values = {}
    for head, cell in row.items():
        value = number(cell)
        if _letters(head) in _BY_LETTERS and value is not None:
            metric, factor = _BY_LETTERS[_letters(head)]
            values[metric] = value * factor
    return values


_WRITTEN_AS = "7.5"
_AVERAGE = ("Avg Latency(us)",)
_FULL = (*_AVERAGE, "Min Latency(us)", "Max Latency(us)")


def write(measured: Iterable[Launch]) -> str:
    """Return the text that the OSU micro-benchmarks would have printed, one after the other."""
    return "".join(f"{line}\n" for launch in measured for line in _print_lines(launch))


def _print_lines(launch: Launch) -> Iterator[str]:
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
        values = (row.values[OSU_COLUMNS[head][0]] / OSU_COLUMNS[head][1] for head in heads)
        iterations = f"{launch.iterations:>12d}" * full if full else ""
        yield f"{row.size:<10d}" + "".join(f"{value:>18.2f}" for value in values) + iterations
    if launch.error:
        yield ERROR + " ".join(launch.error.split())
