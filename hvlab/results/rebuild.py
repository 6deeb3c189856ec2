"""Make the store anew: from the journals beside it, and what can still be read of the damaged one."""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hvlab.base.errors import HvlabError, UsageError
from hvlab.base.files import replacing
from hvlab.results import journal
from hvlab.results.database import copied, remedy_for
from hvlab.results.journal import Journal
from hvlab.results.store import (
    FIELDS,
    INSERT_RECORD,
    INSERT_RUN,
    INSERT_STATE,
    RUN_NAME,
    migrated,
    read_record,
)

_RUN_FIELDS = 6
_AFTER_ALL = 2**62


@dataclass(frozen=True)
class Rebuilt:
    """What a new store holds. ``lost`` rows could not be read; ``bare`` runs have raw files alone.

    ``kept`` is where the damaged store is now; None where there was none.
    """

    runs: int
    records: int
    lost: int
    bare: tuple[str, ...]
    kept: Path | None


def rebuild(folder: Path) -> Rebuilt:
    """Make ``folder``/hvlab.db anew and keep the old one beside it, under another name.

    Raises UsageError where there is nothing to make it from, or a run goes on; HvlabError where the folder
    cannot be written.
    """
    file = folder / "hvlab.db"
    _refuse_while_measuring(folder)
    try:
        journals, lost = _journals(folder, file)
        if not journals:
            anew = f"remove {file} to begin anew" if file.is_file() else "name another folder with --results"
            raise UsageError(
                f"there is nothing in {folder} to make a store from",
                remedy=f"put the raw files back to {folder / 'runs'}, or {anew}",
            )
        with replacing(file) as part:
            records, refused = _filled(part, journals)
            kept = _aside(file)
        for number, (run_id, known) in enumerate(journals.items(), 1):
            _noted(folder / "runs" / run_id, number, known)
    except OSError as error:
        raise HvlabError(
            f"{folder} cannot be written: {error.strerror}; nothing is lost", remedy=remedy_for(error, file)
        ) from error
    bare = [each.name for each in sorted((folder / "runs").glob("*/")) if each.name not in journals]
    return Rebuilt(len(journals), records, lost + refused, tuple(bare), kept)


def _journals(folder: Path, file: Path) -> tuple[dict[str, Journal], int]:
    """Return what is known of each run, in the order they were begun, and how many rows cannot be read."""
    journals: dict[str, Journal] = {}
    lost = 0
    for each in sorted((folder / "runs").glob(f"*/{journal.NAME}")):
        known = journal.read(each.parent)
        lost += known.unread
        if len(known.run) == _RUN_FIELDS and known.run[0] == each.parent.name:
            journals[each.parent.name] = known
    salvaged, unnamed = _salvaged(file)
    lost += unnamed
    for run_id, known in salvaged.items():
        # Of one run both say the same, but a store that ends early says less.
        if run_id not in journals:
            journals[run_id] = known
    return _ordered(journals), lost


def _ordered(journals: Mapping[str, Journal]) -> dict[str, Journal]:
    """Return runs by their numbers; where a store began anew beside old runs, by their times."""
    numbers = [known.number for known in journals.values() if known.number != _AFTER_ALL]
    unique = len(numbers) == len(set(numbers))

    def place(run_id: str) -> tuple[int, str]:
        return (journals[run_id].number if unique else 0, str(journals[run_id].run[1]))

    return {run_id: journals[run_id] for run_id in sorted(journals, key=place)}


def _salvaged(file: Path) -> tuple[dict[str, Journal], int]:
    """Return what can still be read of a damaged store, by run; and how many runs have no usable id."""
    journals: dict[str, Journal] = {}
    unnamed = 0
    if not file.is_file():
        return journals, unnamed
    with copied(file) as copy, closing(sqlite3.connect(copy)) as database:
        database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        for number, *row in _rows(database, "SELECT rowid, * FROM runs"):
            if RUN_NAME.fullmatch(str(row[0])):
                journals[str(row[0])] = Journal(number or _AFTER_ALL, tuple(row))
            else:
                unnamed += 1
        for state in _rows(database, "SELECT * FROM states"):
            if state[0] in journals:
                journals[state[0]].states.append(state)
        for record in _rows(database, f"SELECT {', '.join(FIELDS)} FROM records"):  # noqa: S608
            if record[0] in journals:
                journals[record[0]].records.setdefault(str(record[1]), []).append(record)
    return journals, unnamed


def _rows(database: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield rows up to the first that cannot be read."""
    with suppress(sqlite3.Error):
        yield from database.execute(query)


def _filled(file: Path, journals: dict[str, Journal]) -> tuple[int, int]:
    """Write a new database; return how many records it has, and how many rows it could not take."""
    taken = refused = 0
    with closing(migrated(sqlite3.connect(file))) as database, database:
        for run_id, known in journals.items():
            if not _entered(database, INSERT_RUN, known.run):
                refused += 1
                continue
            for state in known.states or [(run_id, known.run[1], "interrupted")]:
                refused += not _entered(database, INSERT_STATE, state)
            for rows in known.records.values():
                whole = [row for row in rows if _is_record(row)]
                refused += len(rows) - len(whole)
                if len(whole) == len(rows):  # A part of a case would count as the whole of it.
                    database.executemany(INSERT_RECORD, whole)
                    taken += len(whole)
                else:
                    refused += len(whole)
    return taken, refused


def _entered(database: sqlite3.Connection, statement: str, row: journal.Row) -> bool:
    try:
        if statement is INSERT_RUN and not isinstance(json.loads(row[5]), list):
            return False
        database.execute(statement, row)
    except (sqlite3.Error, ValueError, TypeError, LookupError):
        return False
    return True


def _noted(folder: Path, number: int, known: Journal) -> None:
    """Give a run the journal that it lacks."""
    if (folder / journal.NAME).is_file():
        return
    journal.write(folder, "run", (number, *known.run))
    for state in known.states:
        journal.write(folder, "state", state)
    for rows in known.records.values():
        journal.write(folder, "records", rows)


def _is_record(row: journal.Row) -> bool:
    try:
        read_record(tuple(row), {})
    except (ValueError, TypeError, LookupError, RecursionError):
        return False
    return True


def _aside(file: Path) -> Path | None:
    """Give the damaged store another name, its log with it."""
    if not file.is_file():
        return None
    kept = file.with_name(f"{file.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    for ending in ("-journal", "-wal", "-shm", ""):
        beside = file.with_name(file.name + ending)
        if beside.is_file():
            beside.replace(kept.with_name(kept.name + ending))
    return kept


def _refuse_while_measuring(folder: Path) -> None:
    for lock in folder.glob(".*.lock"):
        with suppress(OSError), lock.open() as held:
            try:
                fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"process {lock.read_text('utf-8').strip() or '?'} measures into {folder}",
                    remedy="wait for it to end",
                ) from None
