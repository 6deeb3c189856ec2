"""The results under one folder: a folder for each run, with its journal and raw files, and an index."""

from __future__ import annotations

import difflib
import errno
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

from hvlab.base import answers
from hvlab.base.errors import HvlabError, UsageError, some
from hvlab.base.masking import mask
from hvlab.base.paths import refuse_links
from hvlab.results import index, journal
from hvlab.results.record import FIELDS, UNKNOWN, Record, parse_masked, read_record, run_name, to_row

__all__ = ["FIELDS", "UNKNOWN", "Record", "Run", "Store", "make_run_id", "utc"]

Answer = TypeVar("Answer")
_LAST = re.compile(r"last(?:~(\d{1,9}))?", re.IGNORECASE)
# errno of a full disk.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Run:
    """The cases of one command; ``state`` is running, interrupted, finished or refused."""

    run_id: str
    started_at: str
    lab: str
    state: str
    planned: tuple[str, ...]


def utc(seconds: float | None = None) -> str:
    """Return a time (default: now) as UTC ISO 8601 with milliseconds."""
    when = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def make_run_id() -> str:
    """Return an id that sorts by time, such as 20261120T155301Z-ab12cd34."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


class Store:
    """The results under one folder; several may read while one writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run_folder(self, run_id: str) -> Path:
        """Folder of a run's raw files."""
        return self.folder / "runs" / run_id

    def written_at(self, run_id: str) -> int:
        """Time of the last entry for a run, in nanoseconds."""
        return (self.run_folder(run_id) / journal.NAME).stat().st_mtime_ns

    def create(
        self, run_id: str, *, lab: str, spec_key: str, spec: Mapping[str, Any], cases: list[str]
    ) -> None:
        """Add a run, with the ids of all its cases; secrets in ``spec`` are masked."""
        self._begin(run_id, "running", (lab, spec_key, json.dumps(mask(spec)), json.dumps(cases)), ())

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
        """Add a run measured elsewhere, finished, with all its records, or nothing."""
        asked = (lab, spec_key, json.dumps(spec), json.dumps(cases))
        try:
            self._begin(run_id, "finished", asked, records)
        except HvlabError:
            (self.run_folder(run_id) / journal.NAME).unlink(missing_ok=True)
            raise

    def enter(self, run_id: str, state: str) -> None:
        """Set the state of a run."""
        self._write(run_id, [("state", (run_id, utc(), state))])

    def add(self, records: Iterable[Record]) -> None:
        """Add records of a run, all or none."""
        every = list(records)
        for run_id in dict.fromkeys(record.run_id for record in every):
            self._write(run_id, self._encode_cases(record for record in every if record.run_id == run_id))

    def _begin(self, run_id: str, state: str, asked: Sequence[str], records: Iterable[Record]) -> None:
        begun = utc()
        number = self._ask(
            lambda database: database.execute("SELECT coalesce(max(number), 0) + 1 FROM begun").fetchone()[0]
        )
        lines = [("run", (number, run_id, begun, *asked)), ("state", (run_id, begun, state))]
        self._write(run_id, [*lines, *self._encode_cases(records)])

    def _encode_cases(self, records: Iterable[Record]) -> list[tuple[str, Any]]:
        """Return a line for each case. Raises HvlabError if a record cannot be read back."""
        cases: dict[str, list[tuple[Any, ...]]] = {}
        known: dict[Any, Any] = {}
        for row in map(to_row, records):
            try:
                read_record(row, known)
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                raise HvlabError(f"a record of {row[1]} cannot be written: {error}") from error
            cases.setdefault(row[1], []).append(row)
        return [("records", rows) for rows in cases.values()]

    def _write(self, run_id: str, lines: list[tuple[str, Any]]) -> None:
        try:
            journal.write(self.run_folder(run_id), lines)
        except OSError as error:
            raise self._refuse("written", error) from error

    def _ask(self, question: Callable[[Connection], Answer]) -> Answer:
        refuse_links(self.folder)
        try:
            return index.ask(self.folder, question)
        except OSError as error:
            raise self._refuse("read", error) from error

    def _refuse(self, verb: str, error: OSError) -> HvlabError:
        what = "free space on the disk of" if error.errno in _FULL else "correct the permissions of"
        return HvlabError(
            f"the results in {self.folder} cannot be {verb}: {error}",
            remedy=f"{what} {self.folder}, or choose another folder with --results",
        )

    def rebuild(self) -> tuple[int, int]:
        """Rebuild the index; return the number of records, and of unreadable lines."""
        self.runs()  # A file that is not hvlab's is refused.
        (self.folder / index.NAME).unlink(missing_ok=True)
        query = "SELECT (SELECT count(*) FROM figures), coalesce(sum(unread), 0) FROM journals"
        records, unread = self._ask(lambda database: database.execute(query).fetchone())
        return records, unread

    def finished_cases(self, run_id: str) -> set[str]:
        """Ids of the cases that have records."""
        query = "SELECT DISTINCT case_id FROM figures WHERE run_id = ?"
        return self._ask(lambda database: {row[0] for row in database.execute(query, (run_id,))})

    def unfinished(self, spec_key: str) -> Run | None:
        """Return the last run of that specification unless it is finished."""
        for run_id, state in self._of(spec_key)[-1:]:
            if state in ("running", "interrupted"):
                return self.run(run_id)
        return None

    def find_finished(self, spec_key: str) -> str | None:
        """Id of the last finished run of that specification."""
        ended = [run_id for run_id, state in self._of(spec_key) if state == "finished"]
        return ended[-1] if ended else None

    def _of(self, spec_key: str) -> list[tuple[str, str]]:
        query = "SELECT run_id, state FROM begun WHERE spec_key = ?"
        return self._ask(lambda database: database.execute(query, (spec_key,)).fetchall())

    def runs(self) -> list[Run]:
        """Return every run in the order they began, whatever the clock said."""
        query = "SELECT run_id, started_at, lab, state, cases FROM begun"
        return self._ask(lambda database: [_run(*row) for row in database.execute(query)])

    def run(self, run_id: str | None = None) -> Run:
        """Return a run by its id, a unique part of it, ``last`` (the default), ``last~1``, ...

        Raises UsageError if there is none, or several.
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
                remedy=f"give more of it: {some(run.run_id for run in fitting)}",
            )
        near = difflib.get_close_matches(run_id, names, n=3, cutoff=0.5) or names[-3:]
        raise UsageError(f"there is no run {run_id!r}", remedy=f"similar ones: {', '.join(near)}")

    def spec(self, run_id: str) -> tuple[str, dict[str, Any]]:
        """Return the request of a run: its key and the specification, as ``create`` got them, masked."""
        query = "SELECT spec_key, spec FROM begun WHERE run_id = ?"
        rows = self._ask(lambda database: database.execute(query, (run_id,)).fetchall())
        return (rows[0][0], parse_masked(rows[0][1])) if rows else ("", {})

    def records(self, run_id: str) -> list[Record]:
        """Return a run's records in the order they were measured."""
        query = f"SELECT {', '.join(FIELDS)} FROM figures WHERE run_id = ? ORDER BY rowid"  # noqa: S608
        known: dict[Any, Any] = {}
        return self._ask(
            lambda database: [read_record(row, known) for row in database.execute(query, (run_id,))]
        )

    def latest(self, runs: int = 20) -> list[tuple[Record, list[int]]]:
        """Return a record of each successful case in the last runs, with the case's sizes in bytes.

        The oldest come first; cases without sizes have an empty list.
        """
        query = f"""
            SELECT {", ".join(FIELDS)}, group_concat(DISTINCT params ->> 'size_bytes') FROM figures
            WHERE run_id = ? AND status = 'ok' GROUP BY case_id ORDER BY rowid"""  # noqa: S608

        def read(database: Connection) -> list[tuple[Record, list[int]]]:
            known: dict[Any, Any] = {}
            ids = database.execute("SELECT run_id FROM begun").fetchall()[-runs:]
            rows = [row for run_id in ids for row in database.execute(query, run_id)]
            sizes = [sorted(map(int, row[-1].split(","))) if row[-1] else [] for row in rows]
            return [(read_record(row[:-1], known), of) for row, of in zip(rows, sizes, strict=True)]

        return self._ask(read)

    def overview(self) -> list[dict[str, Any]]:
        """Return the counts of successful and failed cases of each run, the newest first."""
        query = """
            SELECT run_id, sum(worst = 0), sum(worst = 2), sum(worst = 1) FROM (
              SELECT run_id, case_id,
                max(CASE status WHEN 'ok' THEN 0 WHEN 'skipped' THEN 1 ELSE 2 END) AS worst
              FROM figures GROUP BY run_id, case_id) GROUP BY run_id"""
        counts = self._ask(lambda database: {row[0]: row[1:] for row in database.execute(query)})
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


def _run(run_id: str, started_at: str, lab: str, state: str, cases: str) -> Run:
    clean = answers.clean
    planned = tuple(clean(str(case)) for case in json.loads(cases))
    return Run(run_name(run_id), clean(started_at), clean(lab), clean(state), planned)
