"""A line in which hvlab says of a file it wrote what the tool's format has no place for. Pure."""

from __future__ import annotations

import json
from typing import Any

from hvlab import __version__
from hvlab.formats.sweep import Sweep

MARK = "# hvlab: "


def told(sweep: Sweep) -> dict[str, Any]:
    """Return the run, cases, backend and parameters of a sweep, JSON-ready."""
    return {"version": __version__, **sweep.origin}


def line(sweep: Sweep) -> str:
    """Return the line."""
    return MARK + json.dumps(told(sweep))


def read(text: str) -> dict[str, Any]:
    """Return what such a line tells; nothing where it is none."""
    try:
        found = json.loads(text.removeprefix(MARK))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
