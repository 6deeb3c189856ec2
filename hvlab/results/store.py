"""The store of what was measured: SQLite, append-only, with the raw files beside it.

``<results>/hvlab.db`` holds the tables; ``<results>/runs/<run>/<case>/`` the files of each case. Rows are
only ever added: triggers refuse changes and deletions, and how a run goes on is a row of its own.
"""

from __future__ import annotations

import difflib
import json
import re
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from hvlab.base import answers
from hvlab.base.answers.shapes import Count, HostAnswer
from hvlab.base.errors import HvlabError, UsageError, some
from hvlab.base.files import make_folder
from hvlab.base.masking import masked, masked_json
from hvlab.base.paths import refuse_links
from hvlab.results import journal
from hvlab.results.database import DamagedStoreError, is_damage, lost, reading, remedy_for

_VERSION_1 = (
    """CREATE TABLE runs (
  run_id TEXT PRIMARY KEY, started_at TEXT NOT NULL, lab TEXT NOT NULL, spec_key TEXT NOT NULL,
  spec TEXT NOT NULL, cases TEXT NOT NULL) STRICT""",
    """CREATE TABLE states (
  run_id TEXT NOT NULL REFERENCES runs, at TEXT NOT NULL, state TEXT NOT NULL) STRICT""",
    """CREATE TABLE records (
  run_id TEXT NOT NULL REFERENCES runs, case_id TEXT NOT NULL, started_at TEXT NOT NULL,
  workload TEXT NOT NULL, launcher TEXT NOT NULL, backend TEXT NOT NULL, proved_backend TEXT,
  hosts TEXT NOT NULL, slots_per_host INTEGER NOT NULL, world_size INTEGER, params TEXT NOT NULL,
  repeat INTEGER NOT NULL, metric TEXT, value REAL, unit TEXT, status TEXT NOT NULL, error TEXT,
  stack TEXT NOT NULL, raw_path TEXT NOT NULL) STRICT""",
    "CREATE INDEX records_case ON records (run_id, case_id)",
    *(
        f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'results are append-only'); END"
        for table in ("runs", "states", "records")
        for verb in ("UPDATE", "DELETE")
    ),
)
# Counting the cases of all runs reads this index alone, not the records.
_VERSION_2 = (
    "CREATE INDEX records_status ON records (run_id, case_id, status)",
    "DROP INDEX records_case",
)
# What makes each version of the schema from the one before; only ever added to.
MIGRATIONS = (_VERSION_1, _VERSION_2)
SCHEMA = len(MIGRATIONS)


# Run ids, which are names of folders: a foreign store must not choose where reports are written.
_LAST = re.compile(r"last(?:~(\d{1,9}))?", re.IGNORECASE)
RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
# The launcher of figures that were imported.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Record:
    """One value. ``status`` is ok, failed or skipped; a case that has no figures is one record.

    ``started_at`` is UTC (ISO 8601); ``raw_path`` is relative to the results folder.
    """

    run_id: str
    case_id: str
    started_at: str
    workload: str
    launcher: str
    backend: str
    proved_backend: str | None
    hosts: tuple[str, ...]
    slots_per_host: int
    world_size: int | None
    params: Mapping[str, Any]
    repeat: int
    metric: str | None
    value: float | None
    unit: str | None
    status: str
    error: str | None
    stack: Mapping[str, Any]
    raw_path: str


FIELDS = tuple(field.name for field in fields(Record))
_AS_JSON = ("hosts", "params", "stack")
INSERT_RUN = "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)"
INSERT_STATE = "INSERT INTO states VALUES (?, ?, ?)"
INSERT_RECORD = f"INSERT INTO records VALUES ({', '.join('?' * len(FIELDS))})"  # noqa: S608 - a fixed number of marks


class Row(HostAnswer):
    """A record as JSON holds it: optional fields may be null, none may be absent."""

    run_id: str
    case_id: str
    started_at: str
    workload: str
    launcher: str
    backend: str
    proved_backend: str | None = None
    metric: str | None = None
    unit: str | None = None
    error: str | None = None
    hosts: list[str]
    slots_per_host: Count
    world_size: Count | None = None
    params: dict[str, Any]
    repeat: Count
    value: Annotated[float, Field(ge=-1e300, le=1e300)] | None = None
    stack: dict[str, Any]
    raw_path: str


