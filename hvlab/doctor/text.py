"""A log as text that can be searched: no colours, no prefixes, each rank's lines together. Pure."""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Of lines that differ in numbers only, so many count; and of a line, so many characters.
_ALIKE = 12
_LONGEST = 64 * 1024
# So much of lines that differ is searched, from the beginning and up to the end.
_HEAD, _TAIL = 1024 * 1024, 2 * 1024 * 1024
_TERMINAL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][A-B0-2]|[=>])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Ansible writes what a program printed as one line of JSON.
_ESCAPED_END = re.compile(r"(?:\\r)?\\n|\\r(?=\\n)")
_DIGITS = re.compile(r"\d+|0x[0-9a-f]+")
# A terminal's width: lines cut at it go on in the next one.
_NARROWEST, _WIDEST = 78, 250
_MOST_PREFIXES = 6
# Who writes: a rank of mpirun, horovodrun, torchrun or srun, an actor of Ray, a pod, a container.
_WRITER = re.compile(
    r"\[\d+,(?:mpirank:)?\d+[^\]\s]{0,60}\](?:<std(?:out|err|diag)>)?: ?|\[\d+\]<std(?:out|err)>: ?"
    r"|\[(?:default|rank)\d+\]: ?|\(\w{1,60} pid=\d+(?:, ip=[\d.]+)?\) ?|\d{1,5}: +(?=\S)"
    r"|\[(?:pod/)?[\w.-]{1,120}/[\w.-]{1,80}\] |[\w.-]{1,80} +\| |[\w.-]{1,80}-(?:worker|launcher)-\w{1,10}: "
)
# When and by what: it says nothing of who writes.
_STAMP = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:? *"
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?"
    r"(?: \S{1,80} [\w./-]{1,60}(?:\[\d+\])?:)? *"
    r"|\[ *\d{1,10}\.\d{4,6}\] *|[EWIF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d+ \S{1,80}\] *|std(?:out|err) [FP] "
    r"|#\d+ \d+\.\d+ |> |\| (?=\S)"
)


class WrittenLine(NamedTuple):
    """A line: its number in the file, from 1, who wrote it, and its words."""

    number: int
    writer: str
    text: str


class LogText:
    """Lines as one text to search, those of each writer beside one another."""

    def __init__(self, lines: Iterable[WrittenLine]) -> None:
        order: dict[str, int] = {}
        self.lines = sorted(lines, key=lambda line: order.setdefault(line.writer, len(order)))
        self._starts = []
        at = 0
        for line in self.lines:
            self._starts.append(at)
            at += len(line.text) + 1
        self.text = "\n".join(line.text for line in self.lines)

    def between(self, start: int, end: int) -> list[WrittenLine]:
        """Return the lines that hold the characters from ``start`` up to ``end``."""
        first = bisect.bisect_right(self._starts, start) - 1
        last = bisect.bisect_left(self._starts, max(end, start + 1))
        return self.lines[first:last]

    def without(self, lines: set[WrittenLine]) -> LogText:
        """Return the same text without these lines."""
        return LogText(line for line in self.lines if line not in lines)


def read(raw: Iterable[str]) -> LogText:
    """Return what a log says; ``raw`` are its lines, as a file gives them."""
    return LogText(_distinct(_unwrapped(_plain(raw))))


def _plain(raw: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(raw, 1):
        # A progress bar writes over its own line.
        for part in line[:_LONGEST].rstrip("\r\n").split("\r"):
            text = _UNPRINTABLE.sub("", _TERMINAL.sub("", part)).rstrip(" ")
            if text.strip():
                yield number, text


def _unwrapped(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Add what a terminal may have cut at its width, put together: the longest lines, of one length."""
    every = list(lines)
    yield from every
    lengths = Counter(len(text) for _, text in every)
    width = max(lengths, default=0)
    if not _NARROWEST <= width <= _WIDEST or lengths[width] == 1:
        return
    whole: tuple[int, str] | None = None
    for number, text in every:
        whole = (whole[0], whole[1] + text) if whole else (number, text)
        if len(text) == width and len(whole[1]) < _LONGEST:
            continue
        if len(whole[1]) > width:
            yield whole
        whole = None


def _distinct(lines: Iterable[tuple[int, str]]) -> Iterator[WrittenLine]:
    alike: Counter[str] = Counter()
    kept: list[tuple[int, str, str]] = []
    for number, text in lines:
        writer, rest = _parted(text)
        shape = _DIGITS.sub("0", rest)
        alike[shape] += 1
        if alike[shape] <= _ALIKE:
            kept.append((number, writer, rest))
    total = sum(len(rest) for _, _, rest in kept)
    size = 0
    for number, writer, rest in kept:
        size += len(rest)
        if _HEAD < size <= total - _TAIL:
            continue
        for part in _ESCAPED_END.split(rest):
            if part.strip():
                yield WrittenLine(number, writer, part.strip())


def _parted(text: str) -> tuple[str, str]:
    writer = ""
    rest = text.lstrip()
    for _ in range(_MOST_PREFIXES):
        match = _WRITER.match(rest)
        if match:
            writer += _mark(match.group())
        else:
            match = _STAMP.match(rest)
        if not match or match.end() == len(rest):
            break
        rest = rest[match.end() :].lstrip()
    return writer, rest


def _mark(prefix: str) -> str:
    return re.sub(r"<std\w+>|\s", "", prefix)
