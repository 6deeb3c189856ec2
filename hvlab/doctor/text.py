"""A log as searchable text: no colours, no prefixes, each rank's lines together. Pure."""

from __future__ import annotations

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from hvlab.base.answers import clean
from hvlab.doctor import recorders, speakers

# Maximum number of lines kept that differ only in numbers, or not at all; maximum length of a line, and of
# the pieces in which it is searched.
_ALIKE = 12
_SAME = 100
_LONGEST = 64 * 1024
_SEARCHED = 4 * 1024
# Bytes searched at the beginning and at the end of a large log.
_HEAD, _TAIL = 1024 * 1024, 2 * 1024 * 1024
# Compilers quote as the language of the shell does; some terminals then show three other characters.
_QUOTES = re.compile("[\u2018\u2019]|\u00e2\u20ac[\u02dc\u2122]")
# A missing header as clang, nvcc and Microsoft's compiler report it; patterns know gcc's words.
_HEADER = re.compile(
    r"'([\w./+-]{1,200})' file not found|cannot open source file \"([\w./+-]{1,200})\""
    r"|Cannot open include file: '([\w./+-]{1,200})'"
)
# Ansible writes what a program printed as one line of JSON.
_ESCAPED_END = re.compile(r"(?:\\r)?\\n|\\r(?=\\n)")
_DIGITS = re.compile(r"\d+|0x[0-9a-f]+")
# Widths of terminals, which wrap longer lines.
_NARROWEST, _WIDEST = 78, 250
_USUAL = (80, 100, 120, 132)
_RULE = re.compile(r"(\W)\1{9}\s*$")
_MOST_PREFIXES = 6
# Levels of Python's logging and those like it.
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)"
# Who writes: a rank of mpirun, horovodrun, torchrun or srun, an actor of Ray, a pod, a container; not the
# host of an outcome that Ansible goes on telling in the next lines.
_WRITER = re.compile(
    r"\[(?:[\w.-]{1,80}@)?\d+,(?:mpirank:)?\d+[^\]\s]{0,60}\]"
    r"(?:\[[\w.-]{1,80}:\d+\])?(?:<std(?:out|err|diag)>)?: ?"
    r"|\[\d+\]<std(?:out|err)>: ?|\[(?:default|rank)\d+\]: ?"
    r"|\(\w{1,60} pid=\d+(?:, ip=[\d.]+)?\) ?|\d{1,5}: +(?=\S)"
    r"|\[(?:pod/)?[\w.-]{1,120}/[\w.-]{1,80}\] "
    rf"|(?!{_LEVEL} )[\w.-]{{1,80}} +\| (?![A-Z]{{2,}}!? (?:=>|\|))"
    r"|[\w.-]{1,80}-(?:worker|launcher)-\w{1,10}: "
    # stern: pod and container. The names of pods end with five characters of those that Kubernetes takes.
    r"|[a-z0-9][a-z0-9.-]{0,80}-(?:[bcdfghjklmnpqrstvwxz2456789]{5} [a-z0-9-]{1,40}"
    r"|worker-\d{1,4} [a-z0-9-]{0,20}(?:mpi|worker|pytorch|tensorflow|horovod)[a-z0-9-]{0,20}) (?=\S)"
)
# Several writes of a rank in one line: mpirun puts its mark before each.
_AGAIN = re.compile(r"(\[\d+(?:,\d+)?\])<std(?:out|err|diag)>:")
# pdsh, clush: the host, before every line.
_HOST = re.compile(r"([A-Za-z][\w.-]{0,60}\d[\w.-]{0,60}): ")
# Time and program: they do not say which rank writes.
_STAMP = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d(?:[T ]|, )\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| UTC|[+-]\d\d:?\d\d)?\]?:? *"
    r"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?"
    r"(?: \S{1,80} [\w./-]{1,60}(?:\[\d+\])?:)? *"
    r"|\[ *\d{1,10}\.\d{4,6}\] *|[EWIF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d+ \S{1,80}\] *|std(?:out|err) [FP] "
    r"|#\d+ \d+\.\d+ |>> \d{1,7} +(?=\S)|> |\| (?=\S)"
    # The level, and where in the program.
    rf"|(?:- (?:\S{{1,80}} - )?|\{{\S{{1,80}}:\d{{1,6}}\}} ){_LEVEL} - |{_LEVEL} +\| \S{{1,120}}:\d{{1,6}} - "
    rf"|\[{_LEVEL}\] +(?:\[[\w./-]{{1,80}}:\d{{1,6}}(?::\w{{1,80}})?\] +)?"
)
# Never the rest of a wrapped line: ranks, times, NCCL's prefix, a program's name, ssh's own words.
_BEGUN = re.compile(
    rf"\[{{1,2}}[\w.@:-]{{0,80}}\d[\],]|{_STAMP.pattern}|\S{{1,80}}:\d+:\d+ \[\d+\] "
    r"|(?:sbatch|srun|salloc|sinfo|slurm\w{1,8}): (?:error|fatal|warning): "
    r"|ssh: (?:Could not resolve hostname|connect to host) |Warning: Permanently added '"
)


