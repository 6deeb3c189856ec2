"""A run as another process on the controller sees it: its store, and the file of its progress."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.bench.progress import RunProgress, read
from hvlab.results import searches
from hvlab.results.lock import holder
from hvlab.results.store import Record, Run, Store
from hvlab.statistics.looks import LOOKS

_BAD = ("failed", "skipped")
_GOING = ("running", "elsewhere")


@dataclass(frozen=True)
class CaseEnd:
    """How a case ended: ok, failed or skipped, with its figures or the error."""

    case: str
    hosts: tuple[str, ...]
    status: str
    said: str


@dataclass(frozen=True)
class View:
    """A run at one moment.

    ``state`` is that of the store; a run that is running there may be killed instead, or "elsewhere": on
    another machine, where it cannot be seen whether it still runs. ``judged`` are the records of the last
    look at all its comparisons, none before the first; None if it compares nothing. ``search`` is the
    folder of the search that the run belongs to, and ``searching`` says that this continues.
    """

    run: Run
    state: str
    progress: RunProgress | None
    cases: tuple[CaseEnd, ...]
    judged: tuple[Record, ...] | None
    spec: Mapping[str, Any]
    search: Path | None = None
    searching: bool = False

    @property
    def going(self) -> bool:
        """Whether the run may continue unattended."""
        return self.state in _GOING

    @property
    def ended(self) -> bool:
        """Whether the run and its search have both ended."""
        return not (self.going or self.searching)

    @property
    def total(self) -> int:
        """Return the number of cases, as far as it is known now."""
        planned = self.progress.total if self.progress else len(self.run.planned)
        return max(planned, len(self.cases))

    @property
    def doing(self) -> str:
        """Return the current activity."""
        if self.search and self.searching and not self.going:
            return f"between two runs of {searches.name(self.search)}"
        return self.progress.doing if self.progress and self.going else ""

    @property
    def running(self) -> int:
        """Return the number of running cases."""
        return int(self.going and self.progress is not None and self.progress.running)

    @property
    def elapsed(self) -> float | None:
        """Return the seconds since the bench began, or until it last wrote."""
        if self.progress is None:
            return None
        return max(0.0, (time.time() if self.going else self.progress.at) - self.progress.begun)

    @property
    def left(self) -> float | None:
        """Return the seconds left as bench estimates them; None before it does."""
        if self.progress is None or self.progress.left is None or not self.going:
            return None
        return max(0.0, self.progress.left - (time.time() - self.progress.at))

    def count(self, status: str) -> int:
        """Return the number of cases that ended with this status."""
        return sum(case.status == status for case in self.cases)


@dataclass(frozen=True)
class Search:
    """A search by tune or bisect, and the process that makes it: on which machine, and its id.

    That has the lab's lock in ``results``, where the proof goes, until the search ends.
    """

    folder: Path
    results: Store
    lab: str
    process: tuple[str, int]

    def going(self) -> bool:
        """Whether it still runs; on another machine, that cannot be seen."""
        return (socket.gethostname(), holder(self.results.folder, self.lab)) == self.process

    def run(self) -> tuple[Store, str] | None:
        """Return the run that is its own now; None between two."""
        for store in (Store(self.folder), self.results):
            for run in reversed(store.runs()):
                state, _, progress = _state(store, run.run_id) if run.state == "running" else ("", run, None)
                if state in _GOING and progress and (progress.machine, progress.pid) == self.process:
                    return store, run.run_id
        return None


@dataclass
class Watch:
    """Looks at a run; reads only what has changed since. In a search, it follows from run to run."""

    store: Store
    run_id: str
    search: Search | None = None
    _written: int | None = None
    _cases: tuple[CaseEnd, ...] = ()
    _judged: tuple[Record, ...] | None = None
    _spec: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> View:
        """Return the run as it is now. Raises UsageError if there is none, HvlabError if it is damaged."""
        searching = self.search is not None and self.search.going()
        state, run, progress = _state(self.store, self.run_id)
        if self.search and state not in _GOING and (following := self.search.run()):
            (self.store, self.run_id), self._written = following, None
            state, run, progress = _state(self.store, self.run_id)
        written = self.store.written_at(self.run_id)
        if written != self._written:
            records = self.store.records(self.run_id)
            self._spec = self.store.spec(self.run_id)[1]
            self._cases = _ends(records)
            self._judged = _up_to_look(records, self._spec, ended=state == "finished")
            self._written = written
        folder = self.search.folder if self.search else None
        return View(run, state, progress, self._cases, self._judged, self._spec, folder, searching)


def current(results: Store) -> Watch:
    """Return a watch of the newest running run. Raises UsageError if there is none."""
    runs = results.runs()
    going = [
        (run.started_at, Watch(results, run.run_id))
        for run in runs
        if run.state == "running" and _state(results, run.run_id)[0] in _GOING
    ]
    open_searches = [folder for folder in searches.folders(results.folder) if not searches.has_ended(folder)]
    going += [each for folder in open_searches for each in _searching(folder, results)]
    if going:
        return max(going, key=lambda each: each[0])[1]
    for lock in sorted(results.folder.glob(".*.lock")):
        lab = lock.name[1 : -len(".lock")]
        if (pid := holder(results.folder, lab)) is not None:
            raise UsageError(
                f"process {pid} prepares to measure lab {lab}: there is no run yet",
                remedy="try again when its terminal shows the first case",
            )
    if not runs:
        raise UsageError(f"there are no results in {results.folder}", remedy="run `hvlab bench` first")
    raise UsageError(
        f"no run is in progress in {results.folder}",
        remedy=f"`hvlab watch {runs[-1].run_id}` shows the last one; --results names other results",
    )


def open_watch(results: Store, run_id: str) -> Watch:
    """Return a watch of one run, of the results or of a search. Raises UsageError if there is none."""
    for store in (results, *map(Store, searches.folders(results.folder))):
        with suppress(UsageError):
            return Watch(store, store.run(run_id).run_id)
    return Watch(results, results.run(run_id).run_id)


def _searching(folder: Path, results: Store) -> Iterator[tuple[str, Watch]]:
    """Yield the start and the watch of the last run of a search, if that search still runs."""
    store = Store(folder)
    for last in store.runs()[-1:]:
        state, run, progress = _state(store, last.run_id)
        if progress is not None:
            search = Search(folder, results, run.lab, (progress.machine, progress.pid))
            if state in _GOING or search.going():
                yield run.started_at, Watch(store, run.run_id, search)


def _state(store: Store, run_id: str) -> tuple[str, Run, RunProgress | None]:
    """Return a run's state. The store is read after the lock: a process writes its end there first."""
    run = store.run(run_id)
    if run.state != "running":
        return run.state, run, read(store.run_folder(run_id))
    pid = holder(store.folder, run.lab)
    run, progress = store.run(run_id), read(store.run_folder(run_id))
    if run.state != "running":
        return run.state, run, progress
    if progress is None:
        return "killed" if pid is None else "running", run, None
    if progress.machine != socket.gethostname():
        return "elsewhere", run, progress
    return "running" if pid == progress.pid else "killed", run, progress


def _ends(records: Sequence[Record]) -> tuple[CaseEnd, ...]:
    from hvlab.results.summary import figures  # noqa: PLC0415 - it loads slowly

    by_case: dict[str, list[Record]] = {}
    for record in records:
        by_case.setdefault(record.case_id, []).append(record)
    ends = []
    for case, own in by_case.items():
        worst = next((record for record in own if record.status in _BAD), own[0])
        said = worst.error if worst.status in _BAD else figures(own)
        ends.append(CaseEnd(case, own[0].hosts, worst.status, said or ""))
    return tuple(ends)


def _up_to_look(
    records: Sequence[Record], spec: Mapping[str, Any], *, ended: bool
) -> tuple[Record, ...] | None:
    """Return the records up to the last complete look: verdicts in between would be one look too many."""
    if not (spec.get("auto") or spec.get("sides")):
        return None
    if ended:
        return tuple(records)
    # Repeats beyond a look are measured only after it.
    last = max((record.repeat for record in records), default=0)
    complete = [look.repeats for look in LOOKS if look.repeats < last] if spec.get("auto") else []
    return tuple(record for record in records if complete and record.repeat <= complete[-1])
