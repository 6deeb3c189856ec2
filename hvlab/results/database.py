"""The file of the store: opened for reading where nothing can be written, and told apart when damaged."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from hvlab.base.errors import HvlabError
from hvlab.base.temporary import temporary_folder
from hvlab.results import journal

# SQLite's words for a file that holds something else than it should.
_DAMAGE = ("no such table", "no such column", "could not decode", "malformed", "not a database")
# A disk that takes nothing more.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DamagedStoreError(HvlabError):
    """The store is there, and cannot be what hvlab wrote."""

    def __init__(self, file: Path, observed: str) -> None:
        super().__init__(
            f"the results in {file} are damaged: {observed}",
            remedy=f"the raw files in {file.parent / 'runs'} are still there: "
            f"`hvlab results rebuild --results {file.parent}` makes the store anew and keeps the damaged one",
        )


def is_damage(error: Exception) -> bool:
    """Return whether an error of SQLite tells of what the file holds, and not of the disk or its rights."""
    text = str(error).lower()
    return (
        isinstance(error, sqlite3.DatabaseError)
        and not isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError)
    ) or any(word in text for word in _DAMAGE)


def remedy_for(error: Exception, file: Path) -> str:
    """Return what to do about an error of SQLite or the file system; of damage `DamagedStoreError` speaks."""
    code = str(getattr(error, "sqlite_errorname", ""))
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"another program holds it: `fuser -v {file}` names it; let it end, then run this again"
    if getattr(error, "errno", None) in _FULL or code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return f"free space on the disk of {file.parent}, or choose another folder with --results"
    return f"correct the rights of {file.parent}, or choose another folder with --results"


def lost(file: Path) -> str:
    """Return how a store's file is lost although runs are there; empty where it is not."""
    runs = file.parent / "runs"
    entered = any(runs.glob(f"*/{journal.NAME}"))
    if not file.is_file():
        return "it is gone" if entered else ""
    # A run's folder is older than its place in the store, and the first run may end between the two. Runs of
    # an earlier hvlab have no journal, but cases.
    return "it has 0 bytes" if not file.stat().st_size and (entered or any(runs.glob("*/*/"))) else ""


@contextmanager
def reading(file: Path) -> Iterator[sqlite3.Connection]:
    """Yield a database to read, for which nothing needs to be written. Raises sqlite3.Error, OSError."""
    try:
        database = _opened(file, "mode=rw")
    except sqlite3.OperationalError:
        # It cannot be locked, or a killed writer's journal not be rolled back: the folder is read-only.
        if any(_journals(file)):
            with copied(file) as copy, closing(_opened(copy, "mode=rw")) as database:
                yield database
            return
        database = _opened(file, "immutable=1")
    with closing(database):
        yield database


@contextmanager
def copied(file: Path) -> Iterator[Path]:
    """Yield a copy of a database and its journals, in a folder that is gone afterwards."""
    with temporary_folder() as folder:
        for each in (file, *_journals(file)):
            shutil.copyfile(each, folder / each.name)
        yield folder / file.name


def _journals(file: Path) -> Iterator[Path]:
    """Yield what a killed writer left beside a database; older stores have a write-ahead log."""
    for ending in ("-journal", "-wal"):
        journal = file.with_name(file.name + ending)
        if journal.is_file() and journal.stat().st_size:
            yield journal


def _opened(file: Path, how: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(file))}?{how}", uri=True, timeout=30)
    try:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        database.close()
        raise
    return database