@dataclass(frozen=True)
class Run:
    """One command's worth of cases; ``state`` is running, interrupted, finished or refused."""

    run_id: str
    started_at: str
    lab: str
    state: str
    planned: tuple[str, ...]


def utc(seconds: float | None = None) -> str:
    """Return a time (default: now) as UTC ISO 8601 with milliseconds."""
    when = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_run_id() -> str:
    """Return an id that sorts by time, such as 20261120T155301Z-ab12cd34."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


class Store:
    """The results under one folder; opened for each use, so that several may read while one writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "hvlab.db"

    def run_folder(self, run_id: str) -> Path:
        """Return where the raw files of a run lie."""
        return self.folder / "runs" / run_id

    def create(
        self, run_id: str, *, lab: str, spec_key: str, spec: Mapping[str, Any], cases: list[str]
    ) -> None:
        """Add a run, with the ids of all its cases; secrets in ``spec`` are masked."""
        with self._open(write=True) as database:
            row = (run_id, utc(), lab, spec_key, json.dumps(masked(spec)), json.dumps(cases))
            self._begin(database, row, "running")

    def put(
        self,
        run_id: str,
        records: Iterable[Record],
        *,
        lab: str,
        spec_key: str,
        spec: Mapping[str, Any],
        cases: list[str],
    ) -> None:
        """Add a run that was measured elsewhere, finished, with all its records, or nothing."""
        with self._open(write=True) as database:
            row = (run_id, utc(), lab, spec_key, json.dumps(spec), json.dumps(cases))
            every = list(records)
            self._begin(database, row, "finished")
            self._enter(database, every)

    def enter(self, run_id: str, state: str) -> None:
        """Note that a run is now ``state``."""
        with self._open(write=True) as database:
            self._state(database, (run_id, utc(), state))

    def add(self, records: Iterable[Record]) -> None:
        """Add records, all or none."""
        with self._open(write=True) as database:
            self._enter(database, list(records))

    def _begin(self, database: sqlite3.Connection, row: tuple[Any, ...], state: str) -> None:
        number = database.execute(INSERT_RUN, row).lastrowid
        journal.write(self.run_folder(row[0]), "run", (number, *row))
        self._state(database, (row[0], utc(), state))

    def _state(self, database: sqlite3.Connection, row: tuple[str, str, str]) -> None:
        database.execute(INSERT_STATE, row)
        journal.write(self.run_folder(row[0]), "state", row)

    def _enter(self, database: sqlite3.Connection, records: list[Record]) -> None:
        rows = list(map(_row, records))
        database.executemany(INSERT_RECORD, rows)
        by_case: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        for row in rows:
            by_case.setdefault((row[0], row[1]), []).append(row)
        for (run_id, _), of_case in by_case.items():
            journal.write(self.run_folder(run_id), "records", of_case)

    def done(self, run_id: str) -> set[str]:
        """Return the ids of the cases that have records."""
        with self._open() as database:
            rows = database.execute("SELECT DISTINCT case_id FROM records WHERE run_id = ?", (run_id,))
            return {row[0] for row in rows}

    def unfinished(self, spec_key: str) -> Run | None:
        """Return the last run of that specification if it did not come to its end."""
        with self._open() as database:
            query = "SELECT run_id FROM runs WHERE spec_key = ? ORDER BY rowid DESC LIMIT 1"
            row = database.execute(query, (spec_key,)).fetchone()
        run = self.run(row[0]) if row else None
        return run if run and run.state in ("running", "interrupted") else None

    def finished(self, spec_key: str) -> str | None:
        """Return the id of the last run of that specification that came to its end."""
        ended = (run for run in reversed(self.runs()) if run.state == "finished")
        return next((run.run_id for run in ended if self.spec(run.run_id)[0] == spec_key), None)

    def runs(self) -> list[Run]:
        """Return every run, the oldest first: in the order they were begun, whatever the clock said."""
        query = """
            SELECT run_id, started_at, lab, cases,
              (SELECT state FROM states WHERE states.run_id = runs.run_id ORDER BY rowid DESC LIMIT 1)
            FROM runs ORDER BY rowid"""
        with self._open() as database:
            return [
                Run(
                    _run_name(run_id),
                    answers.clean(started_at),
                    answers.clean(lab),
                    answers.clean(state or "interrupted"),
                    planned=tuple(answers.clean(str(case)) for case in json.loads(cases)),
                )
                for run_id, started_at, lab, cases, state in database.execute(query)
            ]

    def run(self, run_id: str | None = None) -> Run:
        """Return one run by its id, a part of it that no other has, ``last`` (the default), ``last~1``, ...

        Raises UsageError where there is none, or several.
        """
        runs = self.runs()
        if not runs:
            raise UsageError(f"there are no results in {self.folder}", remedy="run `hvlab bench` first")
        names = [run.run_id for run in runs]
        if run_id in names:
            return runs[names.index(run_id)]
        if match := _LAST.fullmatch(run_id := run_id or "last"):
            back = int(match[1] or 0)
            if back < len(runs):
                return runs[-1 - back]
            raise UsageError(
                f"there is no run {run_id}", remedy=f"{self.folder} has {len(runs)}: `hvlab results list`"
            )
        fitting = [run for run in runs if run_id.lower() in run.run_id.lower()]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(
                f"{len(fitting)} runs have {run_id!r} in their id",
                remedy=f"write more of it: {some(run.run_id for run in fitting)}",
            )
        near = difflib.get_close_matches(run_id, names, n=3, cutoff=0.5) or names[-3:]
        raise UsageError(f"there is no run {run_id!r}", remedy=f"near ones: {', '.join(near)}")

    def spec(self, run_id: str) -> tuple[str, dict[str, Any]]:
        """Return what a run was asked for: its key and the specification, as ``create`` got them, masked."""
        with self._open() as database:
            query = "SELECT spec_key, spec FROM runs WHERE run_id = ?"
            key, text = database.execute(query, (run_id,)).fetchone()
            return str(key), dict(_cleaned(text))

    def records(self, run_id: str) -> list[Record]:
        """Return a run's records in the order they were measured."""
        query = f"SELECT {', '.join(FIELDS)} FROM records WHERE run_id = ? ORDER BY rowid"  # noqa: S608
        known: dict[str, Any] = {}
        with self._open() as database:
            return [read_record(row, known) for row in database.execute(query, (run_id,))]

    def latest(self, runs: int = 20) -> list[tuple[Record, list[int]]]:
        """Return one record of each case that went well in the last runs, with the case's sizes in bytes.

        The oldest come first; of a case without sizes the list is empty.
        """
        query = f"""
            SELECT {", ".join(FIELDS)}, group_concat(DISTINCT params ->> 'size_bytes') FROM records
            WHERE run_id = ? AND status = 'ok' GROUP BY case_id ORDER BY rowid"""  # noqa: S608
        known: dict[str, Any] = {}
        with self._open() as database:
            last = "SELECT run_id FROM runs ORDER BY rowid DESC LIMIT ?"
            ids = database.execute(last, (runs,)).fetchall()
            rows = [row for run_id in reversed(ids) for row in database.execute(query, run_id)]
            sizes = [sorted(map(int, row[-1].split(","))) if row[-1] else [] for row in rows]
            return [(read_record(row[:-1], known), of) for row, of in zip(rows, sizes, strict=True)]

    def overview(self) -> list[dict[str, Any]]:
        """Return for each run, the newest first, how many of its cases went well (all their records did)."""
        query = """
            SELECT run_id, sum(worst = 0), sum(worst = 2), sum(worst = 1) FROM (
              SELECT run_id, case_id,
                max(CASE status WHEN 'ok' THEN 0 WHEN 'skipped' THEN 1 ELSE 2 END) AS worst
              FROM records GROUP BY run_id, case_id) GROUP BY run_id"""
        with self._open() as database:
            counts = {row[0]: row[1:] for row in database.execute(query)}
        rows = []
        for run in reversed(self.runs()):
            ok, failed, skipped = counts.get(run.run_id, (0, 0, 0))
            rows.append(
                {
                    "run_id": run.run_id,
                    "started_at": run.started_at,
                    # A run may measure more than it planned at first.
                    "cases": max(len(run.planned), ok + failed + skipped) - skipped,
                    "ok": ok,
                    "failed": failed,
                    "state": run.state,
                    "lab": run.lab,
                }
            )
        return rows

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield the database in a transaction that is closed with it; reading makes no file."""
        refuse_links(self.folder)
        try:
            if self.folder.exists() and not self.folder.is_dir():
                raise NotADirectoryError(f"{self.folder} is not a directory")
            if how := lost(self._file):
                raise DamagedStoreError(self._file, how)
            with self._writing() if write else self._reading() as database, database:
                yield database
        except (OSError, sqlite3.Error) as error:
            if is_damage(error):
                raise DamagedStoreError(self._file, str(error)) from error
            verb = "written" if write else "read"
            raise HvlabError(
                f"the results in {self._file} cannot be {verb}: {error}",
                remedy=remedy_for(error, self._file),
            ) from error
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            if write:
                raise
            raise DamagedStoreError(self._file, f"a row cannot be read ({error})") from error

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if not self._file.is_file() or not self._file.stat().st_size:
            with closing(migrated(sqlite3.connect(":memory:"))) as database:
                yield database
            return
        # Every version since the first can be read as it is.
        with reading(self._file) as database:
            if not self._version(database):
                raise DamagedStoreError(self._file, "it has no tables of hvlab")
            yield database

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        make_folder(self.folder)
        with closing(sqlite3.connect(self._file, timeout=30)) as database:
            # No log with an index in memory: on NFS another host may read while this one writes. An older
            # store that is being read keeps its log until the next time.
            with suppress(sqlite3.OperationalError):
                database.execute("PRAGMA journal_mode = DELETE")
            database.execute("PRAGMA synchronous = FULL")
            version = self._version(database)
            if not version and database.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise DamagedStoreError(self._file, "it has no tables of hvlab")
            yield migrated(database) if version < SCHEMA else database

    def _version(self, database: sqlite3.Connection) -> int:
        version = int(database.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA:
            raise UsageError(
                f"{self._file} has schema version {version}, this hvlab knows {SCHEMA}",
                remedy="use the hvlab that wrote it, or another folder with --results",
            )
        return version


def migrated(database: sqlite3.Connection) -> sqlite3.Connection:
    """Bring a database to the schema of today, all or nothing; another process may be at the same."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {SCHEMA}")
    return database


