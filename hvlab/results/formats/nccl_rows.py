"""A row of nccl-tests' text, as the tool's JSON has it, by the columns of the table's header. Pure.

A row ends with the figures out of place and, in the same columns, those in place. A half that was not
measured is blank. The left part differs: old versions have no redop or no root for some operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.results.formats.lines import LogLine, number, parse_whole
from hvlab.results.formats.names import (
    DTYPES,
    EITHER,
    HALF,
    HALVES,
    ITEM_BYTES,
    ITERATIONS,
    OLD_HEADS,
    OTHERS,
    REDOPS,
    LogColumn,
)

_TIMESTAMP = re.compile(r"(?<!\s)\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_COLUMNS = {column.head: column for column in (*HALF, *ITERATIONS, *OTHERS)}
_LEFT = 3
# Blanks in the place of the first half are 32 wide, between two columns there are at most ten.
_BLANK_HALF = re.compile(r"\S\s{24,}")
# The head until early 2019, when times were in milliseconds.
OLD_HEAD = r"#\s*bytes\s+N\s+type\b"
HEAD = re.compile(rf"#\s*size\s+count\s+type\b|{OLD_HEAD}")
ROW = rf"(?<!\d)\d+\s+\d+\s+(?:{'|'.join(DTYPES)})\s"


@dataclass(frozen=True)
class TableHead:
    """A table's header: the columns of a half, the halves, and the length of its unit of time in us.

    ``read``: the header was seen in the file; below it, rows may have unknown types.
    """

    columns: tuple[LogColumn, ...] = HALF
    halves: tuple[str, ...] = tuple(HALVES)
    us: float = 1.0
    read: bool = False


def head(line: str, above: str) -> TableHead:
    """Parse the line of names, and the one above it."""
    words = [OLD_HEADS.get(word, word) for word in line.lstrip("# ").split() if word != "timestamp"]
    starts = [at for at, word in enumerate(words) if word in ("time", "cputime")]
    names = [key for key in HALVES if key.replace("_", "-") in above]
    halves = tuple(names) if names and len(names) == len(starts) else tuple(HALVES)
    if len(starts) == 1 and len(names) != 1:
        halves = (EITHER,)
    columns = words[starts[0] : starts[1] if len(starts) > 1 else None] if starts else []
    return TableHead(
        columns=tuple(_COLUMNS.get(word, LogColumn(word, word)) for word in columns) or HALF,
        halves=halves,
        us=1e3 if re.match(OLD_HEAD, line) else 1.0,
        read=True,
    )


def parse(line: str, table: TableHead, place: str = "") -> dict[str, Any] | None:
    """Parse a row; None if the line is not one. An incomplete row has the reason under ``refused``."""
    # People comment rows out to show them.
    line = _TIMESTAMP.sub("", line).lstrip("# ")
    tokens = line.split()
    if not _begins(tokens, table):
        return None
    row = {"size": int(tokens[0]), "type": tokens[2], "redop": "none", "root": None, "place": place}
    if tokens[2] not in DTYPES:
        if len(tokens) == _LEFT:
            return row | {"type": None, "refused": f"it ends in its type, {tokens[2]}"}
        return row | {"refused": f"hvlab does not know its type, {tokens[2]}"}
    rest = tokens[_LEFT:]
    if rest and not _is_cell(rest[0]):
        row["redop"] = rest.pop(0)
    width = len(table.columns)
    sides = (width, width * len(table.halves))
    if len(rest) - 1 in sides and parse_whole(rest[0]) is not None:
        row["root"] = rest.pop(0)
    elements = int(tokens[1]) * ITEM_BYTES.get(DTYPES[tokens[2]], 1)
    if elements and int(tokens[0]) % elements:
        return row | {"refused": f"{tokens[0]} bytes are not {tokens[1]} {tokens[2]} a rank"}
    if len(rest) not in sides or not all(map(_is_cell, rest)):
        return row | {"refused": f"its figures are not the {sides[-1]} that the table's head names"}
    halves = [rest[at : at + width] for at in range(0, len(rest), width)]
    if len(halves) < len(table.halves):
        if _BLANK_HALF.search(line):
            halves.insert(0, [])
        else:
            row["refused"] = f"it ends before its figures {table.halves[-1].replace('_', '-')}"
    return row | {
        half: _cells(cells, table) for half, cells in zip(table.halves, halves, strict=False) if cells
    }


def _cells(tokens: Sequence[str], table: TableHead) -> dict[str, float]:
    values = {column: number(token.rstrip("*")) for column, token in zip(table.columns, tokens, strict=True)}
    return {
        column.key: value * (table.us if column.unit == "(us)" else 1)
        for column, value in values.items()
        if value is not None
    }


def _begins(tokens: Sequence[str], table: TableHead) -> bool:
    """Rows begin with two counts and a known type, or below a header with any type."""
    if len(tokens) < _LEFT or not all(
        token.isdigit() and parse_whole(token) is not None for token in tokens[:2]
    ):
        return False
    dtype, rest = tokens[2], tokens[_LEFT:]
    if dtype in DTYPES or not table.read:
        return dtype in DTYPES
    if not rest:
        return any(known.startswith(dtype) for known in DTYPES)
    return dtype.isidentifier() and all(_is_cell(token) or token in REDOPS for token in rest)


def _is_cell(token: str) -> bool:
    return token in ("N/A", "nan", "-nan", "inf") or number(token.rstrip("*")) is not None


def mend(source: Iterable[LogLine]) -> Iterator[LogLine]:
    """Yield the lines, with rows rejoined that a library's lines tore apart.

    Only rows torn before their figures, or between the halves, are rejoined: elsewhere a figure might have
    lost its end.
    """
    table, above = TableHead(), ""
    held: LogLine | None = None
    for line in source:
        if HEAD.match(line.text):
            table = head(line.text, above)
        above = line.text or above
        if held and not line.text.strip():
            yield line
            continue
        whole_line = line
        if held and (joined := _join(held, line, table)):
            whole_line = joined
        elif held:
            yield held
        held = whole_line if "refused" in (parse(whole_line.text, table) or {}) else None
        if not held:
            yield whole_line
    if held:
        yield held


def _join(torn: LogLine, line: LogLine, table: TableHead) -> LogLine | None:
    """Return a torn row with the complete halves of a line, if it holds any."""
    tokens = line.text.split()
    half = len(table.columns)
    full = half * len(table.halves)
    # The root is a number as well, and may stand before the figures.
    if len(tokens) not in (half, full, full + 1) or not all(map(_is_cell, tokens)):
        return None
    joined = torn._replace(text=f"{torn.text} {line.text}")
    row = parse(joined.text, table) or {}
    return joined if row.keys() & set(table.halves) else None