class WrittenLine(NamedTuple):
    """A line: its number in the file, from 1, who wrote it, and its words.

    ``last`` is the number of the last line that it is put together of, 0 where it stands so in the file.
    ``speaker`` is the program that says it, a name in ``knowledge/speakers.yml``; empty if unknown.
    """

    number: int
    writer: str
    text: str
    last: int = 0
    speaker: str = ""

    @property
    def numbers(self) -> range:
        """The numbers of the lines it is put together of."""
        return range(self.number, max(self.last, self.number) + 1)


class LogText:
    """Lines as one text to search, those of each writer beside one another.

    ``whole`` has every line, with its mark.
    """

    def __init__(self, lines: Iterable[WrittenLine], whole: str = "") -> None:
        self.whole = whole
        order: dict[str, int] = {}
        self.lines = sorted(lines, key=lambda line: order.setdefault(line.writer, len(order)))
        self._starts = []
        at = 0
        for line in self.lines:
            self._starts.append(at)
            at += len(line.text) + 1
        self.text = "\n".join(line.text for line in self.lines)
        self._has: dict[str, bool] = {}

    @cached_property
    def _vocabulary(self) -> str:
        return " ".join(set(self.text.split()))

    def has(self, word: str) -> bool:
        """Whether a word, or a part of one, is in it."""
        if word not in self._has:
            self._has[word] = word in self._vocabulary
        return self._has[word]

    def find_lines(self, start: int, end: int) -> list[WrittenLine]:
        """Return the lines that hold the characters from ``start`` up to ``end``."""
        first = bisect.bisect_right(self._starts, start) - 1
        last = bisect.bisect_left(self._starts, max(end, start + 1))
        return self.lines[first:last]

    def without(self, lines: set[WrittenLine]) -> LogText:
        """Return the same text without these lines, and without what they are put together of or part of."""
        if not lines:
            return self
        together = {line.numbers for line in lines if line.last}
        pieces = {number for numbers in together for number in numbers}
        every = pieces | {line.number for line in lines}
        return LogText(
            line
            for line in self.lines
            if line not in lines
            and (line.numbers in together or (every if line.last else pieces).isdisjoint(line.numbers))
        )


def read(raw: Iterable[str]) -> LogText:
    """Parse a log; ``raw`` are its lines, as a file gives them."""
    lines = [*_unwrap(_split_hosts(_read_plain(recorders.put_in_words([*raw]))))]
    return LogText(_distinct(lines), "\n".join(line.text for line in lines))


def _read_plain(raw: Iterable[str]) -> Iterator[WrittenLine]:
    times: Counter[str] = Counter()
    for number, line in enumerate(raw, 1):
        times[line] += 1
        if times[line] > _SAME:
            continue
        # A progress bar writes over its own line.
        for part in line.rstrip("\r\n").split("\r"):
            text = _QUOTES.sub("'", clean(part))
            if text.strip():
                yield WrittenLine(number, "", text)


def _split_hosts(lines: Iterable[WrittenLine]) -> list[WrittenLine]:
    every = list(lines)
    hosts = [match for line in every if (match := _HOST.match(line.text))]
    if len(hosts) < max(len(every), 2):
        return every
    return [
        line._replace(writer=host[1], text=line.text[host.end() :])
        for line, host in zip(every, hosts, strict=True)
    ]


