"""Validates everything received from hosts, JSON and text. Nothing is trusted.

JSON is limited in size and depth, holds finite numbers only, and has the shape that its reader asks for: a
type that pydantic checks (``shapes``). Control sequences for terminals are removed from texts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from hvlab.base.errors import CheckError

# Maximum bytes that case.py sends of a file.
LIMIT = 16 * 2**20
DEPTH = 64
_MIB = 2**20
_SHOWN = 40
_LONG = 10**_SHOWN
_REMEDY = "retry; if it happens again, `hvlab provision` reinstalls the programs"

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
    """A host sent something invalid."""

    def __init__(self, where: str, observed: str, *, remedy: str = _REMEDY) -> None:
        super().__init__(f"{where}: {observed}", remedy=remedy)
        self.observed = observed


def clean(text: str) -> str:
    """Return a text without escape sequences and control characters; lines and tabs stay."""
    if _CONTROLS.search(text):
        text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
        text = _CONTROLS.sub("", text)
    return text


def load(content: bytes | str, where: str, shape: Any = Any, *, limit: int = LIMIT) -> Any:
    """Parse JSON. ``where`` names host and file, ``limit`` is in bytes.

    Raises AnswerError if it is too large, no UTF-8, no JSON, too deep, or not of the ``shape``.
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
    return check(value, where, shape)


def check(value: Any, where: str, shape: Any = Any) -> Any:
    """Return a copy of what JSON held, with texts cleaned. Raises AnswerError as :func:`load` does."""
    value = _walk(value, where, DEPTH)
    problem = mismatch(value, shape)
    if problem:
        raise AnswerError(where, problem)
    return value


def mismatch(value: Any, shape: Any) -> str | None:
    """Return the place and the value that violate a shape; None if it conforms."""
    try:
        _adapter(shape).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        return _at(value, first["loc"], first["msg"][:1].lower() + first["msg"][1:])
    return None


def read(path: Path, where: str, shape: Any = Any, *, limit: int = LIMIT) -> Any:
    """Parse a JSON file, reading no more than the limit.

    Raises FileNotFoundError for a missing file, else AnswerError.
    """
    try:
        with path.open("rb") as file:
            content = file.read(limit)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise AnswerError(where, f"{path} cannot be read: {error.strerror}", remedy="correct that") from error
    return load(content, where, shape, limit=limit)


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    own_config = isinstance(shape, type) and issubclass(shape, BaseModel)
    return TypeAdapter(shape, config=None if own_config else ConfigDict(strict=True))


def _at(value: Any, location: Sequence[str | int], problem: str) -> str:
    """Return a problem with its place and the value there; pydantic also names the types on the way."""
    place = ""
    for step in location:
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            value, place = value[step], f"{place}[{step}]"
        elif isinstance(value, dict) and step in value:
            value, place = value[step], f"{place}.{str(step)[:_SHOWN]}"
        elif step == location[-1] and isinstance(value, dict):
            return f"{place}.{step}: {problem}".removeprefix(".")
    shown = repr(value) if not isinstance(value, int) or abs(value) < _LONG else "a very long number"
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return f"{place}: {problem}, not {shown}".removeprefix(".").removeprefix(": ")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _walk(value: Any, where: str, left: int) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise AnswerError(where, f"it holds {value}, which is no number")
    if not isinstance(value, dict | list):
        return value
    if not left:
        raise AnswerError(where, f"it is nested deeper than {DEPTH} levels")
    if isinstance(value, list):
        return [_walk(item, where, left - 1) for item in value]
    return {clean(str(name)): _walk(item, where, left - 1) for name, item in value.items()}
