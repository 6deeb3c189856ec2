"""The lines of a log as the program wrote them: unpacked, without additions of launchers and libraries. Pure.

The prefix of a line (a rank's tag, a time, a pod, a host) is learned from the file: it is whatever stands
before the lines that only the program writes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hvlab.base.errors import UsageError
from hvlab.results.formats.names import DTYPES, REDOPS

# Begins the line with which hvlab adds data that a tool's own format cannot hold.
ORIGIN = "# hvlab: "
# Lines are cut here; only hvlab's own are longer. Patterns must take linear time: no open beginning, and no
# two adjacent parts that match the same.
_LONGEST = 64 * 1024
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LONGEST_PREFIX = 200
# One for each launcher and library that writes in the same file; the rare ones are no prefixes.
_MOST_PREFIXES = 100
# Varying parts of a prefix: numbers, blanks, and names of days and months.
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
# Words of launchers, libraries and the tools about a broken launch: at the start of the error, or inside it.
_FAILURE = re.compile(
    r"Test (?:CUDA|NCCL|HIP) failure|Test failure |Invalid number of GPUs|Caught signal \d"
    r"|Signal: \S|[Ss]egmentation fault|Bus error|MPI_A(?:bort|BORT)|\[?Abort\(\d"
    r"|(?:mpirun|mpiexec|prterun)\S{0,40} (?:noticed|detected) that |(?:srun|slurmstepd): error: "
    r"|Fatal error in |\bKilled$|\*\*\* An error occurred in "
    r"|(?P<inside>exited on signal |BAD TERMINATION|DUE TO TIME LIMIT|Assertion `[^`]* failed"
    r"|error while loading shared libraries)"
)


class LogLine(NamedTuple):
    """A line of a log: its number from 1, the program's own text, and a library's text at its end."""

    number: int
    text: str
    debug: str = ""


def lines(text: str, written: re.Pattern[str]) -> Iterator[LogLine]:
    """Yield each line of the program; ``written`` matches the start of lines that only it writes."""
    plain = [
        line if line.startswith(ORIGIN) else _TERMINAL.sub("", line[:_LONGEST]) for line in text.splitlines()
    ]
    prefix = _prefixes(plain, written)
    for number, line in enumerate(plain, 1):
        if line.startswith(ORIGIN):
            yield LogLine(number, line.rstrip())
            continue
        own = line[match.end() :] if (match := prefix.match(line)) else line
        kept = _DEBUG.sub(r"\g<kept>", own)
        yield LogLine(number, kept.rstrip(), "" if kept == own else own)


def failure(line: str) -> str | None:
    """Return the error of a failed launch that a line reports, if any."""
    match = _FAILURE.search(line)
    if match is None:
        return None
    return (line if match["inside"] else line[match.start() :]).strip()


def _prefixes(plain: list[str], written: re.Pattern[str]) -> re.Pattern[str]:
    """Return a pattern for prefixes of the program's own lines, longest first."""
    shapes: Counter[str] = Counter()
    for line in plain:
        match = None if line.startswith(ORIGIN) else written.search(line)
        if match and 0 < match.start() <= _LONGEST_PREFIX:
            before = line[: match.start()]
            # Numbers alone would be the row's own, and # the table's.
            if before.isspace() or not re.fullmatch(r"[\d\s.]*|\s*#\s*", before):
                shapes[_PREFIX_PARTS.sub(_part, before)] += 1
    usual = [shape for shape, _ in shapes.most_common(_MOST_PREFIXES)]
    return re.compile("|".join([*sorted(usual, key=len, reverse=True), ""]))


def _part(match: re.Match[str]) -> str:
    number, blanks, name, other = match.groups()
    if number:
        return r"\d++"
    if blanks:
        return f" {{0,{len(blanks)}}}+"
    return "[A-Z][a-z]{2}" if name else re.escape(other)


def number(token: object) -> float | None:
    """Return a finite number; None for N/A and anything else."""
    if isinstance(token, bool):
        return None
    if isinstance(token, int | float):
        return float(token) if abs(token) < 2**63 else None
    if isinstance(token, str) and _NUMBER.fullmatch(token):
        value = float(token)
        return value if math.isfinite(value) else None
    return None


def parse_whole(token: object) -> int | None:
    """Return a whole number that any database can hold; None for anything else."""
    if isinstance(token, str):
        return int(token) if re.fullmatch(r"\s*-?\d{1,18}", token) else None
    if isinstance(token, int) and not isinstance(token, bool) and abs(token) < 2**63:
        return token
    return None


def impossible(values: dict[str, float]) -> str | None:
    """Describe a figure, by metric, that no launch can have: zero time, or a negative value."""
    for name, value in values.items():
        if value < 0 or (value == 0 and name.startswith("time")):
            return f"{name} is {value:g}, which nothing measured can be"
    return None


# A small hostile file may unpack to more than the memory holds.
_LARGEST = 256 * 2**20
_PACKED: Mapping[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
# Containers' output as docker keeps it, and tasks' output as Ansible prints it.
_DOCKER = re.compile(r'\{"log": ?"')
_ANSIBLE = re.compile(r'^\s*"(?:\[[\d,]+\]<stdout>:)?#', re.MULTILINE)
_STRING = re.compile(r'\s*("(?:[^"\\]|\\.)*"),?\s*')


def text_of(content: bytes, name: str) -> str:
    """Return the text of a file that may be compressed, in any Unicode encoding, or within JSON.

    Undecodable bytes become U+FFFD. Raises UsageError for a compressed file that is damaged or too large.
    """
    plain = _unpack(content, name)
    encoding = next((encoding for mark, encoding in _MARKS if plain.startswith(mark)), "utf-8")
    text = plain.decode(encoding, errors="replace")
    if not (_DOCKER.match(text) or _ANSIBLE.search(text)):
        return text
    return "\n".join(map(_strip_mark, text.splitlines()))


def _unpack(content: bytes, name: str) -> bytes:
    opened = next((opened for magic, opened in _PACKED.items() if content.startswith(magic)), None)
    if opened is None:
        return content
    try:
        with opened(io.BytesIO(content)) as packed:
            plain = bytes(packed.read(_LARGEST + 1))
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise UsageError(f"{name} is damaged: {error}", remedy="fetch it again") from error
    if len(plain) > _LARGEST:
        raise UsageError(
            f"{name} holds more than {_LARGEST >> 20} MiB", remedy="unpack it, and cut it into parts"
        )
    return plain


def _strip_mark(line: str) -> str:
    try:
        if _DOCKER.match(line):
            return str(json.loads(line)["log"]).rstrip("\r\n")
        if match := _STRING.fullmatch(line):
            return str(json.loads(match[1]))
    except ValueError:
        pass
    return line