def _unwrap(every: list[WrittenLine]) -> Iterator[WrittenLine]:
    """Rejoin lines that a terminal cut at its width: a line of that length goes on in the next one.

    Lines that may only happen to have one length stay as well, with what they would be together after them.
    """
    shapes: dict[int, set[str]] = {}
    for line in every:
        if _NARROWEST <= len(line.text) <= _WIDEST and not _RULE.search(line.text):
            shapes.setdefault(len(line.text), set()).add(_DIGITS.sub("0", line.text))
    longest = max((len(line.text) for line in every), default=0)
    ended = _ends(every, longest)
    cut = (longest in _USUAL or len(shapes.get(longest, ())) > 1) and sum(ended) * 2 < len(ended)
    together = []
    at = 0
    while at < len(every):
        first, width, size = at, len(every[at].text), 0
        at += 1
        while width in shapes and size < _LONGEST and at < len(every) and not _BEGUN.match(every[at].text):
            size += width
            at += 1
            if len(every[at - 1].text) != width:
                break
        pieces = every[first:at]
        whole = pieces[0]._replace(text="".join(piece.text for piece in pieces))
        if cut and width == longest:
            yield whole
            continue
        at -= len(pieces) > 1 and len(pieces[-1].text) != width
        yield from every[first:at]
        if len(pieces) > 1:
            together.append(whole._replace(last=pieces[-1].number))
    yield from together


def _ends(every: list[WrittenLine], width: int) -> list[bool]:
    """Return for each line of that width whether it probably ends there, by what follows."""
    return [
        after is None
        or after.text.startswith("  ")
        or after.text.lstrip("[('")[:1].isupper()
        or bool(_BEGUN.match(after.text))
        or _first_word(after) == _first_word(line)
        for line, after in itertools.zip_longest(every, every[1:])
        if len(line.text) == width and not _RULE.search(line.text)
    ]


def _first_word(line: WrittenLine) -> str:
    return _DIGITS.sub("0", line.text.split(maxsplit=1)[0])


def _distinct(lines: Iterable[WrittenLine]) -> Iterator[WrittenLine]:
    alike: Counter[str] = Counter()
    kept: list[WrittenLine] = []
    for line in lines:
        writer, stamps, rest = _split(line.text)
        if not rest:
            continue
        for at, part in enumerate(_parts(rest)):
            # Each line that a program printed into JSON has its own time and speaker.
            marks, stamps, words = _split(part) if at else ("", stamps, part)
            shape = _DIGITS.sub("0", words)
            alike[shape] += 1
            if words and alike[shape] <= _ALIKE:
                speaker = speakers.of(stamps, words)
                kept.append(line._replace(writer=line.writer + writer + marks, text=words, speaker=speaker))
    total = sum(len(line.text) for line in kept if not line.last)
    size = 0
    middle: set[int] = set()
    for line in kept:
        if line.last:
            if middle.isdisjoint(line.numbers):
                yield line
            continue
        size += len(line.text)
        if _HEAD < size <= total - _TAIL:
            middle.add(line.number)
        else:
            yield line


def _parts(text: str) -> Iterator[str]:
    """Split a line at escaped line ends; keep both ends of a long line, in pieces."""
    lines = _ESCAPED_END.split(text)
    for part in lines:
        plain = part.replace('\\"', '"') if len(lines) > 1 else part
        short = _HEADER.sub(_explain_missing, plain.strip())
        half = _LONGEST // 2
        ends = [short] if len(short) <= _LONGEST else [short[:half], short[-half:]]
        for end in ends:
            yield from (end[at : at + _SEARCHED] for at in range(0, len(end), _SEARCHED))


def _explain_missing(header: re.Match[str]) -> str:
    return f"{header[header.lastindex or 0]}: No such file or directory"


def split_writers(raw: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield who wrote a line, and its words: of every line, however many are alike."""
    lines = [WrittenLine(number, "", clean(line)) for number, line in enumerate(raw, 1) if line.strip()]
    for line in _split_hosts(lines):
        writer, _, rest = _split(line.text)
        yield line.writer + writer, rest


def _split(text: str) -> tuple[str, str, str]:
    """Return the marks of the rank, the last time or program before the line, and the line."""
    writer = stamp = ""
    rest = text.lstrip()
    for _ in range(_MOST_PREFIXES):
        match = _WRITER.match(rest)
        if match:
            writer += _mark(match.group())
        else:
            match = _STAMP.match(rest)
            stamp = match.group() if match else stamp
        if not match:
            break
        rest = rest[match.end() :].lstrip()
    if "]<std" in rest:
        rest = _AGAIN.sub(lambda mark: "" if mark[1] in writer else mark[0], rest)
    return writer, stamp, rest


def _mark(prefix: str) -> str:
    return re.sub(r"<std\w+>|\s", "", prefix)
