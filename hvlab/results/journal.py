"""What the store holds of a run, once more as text beside its raw files: ``runs/RUN/store.jsonl``.

A line is a run, a state, or the records of one case, in the order they were entered; SQLite has the same.
From these lines the store can be made anew, see ``rebuild``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvlab.base.files import append, make_folder

NAME = "store.jsonl"
Row = Sequence[Any]


@dataclass
class Journal:
    """What the lines of a run say: rows as SQLite's tables have them; ``unread`` lines say nothing."""

    number: int = 0
    run: Row = ()
    states: list[Row] = field(default_factory=list)
    records: dict[str, list[Row]] = field(default_factory=dict)
    unread: int = 0


def write(folder: Path, kind: str, content: object) -> None:
    """Add a line of a ``kind`` (run, state, records) to the journal of a run. Raises OSError."""
    make_folder(folder)
    # On disk before SQLite's commit refers to it.
    append(folder / NAME, json.dumps({kind: content}) + "\n")


def read(folder: Path) -> Journal:
    """Return what the journal of a run says. Raises OSError."""
    journal = Journal()
    for line in _lines(folder / NAME):
        try:
            ((kind, content),) = json.loads(line).items()
            if kind == "run":
                journal.number, journal.run = int(content[0]), tuple(content[1:])
            elif kind == "state":
                journal.states.append(tuple(content))
            else:
                # A case that was entered twice was not committed the first time.
                journal.records[str(content[0][1])] = [tuple(row) for row in content]
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            journal.unread += 1
    return journal


def _lines(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8", errors="replace") as lines:
        yield from lines
