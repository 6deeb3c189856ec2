"""The lines of a log as the program wrote them, without what launchers and libraries added. Pure.

What stands before a line (a rank's tag, a time, a pod, a host) is learned from the file itself: it is what
stands before the lines that only the program writes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from hvlab.formats.names import DTYPES, REDOPS

_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LONGEST_PREFIX = 200
# What a prefix may have besides its own words: numbers, blanks, and names of days and months.
_PREFIX_PARTS = re.compile(
    r"(\d+)|( +)|\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun|[JFMASOND][a-z][a-z])\b|(.)", re.DOTALL
)
_WORDS = "|".join(sorted({*REDOPS, *DTYPES}, key=len, reverse=True))
# NCCL's own lines, host:pid:tid [gpu] NCCL ...; a program's unfinished line may stand right before one.
_DEBUG = re.compile(
    rf"(?P<kept>(?<=\s)(?:-1|N/A|\d{{1,18}}(?=[A-Za-z\[])|{_WORDS})|^|(?<=\s))"
    r"(?:\[[\d-]+ [\d:.]+\] )?[^\s:]+:\d+:\d+ \[-?\d+\] (?:\S+:\d+ )?NCCL .*"
)
_NUMBER = re.compile(r"[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][+-]?\d{1,3})?")
# What launchers, libraries and the tools themselves say of a launch that broke.
FAILURE = re.compile(
    r"Test (?:CUDA|NCCL|HIP) failure.*|Test failure .*|Invalid number of GPUs.*|Caught signal \d+.*"
    r"|Signal: \S.*|[Ss]egmentation fault.*|Bus error.*|MPI_A(?:bort|BORT).*|\[?Abort\(\d+\).*"
    r"|(?:mpirun|mpiexec|prterun)\S* (?:noticed|detected) that .*|.*exited on signal .*|.*BAD TERMINATION.*"
    r"|(?:srun|slurmstepd): error: .*|.*DUE TO TIME LIMIT.*|Fatal error in .*|.*Assertion `.* failed.*"
    r"|.*error while loading shared libraries.*|\bKilled$|\*\*\* An error occurred in .*"
)


class LogLine(NamedTuple):
    """A line of a log: its number from 1, what the program wrote, and what a library put at its end."""

    number: int
    text: str
    debug: str = ""


def lines(text: str, written: re.Pattern[str]) -> Iterator[LogLine]:
    """Yield each line of the program; ``written`` matches the beginning of lines that only it writes."""
    plain = [_TERMINAL.sub("", line) for line in text.splitlines()]
    prefix = _prefixes(plain, written)
    for number, line in enumerate(plain, 1):
        own = line[match.end() :] if (match := prefix.match(line)) else line
        kept = _DEBUG.sub(r"\g<kept>", own)
        yield LogLine(number, kept.rstrip(), "" if kept == own else own)


def _prefixes(plain: list[str], written: re.Pattern[str]) -> re.Pattern[str]:
    """Return what matches that which stands before the program's own lines, longest first."""
    shapes = {""}
    for line in plain:
        match = written.search(line)
        if match and 0 < match.start() <= _LONGEST_PREFIX:
            before = line[: match.start()]
            # Numbers alone would be the row's own, and # the table's.
            if before.isspace() or not re.fullmatch(r"[\d\s.]*|\s*#\s*", before):
                shapes.add(_PREFIX_PARTS.sub(_part, before))
    return re.compile("|".join(sorted(shapes, key=len, reverse=True)))


def _part(match: re.Match[str]) -> str:
    number, blanks, name, other = match.groups()
    if number:
        return r"\d+"
    if blanks:
        return f" {{0,{len(blanks)}}}"
    return "[A-Z][a-z]{2}" if name else re.escape(other)


def number(token: object) -> float | None:
    """Return a finite number; None for N/A and all else that is none."""
    if isinstance(token, bool):
        return None
    if isinstance(token, int | float):
        return float(token) if abs(token) < 2**63 else None
    if isinstance(token, str) and _NUMBER.fullmatch(token):
        value = float(token)
        return value if math.isfinite(value) else None
    return None


def whole(token: object) -> int | None:
    """Return a whole number that any database holds; None for all else."""
    if isinstance(token, str):
        return int(token) if re.fullmatch(r"\s*-?\d{1,18}", token) else None
    if isinstance(token, int) and not isinstance(token, bool) and abs(token) < 2**63:
        return token
    return None


def impossible(values: dict[str, float]) -> str | None:
    """Return which figure no launch can have: a time of nothing, or anything below; by metric."""
    for name, value in values.items():
        if value < 0 or (value == 0 and name.startswith("time")):
            return f"{name} is {value:g}, which nothing measured can be"
    return None
