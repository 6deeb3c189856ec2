"""A row of nccl-tests' text, as the tool's JSON has it; its columns are counted from the right. Pure.

A row ends with four columns out of place and four in place: time, algbw, busbw, and #wrong, which old
versions call error or res; each four may be followed by four on the single iterations. What stands at the
left differs: old versions have no redop or no root for some operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hvlab.formats.lines import number, whole
from hvlab.formats.names import DTYPES
from hvlab.formats.nccl_columns import HALF, ITERATIONS

_TIMESTAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_LEFT, _HALF = 3, len(HALF)


def parse(line: str, *, us: float = 1.0) -> dict[str, Any] | None:
    """Return a row, its times in ``us`` microseconds each; None where it is no whole row."""
    tokens = _TIMESTAMP.sub("", line).split()
    if not _begins(tokens):
        return None
    rest = tokens[_LEFT:]
    redop = rest.pop(0) if rest and not _is_cell(rest[0]) else "none"
    root = rest.pop(0) if len(rest) in (_HALF + 1, 2 * _HALF + 1, 4 * _HALF + 1) else None
    if len(rest) not in (_HALF, 2 * _HALF, 4 * _HALF) or not all(map(_is_cell, rest)):
        return None
    middle = 0 if len(rest) == _HALF else len(rest) // 2
    halves = {"out_of_place": rest[:middle], "in_place": rest[middle:]}
    cells = {half: _cells(tokens, us) if tokens else None for half, tokens in halves.items()}
    return {"size": int(tokens[0]), "type": tokens[2], "redop": redop, "root": root, **cells}


def _cells(tokens: Sequence[str], us: float) -> dict[str, float]:
    columns = (*HALF, *ITERATIONS[:2])
    values = {column: number(token) for column, token in zip(columns, tokens, strict=False)}
    return {
        column.key: value * (us if column.unit == "(us)" else 1)
        for column, value in values.items()
        if value is not None
    }


def _begins(tokens: Sequence[str]) -> bool:
    return (
        len(tokens) >= _LEFT
        and tokens[2] in DTYPES
        and all(token.isdigit() and whole(token) is not None for token in tokens[:2])
    )


def _is_cell(token: str) -> bool:
    return token in ("N/A", "nan", "inf") or number(token) is not None


def mended(source: Iterable[tuple[str, bool]]) -> Iterator[str]:
    """Yield the lines, with rows whole again that a library's lines tore apart.

    The source says of each line whether something was cut out of its end.
    """
    held = ""
    for line, cut in source:
        tokens = line.split()
        joined = line
        if held and tokens and all(map(_is_cell, tokens)):
            joined, held = f"{held} {line.strip()}", ""
        elif held and (line.lstrip().startswith("#") or _begins(tokens)):
            yield held
            held = ""
        result = parse(joined)
        if _begins(joined.split()) and (result is None or (cut and result["out_of_place"] is None)):
            held = joined
        else:
            yield joined
    if held:
        yield held
