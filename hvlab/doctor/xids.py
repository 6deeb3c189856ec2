"""What a number of NVIDIA's driver means (Xid), from the table of the health checks."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).parents[1] / "checks" / "node" / "xids.json"


@cache
def _meanings() -> dict[str, str]:
    table = json.loads(_TABLE.read_text("utf-8"))
    return {
        str(code): f"{meaning}; {table['actions'][group['action']]}"
        for group in table["xids"]
        for meaning, codes in group["meanings"].items()
        for code in codes
    }


def explain(number: str) -> str:
    """Return the number with its meaning and what to do."""
    meaning = _meanings().get(number)
    return f"{number} ({meaning})" if meaning else f"{number} (not in NVIDIA's table)"
