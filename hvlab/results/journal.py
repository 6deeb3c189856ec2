"""The journal of a run: ``runs/RUN/store.jsonl`` beside its raw files, append-only.

A line is a run, a state, or the records of one case, in order of entry. The last line of a case counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hvlab.base.files import append, make_folder

NAME = "store.jsonl"


def write(folder: Path, lines: Iterable[tuple[str, Any]]) -> None:
    """Add lines to a run's journal, each a kind (run, state, records) and its content. Raises OSError."""
    make_folder(folder)
    append(folder / NAME, "".join(json.dumps({kind: content}) + "\n" for kind, content in lines))


def read(folder: Path, start: int = 0) -> tuple[list[bytes], int]:
    """Return the complete lines of a journal from a byte on, and the byte after them. Raises OSError."""
    with (folder / NAME).open("rb") as file:
        file.seek(start)
        *lines, cut_off = file.read().split(b"\n")
        return lines, file.tell() - len(cut_off)


def parse(line: bytes) -> tuple[str, list[Any]]:
    """Return a line's kind and content. Raises ValueError, TypeError, AttributeError, RecursionError."""
    ((kind, content),) = json.loads(line).items()
    return kind, list(content)
