"""Remedies for other tools' messages: the table ``remedies.yml``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from hvlab.base.yaml_files import read_shipped

_FILE = Path(__file__).with_suffix(".yml")


@cache
def family(name: str) -> list[dict[str, str]]:
    """Return the rows of a family: ``sign``, ``remedy`` and what else it has."""
    rows: list[dict[str, str]] = read_shipped(_FILE)[name]
    return rows


def find_remedy(name: str, text: str, **values: Any) -> dict[str, str]:
    """Return the first row of a family whose sign a text shows, with ``values`` filled in; empty if none."""
    for row in family(name):
        if re.search(row["sign"], text, re.IGNORECASE):
            return {**row, "remedy": row["remedy"].format(**values)}
    return {}


def remedy(name: str, text: str, otherwise: str = "", **values: Any) -> str:
    """Return the remedy for a text."""
    return find_remedy(name, text, **values).get("remedy", otherwise.format(**values))
