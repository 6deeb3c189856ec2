"""An entry of the knowledge: its data, and the patterns that recognise it in a log."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import ConfigDict

from hvlab.base.ranges import format_ranges
from hvlab.doctor import xids
from hvlab.doctor.text import LogText

# How near to the root a cause is: in a log, the smallest comes first.
WEIGHTS = {
    "harmless": 0,
    "fact": 1,  # the line names the very thing that is wrong: a key, a file, a full disk, a dead GPU
    "setting": 2,  # what has to be set or installed differently
    "breakdown": 4,  # something broke, and this entry knows the usual reason
    "crash": 5,  # a process died, and only how is known
    "symptom": 6,  # what failed because something broke
    "echo": 7,  # what the others noticed of it
    "end": 8,  # the last words of a launcher, of a pod, of a build
    "unknown": 9,  # that something failed, and no more
}
# Shorter words are in too many texts to rule one out.
_LONG = 3


@dataclass(frozen=True)
class Figures:
    """Numbers that a line holds: ``sign`` names them as groups, ``says`` tells them in words.

    Where ``where`` (two groups and ``<``, ``==`` or ``!=`` between them) is not so, they contradict the
    cause. ``{xid}`` stands for what the table of Xids says of that number, ``{who}`` for ranks: matches that
    differ only in the rank are told together. ``kind`` is the finding of ``standing.yml`` that they show.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    sign: str
    says: str
    where: str = ""
    kind: str = ""

    @cached_property
    def pattern(self) -> Sign:
        """The pattern of ``sign``, ready to search."""
        return Sign(self.sign)

    @property
    def names_ranks(self) -> bool:
        """Whether its matches name ranks, each of which counts."""
        return "(?P<who>" in self.sign

    def agrees(self, numbers: Mapping[str, str | None]) -> bool:
        """Whether the numbers of a match fit the cause."""
        if not self.where:
            return True
        left, compared, right = self.where.split()
        return bool(_COMPARED[compared](str(numbers[left]), str(numbers[right])))

    def tell(self, found: Iterable[Mapping[str, str | None]]) -> Iterator[tuple[set[int], str]]:
        """Yield the ranks of matches, and their numbers in words; a list of ranks is told once."""
        alike: dict[object, tuple[set[int], dict[str, str]]] = {}
        for numbers in found:
            words = {
                name: xids.explain(n or "") if name == "xid" else n or ""
                for name, n in numbers.items()
                if name != "who"
            }
            ranks = {int(rank) for rank in re.findall(r"\d+", numbers.get("who") or "")}
            key = frozenset(ranks) if len(ranks) > 1 else tuple(words.values())
            alike.setdefault(key, (set(), words))[0].update(ranks)
        for ranks, words in alike.values():
            who = f"rank{'s' * (len(ranks) > 1)} {format_ranges([*ranks])}"
            yield ranks, " ".join(self.says.format(who=who, **words).split())


