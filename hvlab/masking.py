"""Values of environment variables that nobody else is to read: kept out of records, reports and output.

Which variables these are, their names say: HF_TOKEN, WANDB_API_KEY, AWS_SECRET_ACCESS_KEY. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

# What stands in the place of a value.
HIDDEN = "***"
_WORDS = r"(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(?:API|ACCESS|PRIVATE)_KEY)"
_NAME = rf"(?:[A-Z0-9_]+_)?{_WORDS}(?:_[A-Z0-9_]+)?"
_ASSIGNED = re.compile(rf"(?<![A-Za-z0-9_]){_NAME}=")
_LOST = re.compile(_ASSIGNED.pattern + re.escape(HIDDEN))
# What begins an argument of a program, perhaps after the name of an option.
_ARGUMENT = re.compile(rf"(?:-{{0,2}}[A-Za-z_][\w.-]*=)?{_NAME}=")
_MAY_BE = re.compile(_WORDS)
# Parts of a word as a shell has them.
_PIECES = re.compile(r"""(?:"(?:\\.|[^"\\])*"?|'[^']*'?|\\.|[^\s'"\\])*""", re.DOTALL)
_IN_DOUBLE, _IN_SINGLE = re.compile(r"(?:\\.|[^\"\\])*\"", re.DOTALL), re.compile(r"[^']*'")
_QUOTE = re.compile(r"""\\.|"(?:\\.|[^"\\])*"?|'[^']*'?""", re.DOTALL)


def hides(name: str) -> bool:
    """Return whether a variable of that name holds what is to be kept secret."""
    return bool(re.fullmatch(_NAME, name))


def masked_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a program, masked; one that begins with such a variable is all of it."""
    shown = []
    for word in argv:
        start = _ARGUMENT.match(word)
        shown.append(f"{start[0]}{HIDDEN}" if start and start.end() < len(word) else masked(word))
    return tuple(shown)


def masked(value: Any) -> Any:
    """Return a text, or what JSON holds, masked: assignments to such variables, and environments."""
    if isinstance(value, str):
        return _masked(value) if _MAY_BE.search(value) else value
    if isinstance(value, Mapping):
        return {name: HIDDEN if hides(str(name)) else masked(inner) for name, inner in value.items()}
    return type(value)(map(masked, value)) if isinstance(value, list | tuple) else value


def masked_json(text: str) -> Any:
    """Return what a text of JSON holds, masked; one without such a name is not walked through."""
    value = json.loads(text)
    return masked(value) if _MAY_BE.search(text) else value


def is_masked(value: Any) -> bool:
    """Return whether a text, or what JSON holds, has lost the value of a variable."""
    if isinstance(value, str):
        return bool(_LOST.search(value))
    if isinstance(value, Mapping):
        return HIDDEN in value.values() or any(map(is_masked, value.values()))
    return isinstance(value, list | tuple) and any(map(is_masked, value))


def _masked(text: str) -> str:
    """Return a line of a shell, masked: a value ends where the word does, or the quotes around it."""
    parts: list[str] = []
    place = 0
    for assignment in _ASSIGNED.finditer(text):
        if assignment.start() < place:
            continue
        begin = assignment.end()
        closing = _closing(text, assignment.start(), begin)
        pieces = _PIECES.match(text, closing or begin)
        end = pieces.end() if pieces else begin
        parts += [text[place:begin], HIDDEN if end - begin > bool(closing) else ""]
        parts += [text[closing - 1]] if closing else []
        place = end
    return "".join([*parts, text[place:]])


def _closing(text: str, name: int, value: int) -> int:
    """Return where the quotes around a name and its value end; 0 where there are none, or no end."""
    around = next((quoted for quoted in _QUOTE.finditer(text) if quoted.end() > name), None)
    if around is None or around.start() >= name or around[0][0] == "\\":
        return 0
    end = (_IN_DOUBLE if around[0][0] == '"' else _IN_SINGLE).match(text, value)
    return end.end() if end else 0
