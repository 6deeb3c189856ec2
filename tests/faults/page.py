"""docs/reliability.md, from what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.contract import tree

MEASURED = tree.ROOT / "tests/data/faults.json"
ABOUT = """\
# What hvlab survives

Written by `make docs` from `tests/data/faults.json`, as it was measured last: {count} faults, put one after
another into a virtual lab of three hosts and into the controller beside it. For each: what is put in, the
command that meets it, its exit code, how long that took and may take, what it said, and the command that
then goes on by itself; after that one, how many of the records that were in the store are still there, and
what is left on hosts and controller: processes, temporary folders, mounts. `make test-all MARK=faults`
measures them again: the words that matter (host, cause, remedy) must be in the message, all records must be
kept, and nothing may be left. Times are of a machine of two cores, which the hosts share with the controller.
Clocks are shifted by libfaketime, for hvlab and what it starts on the controller.

An exit code of 0 means that the fault is mended or does no harm; -9 that the command itself was killed.
"""
TITLES = {
    "inventory": "Inventories and options",
    "network": "Network",
    "processes": "Processes",
    "disks": "Disks",
    "clocks": "Clocks",
    "keys": "Keys",
    "stores": "Stores of results",
    "provisioning": "Provisioning",
    "lab": "The virtual lab",
    "caches": "Packs and caches",
    "kills": "SIGKILL at random points",
}
HEAD = (
    "| fault | command | exit code | time | what it says | then | records kept | left |\n"
    "|---|---|---|---|---|---|---|---|"
)


def text() -> str:
    """Return the page."""
    rows = json.loads(MEASURED.read_text("utf-8"))
    parts = [ABOUT.format(count=len(rows))]
    for family, title in TITLES.items():
        lines = [_line(row) for row in rows if row["family"] == family]
        if lines:
            parts.append("\n".join([f"## {title}\n", HEAD, *lines]) + "\n")
    return "\n".join(parts)


def recorded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page needs of a measured fault: no path of a machine."""
    names = (
        "name",
        "family",
        "what",
        "command",
        "code",
        "seconds",
        "limit",
        "message",
        "then",
        "then_seconds",
        "records",
        "kept",
        "left",
    )
    return {name: row[name] for name in names}


def _line(row: Mapping[str, Any]) -> str:
    message = row["message"] if row["code"] > 0 else ""
    cells = (
        row["what"],
        f"`{row['command']}`",
        row["code"],
        f"{row['seconds']:.0f} s (at most {row['limit']:.0f} s)",
        message,
        f"`{row['then']}`, {row['then_seconds']:.0f} s",
        f"{row['kept']} of {row['records']}",
        "; ".join(row["left"]) or "nothing",
    )
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"