def _row(record: Record) -> tuple[Any, ...]:
    return tuple(
        json.dumps(getattr(record, name)) if name in _AS_JSON else getattr(record, name) for name in FIELDS
    )


def read_record(row: tuple[Any, ...], known: dict[str, Any]) -> Record:
    """Return a row as a record; ``known`` keeps what was read from JSON, for a run's rows repeat it."""
    values = dict(zip(FIELDS, row, strict=True))
    for name in _AS_JSON:
        text = values[name]
        if text not in known:
            known[text] = _cleaned(text)
        values[name] = known[text]
    if problem := answers.mismatch(values, Row):
        raise ValueError(problem)
    _run_name(values["run_id"])
    values |= {name: answers.clean(value) for name, value in values.items() if isinstance(value, str)}
    path = PurePosixPath(values["raw_path"])
    if path.parts[:1] not in ((), ("runs",)) or ".." in path.parts:
        raise ValueError(f"the raw path {values['raw_path']!r} is not below runs/")
    values["hosts"] = tuple(values["hosts"])
    return Record(**values)


def _run_name(name: object) -> str:
    if not isinstance(name, str) or not RUN_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a run")
    return name


def _cleaned(text: str) -> Any:
    try:
        return answers.checked(masked_json(text), "the store")
    except answers.AnswerError as error:
        raise ValueError(error.observed) from error
