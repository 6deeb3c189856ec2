"""Who says a line of a log: the program, by the rows of ``knowledge/speakers.yml``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from hvlab.base.yaml_files import read_shipped


def of(before: str, line: str) -> str:
    """Return who says a line, before which stand a time, a host and a program; empty if that is unknown."""
    said = _patterns("line").match(line) or (before and _patterns("before").fullmatch(before.strip()))
    return (said.lastgroup or "").replace("_", "-") if said else ""


@cache
def _patterns(field: str) -> re.Pattern[str]:
    rows = read_shipped(Path(__file__).with_name("knowledge") / "speakers.yml").items()
    return re.compile(
        "|".join(f"(?P<{name.replace('-', '_')}>{row[field]})" for name, row in rows if field in row)
    )
