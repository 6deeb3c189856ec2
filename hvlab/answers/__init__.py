"""The door through which what a host says comes in: JSON and text, of which nothing is believed.

JSON is limited in size and depth, holds finite numbers only, and has the shape that its reader says. Texts
lose what would steer a terminal or turn a page around.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn

from hvlab.answers.shapes import Shape, anything
from hvlab.errors import CheckError

# What case.py sends of a file at most.
LIMIT = 16 * 2**20
DEPTH = 64
_MIB = 2**20
_REMEDY = "run it again; where it comes again, `hvlab provision` puts the programs there anew"

# ECMA-48: control sequences, control strings up to their end or the line's, other escapes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# Controls but tab and newline; marks that reverse what follows; halves of characters, which no file can hold.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class AnswerError(CheckError):
    """A host sent something that cannot be what it should be."""

    def __init__(self, where: str, seen: str, *, remedy: str = _REMEDY) -> None:
        super().__init__(f"{where}: {seen}", remedy=remedy)
        self.seen = seen


def clean(text: str) -> str:
    """Return a text without escape sequences and control characters; lines and tabs stay."""
    if _CONTROLS.search(text):
        text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
        text = _CONTROLS.sub("", text)
    return text


def load(content: bytes | str, where: str, shape: Shape = anything, *, limit: int = LIMIT) -> Any:
    """Return what JSON holds. ``where`` names host and file, ``limit`` is in bytes.

    Raises AnswerError where it is too large, no UTF-8, no JSON, too deep, or not of the ``shape``.
    """
    if len(content) >= limit:
        raise AnswerError(where, f"it is {limit // _MIB} MiB or larger: no answer is that long")
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        value = json.loads(text, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise AnswerError(where, f"it is no UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise AnswerError(where, f"it is nested deeper than {DEPTH} levels") from error
    except json.JSONDecodeError as error:
        raise AnswerError(where, f"it is no JSON ({error.msg}, line {error.lineno})") from error
    except ValueError as error:
        raise AnswerError(where, f"it is no JSON ({error})") from error
    return checked(value, where, shape)


def checked(value: Any, where: str, shape: Shape = anything) -> Any:
    """Return a copy of what JSON held, with texts cleaned. Raises AnswerError as :func:`load` does."""
    value = _walked(value, where, DEPTH)
    wrong = shape(value, "it")
    if wrong:
        raise AnswerError(where, wrong.removeprefix("it."))
    return value


def read(path: Path, where: str, shape: Shape = anything, *, limit: int = LIMIT) -> Any:
    """Return what a JSON file holds; only as much of it is read as counts.

    Raises FileNotFoundError where there is none, else AnswerError.
    """
    try:
        with path.open("rb") as file:
            content = file.read(limit)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise AnswerError(where, f"{path} cannot be read: {error.strerror}", remedy="correct that") from error
    return load(content, where, shape, limit=limit)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _walked(value: Any, where: str, left: int) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise AnswerError(where, f"it holds {value}, which is no number")
    if not isinstance(value, dict | list):
        return value
    if not left:
        raise AnswerError(where, f"it is nested deeper than {DEPTH} levels")
    if isinstance(value, list):
        return [_walked(item, where, left - 1) for item in value]
    return {clean(str(name)): _walked(item, where, left - 1) for name, item in value.items()}
