"""Rows as a table for people, JSON or CSV for machines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

_LIMITS = {"hosts": 30, "params": 60, "error": 60}
_UNLIMITED = 10_000


def render(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output_format: str) -> str:
    """Return ``rows`` as table, json or csv, with these columns in this order and no newline at the end."""
    if output_format == "json":
        return json.dumps([{name: row.get(name) for name in columns} for row in rows], indent=1)
    if output_format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([no_formula(_flat(row.get(name))) for name in columns] for row in rows)
        return text.getvalue().rstrip("\n")
    return as_text(table(rows, columns))


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    """Return a rich table; numbers stand at the right."""
    rendered = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        numbers = all(isinstance(row.get(name), int | float | None) for row in rows)
        align: JustifyMethod = "right" if numbers else "left"
        rendered.add_column(name, justify=align, overflow="fold", max_width=_LIMITS.get(name))
    for row in rows:
        # Text, since rich takes a word in brackets in a string for a style.
        rendered.add_row(*(Text(_shown(row.get(name))) for name in columns))
    return rendered


def as_text(rendered: Table) -> str:
    """Return a rich table as text without colours, as wide as it is: a row stays on its line."""
    text = io.StringIO()
    Console(file=text, no_color=True, width=_UNLIMITED).print(rendered)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines() if line.strip())


def no_formula(value: object) -> object:
    """Return a cell of CSV that a spreadsheet takes for a text, whatever a host put there."""
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        else value
    )


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name}={_shown(inner)}" for name, inner in value.items())
    return str(value)
