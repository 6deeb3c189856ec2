"""Secret values of environment variables: kept out of records, reports and output.

Names show which variables are secret: HF_TOKEN, WANDB_API_KEY, AWS_SECRET_ACCESS_KEY. Pure.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

# Replaces a value.
HIDDEN = "***"
_WORDS = (
    r"(?:TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PGPASSWORD|SSHPASS|PAT|CREDENTIALS?"
    r"|(?:API|ACCESS|PRIVATE)_KEY)"
)
# A number of a language model's tokens is no secret.
_NAME = rf"(?!(?:MAX|MIN|NUM)_(?:[A-Z0-9_]+_)?TOKENS)(?:[A-Z0-9_]+_)?{_WORDS}(?:_[A-Z0-9_]+)?"
# Any variable: a pattern of the secret ones alone would try each of many words in a name to the name's end.
_ASSIGNED = re.compile(r"(?:(?<![A-Za-z0-9_])|(?<=(?<![^\s'\"])-e))([A-Z0-9_]+)\+?=")
_LOST = re.compile(_ASSIGNED.pattern + re.escape(HIDDEN))
# What begins an argument of a program, perhaps after the name of an option, or docker's -e.
_ARGUMENT = re.compile(rf"(?:-{{0,2}}[A-Za-z_][\w.-]*=|-e)?{_NAME}\+?=")
_MAY_BE = re.compile(_WORDS)
# Parts of a word as a shell has them.
_PIECES = re.compile(
    r"""(?:\$\((?:[^()]|\([^()]*\))*\)?|`[^`]*`?|"(?:\\.|[^"\\])*"?|'[^']*'?|\\.|[^\s'"\\])*""", re.DOTALL
)
# A group where a quote ends.
_QUOTE = re.compile(r"""\\.|"(?:\\.|[^"\\])*(")?|'[^']*(')?""", re.DOTALL)


def hides(name: str) -> bool:
    """Whether a variable of that name holds a secret."""
    return bool(re.fullmatch(_NAME, name))


def mask_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a program, masked; one that begins with such a variable is all of it."""
    shown = []
    for word in argv:
        start = _ARGUMENT.match(word)
        shown.append(f"{start[0]}{HIDDEN}" if start and start.end() < len(word) else mask(word))
    return tuple(shown)


def mask(value: Any) -> Any:
    """Return a text, or what JSON holds, masked: assignments to such variables, and environments."""
    if isinstance(value, str):
        return _mask_line(value) if _MAY_BE.search(value) else value
    if isinstance(value, Mapping):
        return {name: HIDDEN if hides(str(name)) else mask(inner) for name, inner in value.items()}
    return type(value)(map(mask, value)) if isinstance(value, list | tuple) else value


def mask_json(text: str) -> Any:
    """Parse JSON and mask it; a text without such a name is not traversed."""
    value = json.loads(text)
    return mask(value) if _MAY_BE.search(text) else value


def is_masked(value: Any) -> bool:
    """Whether a text, or what JSON holds, has lost the value of a variable."""
    if isinstance(value, str):
        return any(hides(lost[1]) for lost in _LOST.finditer(value))
    if isinstance(value, Mapping):
        return HIDDEN in value.values() or any(map(is_masked, value.values()))
    return isinstance(value, list | tuple) and any(map(is_masked, value))


def _mask_line(text: str) -> str:
    """Return a line of a shell, masked: a value ends where the word does, or the quotes around it."""
    parts: list[str] = []
    place = 0
    quotes = list(_QUOTE.finditer(text))
    for assignment in _ASSIGNED.finditer(text):
        if assignment.start() < place or not hides(assignment[1]):
            continue
        begin = assignment.end()
        closing = _closing(quotes, assignment.start())
        pieces = _PIECES.match(text, closing or begin)
        end = pieces.end() if pieces else begin
        parts += [text[place:begin], HIDDEN if end - begin > bool(closing) else ""]
        parts += [text[closing - 1]] if closing else []
        place = end
    return "".join([*parts, text[place:]])


def _closing(quotes: Sequence[re.Match[str]], name: int) -> int:
    """Return the end of the quotes around a name and its value; 0 without quotes or without an end."""
    place = bisect_right(quotes, name, key=re.Match.end)
    around = quotes[place] if place < len(quotes) else None
    return around.end() if around and around.start() < name and around.lastindex else 0
