"""Rows as a table for people, JSON or CSV for machines."""

from __future__ import annotations

import csv
import io
import json
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

_LIMITS = {"hosts": 30, "params": 60, "error": 60}
_UNLIMITED = 10_000
_EMPTY = ("-", "")
# Blanks between columns if there is room; lines of a header.
_GAP, _HEAD = 3, 2


def render(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output_format: str) -> str:
    """Return ``rows`` as table, json or csv, with these columns in order and no newline at the end."""
    if output_format == "json":
        return json.dumps([{name: row.get(name) for name in columns} for row in rows], indent=1)
    if output_format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([no_formula(_flat(row.get(name))) for name in columns] for row in rows)
        return text.getvalue().rstrip("\n")
    return _table(rows, columns)


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return a table without empty columns; values common to all rows stand once, above it."""
    cells = {name: [_format(row.get(name)) for row in rows] for name in columns}
    filled = [name for name in columns if not rows or set(cells[name]).difference(_EMPTY)]
    same = [name for name in filled if len(rows) > 1 and len(set(cells[name])) == 1]
    own = [name for name in filled if name not in same] or filled
    widths = {name: max(map(len, (name, *cells[name]))) for name in own}
    gap = _GAP if _fits(widths, _GAP) else 1
    under = []
    while not _fits(widths, gap) and len(widths) > 1:
        under.append(max(widths, key=lambda name: widths[name]))
        del widths[under[-1]]
    rendered = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap // 2))
    for name in widths:
        numbers = all(isinstance(row.get(name), int | float | None) for row in rows)
        align: JustifyMethod = "right" if numbers else "left"
        rendered.add_column(
            name,
            justify=align,
            overflow="fold",
            no_wrap=bool(under) and _fits(widths, gap),
            max_width=_LIMITS.get(name),
        )
    for number in range(len(rows)):
        # Text, since rich takes a word in brackets in a string for a style.
        rendered.add_row(*(Text(cells[name][number]) for name in widths))
    lines = as_text(rendered).splitlines()
    if under:
        notes = [
            "; ".join(
                f"{name}: {cells[name][number]}"
                for name in filled
                if name in under and cells[name][number] not in _EMPTY
            )
            for number in range(len(rows))
        ]
        lines = [*lines[:_HEAD], *_with_notes(lines[_HEAD:], notes)]
    shared = ", ".join(f"{name} {cells[name][0]}" for name in same if name not in own)
    above = textwrap.wrap(f"in every row: {shared}", _width(), subsequent_indent="  ") if shared else []
    return "\n".join([*above, *lines])


def _with_notes(lines: Sequence[str], notes: Sequence[str]) -> Iterator[str]:
    """Yield the table's lines, each with its long cells below, or these last if rows wrapped."""
    each = len(lines) == len(notes)
    yield from () if each else lines
    for number, text in enumerate(notes):
        yield from [lines[number]] if each else []
        yield from textwrap.wrap(text, _width() - 1, initial_indent="    ", subsequent_indent="    ")


def _fits(widths: Mapping[str, int], gap: int) -> bool:
    # A blank at each edge.
    return sum(widths.values()) + gap * (len(widths) - 1) + 2 <= _width()


def _width() -> int:
    return shutil.get_terminal_size((_UNLIMITED, 0)).columns


def as_text(rendered: Table) -> str:
    """Return a rich table as text without colours: as wide as the terminal, else each row on one line."""
    text = io.StringIO()
    Console(file=text, no_color=True, width=_width()).print(rendered)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines() if line.strip())


def no_formula(value: object) -> object:
    """Return a cell of CSV that no spreadsheet runs as a formula."""
    risky = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if risky else value


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def _format(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name}={_format(inner)}" for name, inner in value.items())
    return str(value)
