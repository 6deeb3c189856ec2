"""The searches of tune and bisect: each a folder in the results, with its own store of runs."""

from __future__ import annotations

import itertools
from pathlib import Path

KINDS = ("tune", "bisect")
# Written when a search comes to its end; without it, the same command resumes the search.
RESULT = "result.json"


def folders(results: Path) -> list[Path]:
    """Return the folders of all searches, the oldest first."""
    each = [path for kind in KINDS for path in (results / kind).glob("*") if path.is_dir()]
    return sorted(each, key=lambda path: path.stat().st_mtime)


def name(folder: Path) -> str:
    """Return the name of a search, such as `tune 0f3a9c2b41de`."""
    return f"{folder.parent.name} {folder.name}"


def has_ended(folder: Path) -> bool:
    """Whether a search is finished."""
    return (folder / RESULT).exists()


def folder_of(results: Path, kind: str, key: str, *, restart: bool) -> Path:
    """Return the folder of a search: that of an unfinished one, or with ``restart`` a new one.

    A new one has the first free number, since people remove folders.
    """
    earlier = [path for path in folders(results) if path.parent.name == kind and path.name.startswith(key)]
    if earlier and not restart and not has_ended(earlier[-1]):
        return earlier[-1]
    names = itertools.chain([key], (f"{key}-{number}" for number in itertools.count(2)))
    return next(path for path in (results / kind / name for name in names) if not path.exists())
