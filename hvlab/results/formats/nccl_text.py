"""The text of nccl-tests, of any version, into the tool's JSON; nccl_document writes it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hvlab.base.errors import CheckError
from hvlab.results.formats import nccl_document, nccl_json, nccl_rows
from hvlab.results.formats.launch import Launch, read_origin
from hvlab.results.formats.lines import ORIGIN, LogLine, failure, lines, parse_whole
from hvlab.results.formats.names import EITHER, HALVES, PROGRAMS

_TOOL = (
    r"#.*\b(?:nThread \d+|[nr]ccl-tests version|Collective test starting|Using devices)"
    rf"|{nccl_rows.HEAD.pattern}"
)
_HEAD = re.compile(f"{ORIGIN}|{_TOOL}")
# Lines that only the program writes; anything before them is its launcher's.
_WRITTEN = re.compile(
    r"#\s*(?:nThread \d|[nr]ccl-tests version |Collective test starting|Using devices)"
    rf"|{nccl_rows.HEAD.pattern}|{nccl_rows.ROW}"
)
_DEVICE = re.compile(
    r"#\s+Rank\s+(?P<rank>\d{1,6})\s+(?:Group\s+(?P<group>\d{1,6})\s+)?(?:Pid\s+\d+\s+)?(?:on\s(?P<hostname>[^\[]{0,200}?))?"
    r"\bdevice\s+\d+\s+\[(?P<bus>[^\]]*)\]\s*(?P<device_info>.*)"
)
# A web page takes the # for a heading's: these stand without it, too.
_BARE = re.compile(
    r"\s*(?:nThread \d|Rank\s+\d+\s+(?:Group\s+\d+\s+)?(?:Pid\s+\d+\s+)?(?:on\s[^\[]{0,200})?\bdevice\s"
    r"|size\s+count\s+type\b|Out of bounds values|Avg bus bandwidth)"
)
_PROGRAM = re.compile(rf"(?<![a-z_])({'|'.join(PROGRAMS)})_perf(?:_mpi)?\b")
_STARTING = re.compile(r"# Collective test starting: (\w{1,40}_perf)\b")
_COMMAND = re.compile(r"(?<![\w./~-])[\w./~-]*_perf(?:_mpi)?\s+-{1,2}[a-zA-Z].*")
_FOOTER = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})\s*(\w*)")
# Such first lines imply such last ones in every version (nccl-tests' src/common.cu, cbe7f65 of 2019).
_FIRST = re.compile(r"#\s*(?:nThread \d|Collective test starting)")
_LAST = re.compile(r"#\s*(?:Out of bounds values|Avg bus bandwidth|Collective test concluded)")
_ERROR = re.compile(r"#\s*error: (.*)")
_VERSION = re.compile(r"# [nr]ccl-tests version (\S+)(?:.*[nr]ccl-library=(\d{3,6}))?")
_LIBRARY = re.compile(r"\b[NR]CCL version\s?:? (\d{1,4}\.\d{1,4}\.\d{1,4})")
_RCCL = re.compile(r"\brccl-tests|device +\d+ \[\S+\] AMD ")
_ENVIRONMENT = re.compile(r"NCCL INFO (NCCL_\w+) set by environment to (.+?)\.?$")
_QUIET = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
# The launch in the header, under the keys of the JSON.
_CONFIG = {
    "nthreads": r"\bnThread (\d{1,9})",
    "ngpus": r"\bnGpus (\d{1,9})",
    "warmup_iters": r"\bwarmup iters: (\d{1,9})",
    "iterations": r"(?<!warmup )(?<!agg )\biters: (\d{1,9})",
    "aggregated_iterations": r"\bagg iters: (\d{1,9})",
    "graph": r"\bgraph: (\d{1,9})",
    "unalign": r"\bunalign: (\d{1,9})",
}
_CLEAR_GB_S = 1.0
_UNCHECKED = ("time", "alg_bw", "bus_bw")
# Its ratio is 4/3, that of sendrecv 1.
_ALLREDUCE_OF_3 = 1.2


def knows(text: str) -> bool:
    """Recognise the text of nccl-tests."""
    return any(re.match(f"{_TOOL}|\\s*{nccl_rows.ROW}", line.text) for line in lines(text, _WRITTEN))


def read(text: str) -> list[Launch]:
    """Parse the results of each program. Raises CheckError if independent ranks mixed their output."""
    library = _LIBRARY.search(text)
    outputs = [_Output()]
    for line in nccl_rows.mend(lines(text, _WRITTEN)):
        if _HEAD.match(line.text) and outputs[-1].ended:
            outputs.append(_Output(program=outputs[-1].next_program, command=outputs[-1].next_command))
        outputs[-1].add(line)
    return [
        launch
        for output in outputs
        if output.begun or output.results
        for launch in nccl_json.launches(
            output.document(library[1] if library else None),
            empty=None if output.origin else "the output ends before the first row",
        )
    ]


@dataclass
class _Output:
    program: str | None = None
    command: str | None = None
    next_program: str | None = None
    next_command: str | None = None
    version: str | None = None
    library: int | None = None
    device: str = "cuda"
    devices: list[dict[str, str]] = field(default_factory=list)
    lists: int = 0
    results: list[dict[str, Any]] = field(default_factory=list)
    table: nccl_rows.TableHead = field(default_factory=nccl_rows.TableHead)
    above: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    footers: int = 0
    wrong: int = 0
    error: str | None = None
    begun: bool = False
    first: bool = False
    last: bool = False
    number: int = 0
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """A header that follows is that of another program."""
        return bool(self.results or self.footers or self.error)

    def add(self, line: LogLine) -> None:
        """Add the content of a line."""
        self.number = max(self.number, line.number)
        if result := nccl_rows.parse(line.text, self.table, f"line {line.number}"):
            self.results.append(result)
        elif line.text.lstrip().startswith("#") or _BARE.match(line.text):
            self._read_comment(f"# {line.text.lstrip('# ')}")
        elif match := _PROGRAM.search(line.text):
            command = command[0].strip() if (command := _COMMAND.search(line.text)) else None
            self.next_program, self.next_command = match[1], command
            if not (self.begun or self.ended):
                self.program, self.command = match[1], command
        elif (broken := failure(line.text)) and not self.footers:
            self.error = self.error or broken
        if _RCCL.search(line.text):
            self.device = "rocm"
        if match := _ENVIRONMENT.search(line.debug):
            self.environment |= {match[1]: match[2]} if match[1] not in _QUIET else {}
        self.above = line.text or self.above

    def _read_comment(self, line: str) -> None:
        self.begun = self.begun or bool(_HEAD.match(line))
        self.first = self.first or bool(_FIRST.match(line))
        if _LAST.match(line):
            self.last, self.table = True, replace(self.table, read=False)
        if match := _DEVICE.match(line):
            if int(match["rank"]) == 0:
                self.devices, self.lists = [], self.lists + 1
            columns = match.groupdict("")
            self.devices.append({name: text.strip() for name, text in columns.items()})
        elif nccl_rows.HEAD.match(line):
            self.table = nccl_rows.head(line, self.above)
        elif match := _FOOTER.match(line):
            self.footers += 1
            self.wrong = int(match[1]) if match[2] != "OK" else 0
        elif match := _ERROR.match(line):
            self.error = match[1]
        elif match := _VERSION.match(line):
            self.version, self.library = match[1], parse_whole(match[2])
        elif line.startswith(ORIGIN):
            self.origin = read_origin(line)
        elif match := _PROGRAM.search(line) or _STARTING.match(line):
            self.program = match[1]
        elif line.startswith("# Blocking Enabled"):
            self.config["blocking_collectives"] = "true"
        for key, pattern in _CONFIG.items() if "minBytes" in line else ():
            if match := re.search(pattern, line):
                self.config[key] = int(match[1])

    def _cut(self) -> str | None:
        if self.last or self.origin or not (self.first and self.results):
            return None
        return f"line {self.number}: the output was cut before '# Out of bounds values', rows may be missing"

    def document(self, library: str | None) -> dict[str, Any]:
        """Return the parsed text in the form of the tool's JSON; ``library`` is NCCL's own version."""
        if self.lists > 1 and self.footers > 1:
            raise CheckError(
                f"{self.lists} programs printed into one another: rank 0 is listed {self.lists} times before"
                " the first row, and nothing says which row is whose",
                remedy="each rank ran alone: build nccl-tests with MPI=1, or give each its own file",
            )
        error = self.error or self._cut()
        return {
            "hvlab": self.origin,
            "args": [self.program or _guess(self.results, len(self.devices))],
            "command": self.command,
            "device": self.device,
            "env": [f"{name}={value}" for name, value in self.environment.items()],
            "nccl_tests_version": self.version,
            "nccl_version": self.library or nccl_document.version_code(library),
            "config": {**self.config, "devices": self.devices},
            "results": self.results,
            "out_of_bounds": {"count": self.wrong},
            "errors": [error] if error else [],
        }


def _guess(results: Sequence[Mapping[str, Any]], ranks: int) -> str | None:
    """Guess the program of old versions, which do not name it, by its columns and busbw/algbw."""
    results = [result for result in results if "refused" not in result]
    halves = [result[half] for result in results for half in (*HALVES, EITHER) if half in result]
    ratios = [
        half["bus_bw"] / half["alg_bw"] for half in halves
        if half.get("alg_bw", 0) >= _CLEAR_GB_S and "bus_bw" in half
    ]  # fmt: skip
    if not ratios:
        return None
    first = next(result for result in results if any(half in result for half in (*HALVES, EITHER)))
    root = parse_whole(first["root"])
    rooted = root is not None and root >= 0
    # 2(n-1)/n is at least 1, (n-1)/n is below; of more than two ranks, some may not be listed.
    whole = ratios[-1] > 1 - 0.5 / (ranks or 64)
    if first["redop"] == "none":
        if rooted:
            return "broadcast" if whole else None
        return {True: "all_gather", False: "alltoall", None: None}[_checks_in_place(first)]
    if rooted or ranks == 1:
        return "reduce" if rooted else "all_reduce" if ratios[-1] > _ALLREDUCE_OF_3 else None
    if _checks_in_place(first) is False or (ranks > 2 and whole and ratios[-1] < _ALLREDUCE_OF_3):  # noqa: PLR2004
        return "sendrecv"
    return "all_reduce" if whole else "reduce_scatter"


def _checks_in_place(row: Mapping[str, Any]) -> bool | None:
    """Whether values were checked in place, too; alltoall and sendrecv never do. None: nowhere."""
    checked = [len(row.get(half, {})) > len(_UNCHECKED) for half in HALVES]
    return checked[1] if any(checked) and all(half in row for half in HALVES) else None
