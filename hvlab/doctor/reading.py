"""Reads a log: its causes, root causes first, and harmless noise. Pure."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hvlab.base.answers import clean
from hvlab.doctor import knowledge, last_words, stacks, text
from hvlab.doctor.cause import WEIGHTS, Cause, Sign
from hvlab.doctor.text import LogText, WrittenLine

# Maximum lines shown per entry, and their maximum width.
_SHOWN = 4
_WIDTH = 300
# Words by which a line looks like an error to people, and how much of it is searched for them.
_SUSPICIOUS = re.compile(
    r"\b(?:error|fatal|fail(?:ed|ure|s)?|exception|abort(?:ed|ing)?|killed|denied|refused|unable|cannot|can't"
    r"|could not|no such|not found|time[ds]? ?out|segmentation|panic|corrupt(?:ed)?|invalid)\b|error:"
    "|错误|失败|异常|无法",
    re.IGNORECASE,
)
_SEARCHED = 4096
# Said where the first cause is that a rank lost another.
LOST = "others noticed only this; the output of the rank that ended first, or came too late, is not here"
# What hvlab's own messages put before a remedy.
_REMEDY = "what to do:"
# Seconds of processor time for each MiB of a text: hosts may write text that is slow to search.
_MOST_S = 5.0
# Takes the place of a root cause where the search ended before one was found.
STOPPED = Cause(
    "search-stopped",
    title="this output takes too long to search, so known causes were not looked for",
    why="Some texts nearly match many patterns. The search is stopped so that nothing has to wait for it.",
    remedy="Give `hvlab doctor --log` the part around the first error.",
    source="https://docs.python.org/3/library/re.html",
    weight=WEIGHTS["crash"],
)


@dataclass(frozen=True)
class Recognised:
    """An entry that a log shows, and the lines it rests on: number from 1, and words without prefix.

    ``against`` are the lines that contradict it, ``says`` what the numbers in its lines mean;
    ``is_first_end``: a launcher tells in its lines which rank ended first.
    """

    cause: Cause
    lines: tuple[tuple[int, str], ...]
    count: int
    against: tuple[tuple[int, str], ...] = ()
    says: tuple[str, ...] = ()
    is_first_end: bool = False

    @property
    def nearness(self) -> float:
        """How near to the root it is: the first end of a rank stands before what others noticed of it."""
        if not self.is_first_end:
            return self.cause.weight
        nearest = "symptom" if self.cause.weight == WEIGHTS["end"] else "crash"
        return WEIGHTS[nearest] + 0.5

    @property
    def certainty(self) -> str:
        """``certain``, ``possible``, or ``failure``: what failed, by a cause that is not known."""
        if not self.cause.known:
            return "failure"
        sure = self.cause.weight <= WEIGHTS["setting"] and not self.against
        return "certain" if sure else "possible"

    def as_json(self) -> dict[str, Any]:
        """Return it for ``--format json``."""
        lines, against = ([{"number": n, "text": t} for n, t in rows] for rows in (self.lines, self.against))
        weighed = {"certainty": self.certainty, "against": against, "says": list(self.says)}
        return {**self.cause.as_json(), "lines": lines, "count": self.count, **weighed}


@dataclass(frozen=True)
class Diagnosis:
    """The reading of a log; root causes come first in ``causes``.

    ``stopped`` is the number of entries not looked for because the search took too long. ``stacks`` say where
    processes stand, if it has their stacks.
    """

    causes: tuple[Recognised, ...]
    harmless: tuple[Recognised, ...]
    stopped: int = 0
    stacks: tuple[str, ...] = ()


def diagnose(raw: Iterable[str], entries: Sequence[Cause] | None = None) -> Diagnosis:
    """Return the known causes that a log shows."""
    raw = [*raw]
    log = text.read(raw)
    end = time.thread_time() + _MOST_S * (1 + len(log.text) // 2**20)
    entries = knowledge.CAUSES if entries is None else entries
    noise = [entry for entry in entries if entry.harmless]
    faults = sorted((entry for entry in entries if not entry.harmless), key=lambda entry: entry.weight)
    harmless, left = _match(noise, log, end)
    rest = log.without({line for _, lines in harmless for line in lines})
    causes, more_left = _match(faults, rest, end)
    # The bare news that something failed is shown only if nothing says more.
    causes = [pair for pair in causes if pair[0].weight < WEIGHTS["unknown"]] or causes
    ends = last_words.ends(log) if causes else []
    shown = sorted(
        (_place(_weigh(_recognise(*pair), log), pair[1], ends) for pair in causes),
        key=lambda each: (bool(each.against), each.nearness, _place_in(log, each)),
    )
    if shown and shown[0].cause.weight == WEIGHTS["echo"]:
        shown[0] = replace(shown[0], says=(*shown[0].says, LOST))
    quiet = tuple(_weigh(_recognise(*pair), log) for pair in harmless)
    return Diagnosis(tuple(shown), quiet, left + more_left, tuple(stacks.read(raw)))


def _place_in(log: LogText, each: Recognised) -> tuple[int, int]:
    """Return where it begins: the number of the line, and the place, as one line may hold several."""
    number, words = each.lines[0]
    return number, log.text.find(words)


def _place(each: Recognised, lines: Sequence[WrittenLine], ends: Sequence[last_words.End]) -> Recognised:
    """Return it with the first end of a rank, if its lines tell that."""
    first = ends[0] if ends and not ends[0].noticed else None
    if not first or each.cause.known or first.lines.isdisjoint(line.number for line in lines):
        return each
    later = each.cause.weight > WEIGHTS["crash"]
    return replace(each, says=(*each.says, str(first)), is_first_end=later)


def _weigh(each: Recognised, log: LogText) -> Recognised:
    """Return it with what speaks against it, and with what its numbers mean."""
    against = [line for sign in each.cause.contradicting for line in _find_lines(sign, log, ())]
    says: dict[str, None] = {}
    for figures in each.cause.reads:
        agreed = []
        named = (
            figures.pattern.pattern.finditer(log.whole)
            if figures.names_ranks
            else figures.pattern.matches(log)
        )
        for match in named:
            if figures.agrees(match.groupdict()):
                agreed.append(match.groupdict())
            else:
                against += log.find_lines(match.start(), match.end())
        says |= dict.fromkeys(words for _, words in figures.tell(agreed))
    return replace(each, against=_distinct(against)[:_SHOWN], says=tuple(says)[:_SHOWN])


def suspects(raw: Sequence[str], diagnosis: Diagnosis) -> list[tuple[int, str]]:
    """Return the last lines that look like errors, without what is known to be harmless."""
    quiet = {number for each in diagnosis.harmless for number, _ in each.lines}
    likely = (
        (number, " ".join(clean(line).split())[:_WIDTH])
        for number, line in zip(range(len(raw), 0, -1), reversed(raw), strict=True)
        if number not in quiet and _SUSPICIOUS.search(line[:_SEARCHED])
    )
    return [*itertools.islice(likely, _SHOWN)][::-1]


def _match(
    entries: Sequence[Cause], log: LogText, end: float
) -> tuple[list[tuple[Cause, list[WrittenLine]]], int]:
    matched: list[tuple[Cause, list[WrittenLine]]] = []
    for at, entry in enumerate(entries):
        lines = _lines(entry, log, end)
        if lines is None:
            return matched, len(entries) - at
        if lines:
            matched.append((entry, lines))
    return matched, 0


def root(raw: Iterable[str]) -> Recognised | None:
    """Return the root cause, STOPPED if time ran out first; None if only symptoms are known."""
    diagnosis = diagnose(raw)
    nearest = next(iter(diagnosis.causes), None)
    # Lighter ones are searched first: where anything was found, time was not up before them.
    if nearest:
        return nearest if nearest.cause.weight < WEIGHTS["symptom"] else None
    left = f"{diagnosis.stopped} known causes were not looked for"
    return Recognised(STOPPED, ((0, left),), 1) if diagnosis.stopped else None


def cause_of(failure: str) -> Recognised | None:
    """Return the cause of a failure; None if its message says itself what to do, or nothing is known."""
    return None if _REMEDY in failure.lower() else root(failure.splitlines())


def _lines(entry: Cause, log: LogText, end: float) -> list[WrittenLine] | None:
    """Return the lines of a log that show an entry; empty if none do, None when time is up."""
    if entry.words and not any(map(log.has, entry.words)):
        return []
    lines = []
    for sign in entry.patterns:
        if time.thread_time() > end:
            return None
        lines += _find_lines(sign, log, entry.speakers)
    alone = {line.number for line in lines if not line.last}
    lines = [line for line in lines if not line.last or alone.isdisjoint(line.numbers)]
    if not lines or not all(sign.is_in(log) for sign in entry.needed):
        return []
    last = max(line.number for line in lines)
    later = (line for sign in entry.ending for line in _find_lines(sign, log, ()))
    if any(line.number > last for line in later):
        return []
    excluding = (line for sign in entry.excluded for line in _find_lines(sign, log, ()))
    return [] if any(not line.last for line in excluding) else lines


def _find_lines(sign: Sign, log: LogText, speakers: Sequence[str]) -> list[WrittenLine]:
    """Return the lines of a sign; where only some may say it, none that somebody else begins."""
    found = (log.find_lines(match.start(), match.end()) for match in sign.matches(log))
    return [
        line
        for lines in found
        if not speakers or not lines[0].speaker or lines[0].speaker in speakers
        for line in lines
    ]


def _recognise(entry: Cause, lines: list[WrittenLine]) -> Recognised:
    return Recognised(entry, _distinct(lines)[:_SHOWN], len({line.number for line in lines}))


def _distinct(lines: Iterable[WrittenLine]) -> tuple[tuple[int, str], ...]:
    """Return the number and the words of each, once for the same words, in the order of the log."""
    by_number = {line.number: line.text for line in sorted(lines, reverse=True)}
    distinct: dict[str, int] = {}
    for number in sorted(by_number):
        distinct.setdefault(by_number[number][:_WIDTH], number)
    return tuple((number, words) for words, number in distinct.items())
