"""``hvlab.db``: an SQLite index of the journals of all runs, updated before each query.

It has no data of its own: if missing, damaged or of an earlier hvlab, it is rebuilt; if it cannot be
written, a query builds one in memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from hvlab.base import answers
from hvlab.base.errors import UsageError
from hvlab.results import journal
from hvlab.results.record import FIELDS, RUN_NAME, STATES, RunSpec, parse_masked, read_record

Answer = TypeVar("Answer")

NAME = "hvlab.db"
# 1 and 2 were no index: an earlier hvlab entered runs there, some of which have no journal.
VERSION = 3
# Runs are in the order they began, whatever the clock said; merged folders repeat numbers and have only the
# clock.
_SCHEMA = (
    """CREATE TABLE journals (run_id TEXT PRIMARY KEY, size INTEGER, read INTEGER, unread INTEGER DEFAULT 0,
  number INTEGER, started_at TEXT, lab TEXT, spec_key TEXT, spec TEXT, cases TEXT,
  state TEXT DEFAULT 'interrupted')""",
    f"CREATE TABLE figures ({', '.join(name + ' REAL' * (name == 'value') for name in FIELDS)})",
    # Counting the cases of all runs reads this alone, not the figures.
    "CREATE INDEX figures_status ON figures (run_id, case_id, status)",
    """CREATE VIEW begun AS SELECT * FROM journals WHERE number IS NOT NULL
  ORDER BY number * (SELECT count(number) = count(DISTINCT number) FROM journals), started_at""",
    f"PRAGMA user_version = {VERSION}",
)
# SQLite errors about the disk, permissions or other programs, not about the file's content.
_OUTSIDE = tuple(
    f"SQLITE_{name}" for name in ("BUSY", "LOCKED", "FULL", "IOERR", "CANTOPEN", "READONLY", "PERM")
)
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError, OverflowError)


class _EarlierError(Exception):
    """The file is the store of an earlier hvlab."""


def ask(folder: Path, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
    """Query the index of the results in a folder; if there are none, nothing is written.

    Raises OSError, and UsageError for a file that is not hvlab's, or of a later version.
    """
    file = folder / NAME
    if file.is_file() or (folder / "runs").is_dir():
        try:
            return _ask(folder, question, file)
        except _EarlierError:
            _set_aside(file)
            return ask(folder, question)
        except (sqlite3.Error, *_UNREADABLE) as error:
            if not str(getattr(error, "sqlite_errorname", "")).startswith(_OUTSIDE):
                with suppress(OSError, sqlite3.Error):
                    _set_aside(file)
    return _ask(folder, question, ":memory:")


def _ask(folder: Path, question: Callable[[sqlite3.Connection], Answer], file: Path | str) -> Answer:
    with closing(sqlite3.connect(file, timeout=30)) as database:
        if not _version(database):
            with database:
                database.execute("BEGIN IMMEDIATE")
                # Another process may have done the same.
                for statement in _SCHEMA if not _version(database) else ():
                    database.execute(statement)
        _update(database, folder)
        return question(database)


def _version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (_, _, file) = database.execute("PRAGMA database_list").fetchone()
    if version > VERSION:
        raise UsageError(
            f"{file} has schema version {version}, this hvlab knows {VERSION}",
            remedy="use the hvlab that wrote it, or another folder with --results",
        )
    if not version and database.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise UsageError(
            f"{file} has no tables of hvlab", remedy="move it away, or name another folder with --results"
        )
    if 0 < version < VERSION:
        raise _EarlierError
    return int(version)


def _sizes(folder: Path) -> dict[str, int]:
    return {
        file.parent.name: file.stat().st_size
        for file in sorted((folder / "runs").glob(f"*/{journal.NAME}"))
        if RUN_NAME.fullmatch(file.parent.name)
    }


def _update(database: sqlite3.Connection, folder: Path) -> None:
    def known() -> dict[str, int]:
        return dict(database.execute("SELECT run_id, size FROM journals"))

    if known() == _sizes(folder):
        return
    with database:
        database.execute("BEGIN IMMEDIATE")
        before, now = known(), _sizes(folder)
        for run_id in [run_id for run_id in before if now.get(run_id, -1) < before[run_id]]:
            database.execute("DELETE FROM journals WHERE run_id = ?", (run_id,))
            database.execute("DELETE FROM figures WHERE run_id = ?", (run_id,))
        for run_id in [run_id for run_id in now if before.get(run_id) != now[run_id]]:
            _read(database, folder / "runs" / run_id, now[run_id])


def _read(database: sqlite3.Connection, folder: Path, size: int) -> None:
    database.execute("INSERT OR IGNORE INTO journals (run_id, read) VALUES (?, 0)", (folder.name,))
    (start,) = database.execute("SELECT read FROM journals WHERE run_id = ?", (folder.name,)).fetchone()
    lines, end = journal.read(folder, start)
    unread, cached = 0, dict[Any, Any]()
    for line in lines:
        try:
            _enter(database, folder.name, *journal.parse(line), cached)
        except _UNREADABLE:
            unread += 1
    database.execute(
        "UPDATE journals SET size = ?, read = ?, unread = unread + ? WHERE run_id = ?",
        (max(size, end), end, unread, folder.name),
    )


def _enter(
    database: sqlite3.Connection, run_id: str, kind: str, content: Sequence[Any], known: dict[Any, Any]
) -> None:
    """Enter a line of a journal completely or not at all: a part of a case would count as the whole."""
    if kind == "records":
        if {read_record(row, known).run_id for row in content} != {run_id}:
            raise ValueError("records of another run")
        database.execute("DELETE FROM figures WHERE (run_id, case_id) = (?, ?)", content[0][:2])
        database.executemany(f"INSERT INTO figures VALUES ({', '.join('?' * len(FIELDS))})", content)  # noqa: S608 - a fixed number of marks
        return
    if kind == "run":
        number, own, started_at, lab, key, spec, cases = content
        if problem := answers.mismatch(parse_masked(spec), RunSpec):
            raise ValueError(problem)
        list(json.loads(cases))
        values = {"number": int(number), "started_at": started_at, "lab": lab}
        values |= {"spec_key": key, "spec": spec, "cases": cases}
    else:
        own, _, state = content
        if state not in STATES:
            raise ValueError(f"no state of a run: {state}")
        values = {"state": state}
    if own != run_id or not all(isinstance(value, str) for name, value in values.items() if name != "number"):
        raise ValueError("a line of another run")
    columns = ", ".join(f"{name} = ?" for name in values)
    database.execute(f"UPDATE journals SET {columns} WHERE run_id = ?", (*values.values(), run_id))  # noqa: S608


def _set_aside(file: Path) -> None:
    """Write journals for the runs that only this file has, then rename it."""
    lines: dict[Any, list[tuple[str, Any]]] = {}
    records: dict[tuple[Any, Any], list[Sequence[Any]]] = {}
    with closing(sqlite3.connect(file)) as database:
        database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        for number, *run in _rows(database, "SELECT rowid, * FROM runs"):
            lines[run[0]] = [("run", (number, *run))]
        for state in _rows(database, "SELECT * FROM states"):
            lines.get(state[0], []).append(("state", state))
        for row in _rows(database, f"SELECT {', '.join(FIELDS)} FROM records"):  # noqa: S608
            records.setdefault(row[:2], []).append(row)
    for (run_id, _), rows in records.items():
        lines.get(run_id, []).append(("records", rows))
    for run_id, content in lines.items():
        folder = file.parent / "runs" / str(run_id)
        if RUN_NAME.fullmatch(str(run_id)) and not (folder / journal.NAME).exists():
            with suppress(TypeError):  # A cell holds bytes.
                journal.write(folder, content)
    for ending in ("-journal", "-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            file.with_name(NAME + ending).replace(file.with_name(f"{NAME}.old{ending}"))


def _rows(database: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    with suppress(sqlite3.Error):
        yield from database.execute(query)