_COMPARED: Mapping[str, Callable[[str, str], bool]] = {
    "<": lambda one, other: float(one) < float(other),
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Cause:
    """One thing that goes wrong, or noise that looks like it (``weight`` is that of ``harmless``).

    ``signs`` are patterns, one of which in a log is enough; a cause without any is recognised only when
    hosts are asked (``hvlab.checks``). A blank in a pattern stands for any blanks, the end of a wrapped line
    among them. Where there are ``speakers``, a sign counts only in their lines, and in lines of nobody known
    (``knowledge/speakers.yml``). The log must also match all of ``needs`` and none of ``unless``. What
    matches ``against`` contradicts the cause: it sinks below all others. A later line that matches ``over``
    shows that it is past. ``examples`` are texts that show the cause, the first from ``seen_in``, or from
    ``source``; ``near`` looks like one but is not.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    title: str
    why: str
    remedy: str
    source: str
    weight: int
    signs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    reads: tuple[Figures, ...] = ()
    speakers: tuple[str, ...] = ()
    seen_in: str = ""
    examples: tuple[str, ...] = ()
    near: str = ""

    def as_json(self) -> dict[str, str]:
        """The parts that a user sees, for ``--format json``."""
        return {key: getattr(self, key) for key in ("id", "title", "why", "remedy", "source")}

    @property
    def harmless(self) -> bool:
        """Whether it only looks like a fault."""
        return self.weight == WEIGHTS["harmless"]

    @property
    def known(self) -> bool:
        """Whether it is a cause; else a failure, whose cause it does not know."""
        return self.weight < WEIGHTS["crash"]

    @cached_property
    def patterns(self) -> tuple[Sign, ...]:
        """The patterns of ``signs``, ready to search."""
        return tuple(map(Sign, self.signs))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Words of which a text that shows it has one; none where a pattern has none."""
        words = {word for sign in self.patterns for word in sign.words}
        return tuple(words) if all(sign.words for sign in self.patterns) else ()

    @cached_property
    def needed(self) -> tuple[Sign, ...]:
        """The patterns of ``needs``, ready to search."""
        return tuple(map(Sign, self.needs))

    @cached_property
    def excluded(self) -> tuple[Sign, ...]:
        """The patterns of ``unless``, ready to search."""
        return tuple(map(Sign, self.unless))

    @cached_property
    def ending(self) -> tuple[Sign, ...]:
        """The patterns of ``over``, ready to search."""
        return tuple(map(Sign, self.over))

    @cached_property
    def contradicting(self) -> tuple[Sign, ...]:
        """The patterns of ``against``, ready to search."""
        return tuple(map(Sign, self.against))


class Sign:
    """A pattern, and words of which each match has one: a text without them is not searched."""

    def __init__(self, written: str) -> None:
        self._written = written
        self.words = _words(written)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled once a log has one of the words: that takes longer than most searches."""
        return _compile(self._written)

    def matches(self, log: LogText) -> Iterator[re.Match[str]]:
        """Return its matches in a log."""
        if self.words and not any(map(log.has, self.words)):
            return iter(())
        return self.pattern.finditer(log.text)

    def is_in(self, log: LogText) -> bool:
        """Whether it is in a log."""
        return next(self.matches(log), None) is not None


# A character, an escape, a class or the end of a group, and how often it comes.
_ATOM = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^|^$(])(\+|\*|\?|\{\d+,\}|)", re.DOTALL)
_MOST, _MOST_GROUPS = 200, 20


def _compile(pattern: str) -> re.Pattern[str]:
    """Return the pattern with every repetition bounded, so that time grows with the text only.

    A blank that may be absent (``?``, ``*``) may still be any blanks.
    """
    return re.compile(_ATOM.sub(_bound, pattern), re.MULTILINE)


def _bound(match: re.Match[str]) -> str:
    atom, times = match.groups()
    if atom == " ":
        # Possessive: else what stands before and after a long gap is tried with every share of it.
        return rf"\s{{{int(times in ('', '+'))},{_MOST}}}+"
    if atom.startswith("["):
        atom = atom.replace(" ", r"\s")
    if times in ("", "?"):
        return atom + times
    least = times[1:-2] if times.startswith("{") else int(times == "+")
    return f"{atom}{{{least},{_MOST_GROUPS if atom == ')' else _MOST}}}"


_SINGLE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_GROUP = re.compile(r"\([^()]*\)")
_FIRST = re.compile(r"[\0^]*\*?\(\?:([^()]*)\)(?![*+?{])")
_REPEATED = re.compile(r".(?:[*+?]|\{\d*,?\d*\})[?+]?")
_OTHER = re.compile(r"[\0 .^$]+")


def _words(pattern: str) -> tuple[str, ...]:
    """Return words of which one is in each match: what it, or its first group, has; none if too short."""
    plain = written = _SINGLE.sub("\0", pattern)
    groups = 1
    while groups:
        plain, groups = _GROUP.subn("\0", plain)
    words = _longest(plain)
    first = None if words or "|" in plain else _FIRST.match(written)
    return _longest(first[1]) if first else words


def _longest(alternatives: str) -> tuple[str, ...]:
    words = [max(_OTHER.split(each), key=len) for each in _REPEATED.sub("\0", alternatives).split("|")]
    return tuple(words) if all(len(word) >= _LONG for word in words) else ()
