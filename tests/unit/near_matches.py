"""Texts that a pattern nearly matches, made from the pattern: what backtracks takes longest on them."""

import random
import re
import re._constants as op
import re._parser
from collections.abc import Iterator
from functools import lru_cache

# Characters that many classes share, so that neighbours in a pattern compete for them, and others.
COMMON = "x0 -./:[]'\"=,_\n"
CHARACTERS = COMMON + "".join(map(chr, range(33, 127)))
CATEGORIES = {
    op.CATEGORY_DIGIT: str.isdigit,
    op.CATEGORY_NOT_DIGIT: lambda c: not c.isdigit(),
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    op.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    op.CATEGORY_NOT_WORD: lambda c: not c.isalnum() and c != "_",
}
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
COUNTS = (0, 1, 3, 30, 200)
# Log lines are searched in pieces of this length.
LINE = 4096


def near_match(pattern: re.Pattern[str], seed: int, size: int) -> str:
    """Return ``size`` characters in which a part of what would match is repeated."""
    rnd = random.Random(f"{pattern.pattern!a} {seed}")  # noqa: S311 - the same each time
    pieces = list(_pieces(_parsed(pattern), rnd))
    end = max(len(pieces) - rnd.choice((0, 1, 1, 2, rnd.randrange(len(pieces) + 1))), 1)
    begin = rnd.choice((0, 0, rnd.randrange(end)))
    head, unit = "".join(pieces[:begin]), "".join(pieces[begin:end]) or "x"
    unit += rnd.choice(("", " ", "\n", "!"))
    text = (head + unit * (size // len(unit) + 1))[:size]
    return "\n".join(
        line[at : at + LINE] for line in text.split("\n") for at in range(0, len(line) or 1, LINE)
    )


@lru_cache(maxsize=1)
def _parsed(pattern: re.Pattern[str]) -> re._parser.SubPattern:
    return re._parser.parse(pattern.pattern, pattern.flags)


def _pieces(items: re._parser.SubPattern, rnd: random.Random) -> Iterator[str]:
    for kind, value in items:
        if kind == op.LITERAL:
            yield chr(value)
        elif kind in (op.NOT_LITERAL, op.ANY, op.IN):
            yield _character(kind, value, rnd)
        elif kind in REPEATS:
            least, most, inner = value
            times = min(max(rnd.choice(COUNTS), least), most)
            yield from list(_pieces(inner, rnd)) * times
        elif kind == op.BRANCH:
            yield from _pieces(rnd.choice(value[1]), rnd)
        elif kind == op.SUBPATTERN:
            yield from _pieces(value[-1], rnd)
        elif kind == op.ATOMIC_GROUP:
            yield from _pieces(value, rnd)
        elif kind == op.ASSERT and rnd.random() < 0.5:
            yield from _pieces(value[1], rnd)
        elif kind == op.AT and value == op.AT_BEGINNING:
            yield "\n"


def _character(kind: object, value: object, rnd: random.Random) -> str:
    named = "".join(chr(part[1]) for part in value if part[0] == op.LITERAL) if kind == op.IN else ""
    fitting = (c for c in CHARACTERS + named if _fits(kind, value, c))
    first = next(fitting, "")
    return first if rnd.random() < 0.7 else rnd.choice([first, *fitting])


def _fits(kind: object, value: object, character: str) -> bool:
    if kind == op.ANY:
        return character != "\n"
    if kind == op.NOT_LITERAL:
        return ord(character) != value
    negated = value[0][0] == op.NEGATE
    return negated != any(_has(part, character) for part in value[negated:])


def _has(part: tuple[object, object], character: str) -> bool:
    kind, value = part
    if kind == op.CATEGORY:
        return CATEGORIES[value](character)
    low, high = (value, value) if kind == op.LITERAL else value
    return low <= ord(character) <= high
