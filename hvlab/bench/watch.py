"""What another process sees of a run: the store and the file of its progress, on the controller alone."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hvlab.bench.progress import RunProgress, read
from hvlab.errors import UsageError
from hvlab.results.lock import holder
from hvlab.results.store import Record, Run, Store
from hvlab.statistics.looks import LOOKS

_BAD = ("failed", "skipped")


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
    look at all its comparisons, none before the first; None where it compares nothing.
    """

    run: Run
    state: str
    progress: RunProgress | None
    cases: tuple[CaseEnd, ...]
    judged: tuple[Record, ...] | None
    spec: Mapping[str, Any]

    @property
    def going(self) -> bool:
        """Return whether it may go on by itself."""
        return self.state in ("running", "elsewhere")

    @property
    def total(self) -> int:
        """Return how many cases there are, as far as is known now."""
        planned = self.progress.total if self.progress else len(self.run.planned)
        return max(planned, len(self.cases))

    @property
    def doing(self) -> str:
        """Return what is going on."""
        return self.progress.doing if self.progress and self.going else ""

    @property
    def running(self) -> int:
        """Return how many cases are running."""
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
        """Return how many cases ended so."""
        return sum(case.status == status for case in self.cases)


def current(store: Store) -> Run:
    """Return the newest run that goes on. Raises UsageError where there is none."""
    runs = store.runs()
    for run in reversed(runs):
        if run.state == "running" and _state(store, run.run_id)[0] in ("running", "elsewhere"):
            return run
    if not runs:
        raise UsageError(f"there are no results in {store.folder}", remedy="run `hvlab bench` first")
    raise UsageError(
        f"no run goes on in {store.folder}",
        remedy=f"`hvlab watch {runs[-1].run_id}` shows the last one; --results names other results",
    )


@dataclass
class Watch:
    """Looks at a run; reads only what has changed since."""

    store: Store
    run_id: str
    _written: tuple[int, ...] = ()
    _cases: tuple[CaseEnd, ...] = ()
    _judged: tuple[Record, ...] | None = None
    _spec: Mapping[str, Any] = field(default_factory=dict)

    def look(self) -> View:
        """Return the run as it is now. Raises UsageError where there is none, HvlabError if it is damaged."""
        state, run, progress = _state(self.store, self.run_id)
        written = self._written_at()
        if written != self._written:
            records = self.store.records(self.run_id)
            self._spec = self.store.spec(self.run_id)[1]
            self._cases = _ends(records)
            self._judged = _judged(records, self._spec, ended=state == "finished")
            self._written = written
        return View(run, state, progress, self._cases, self._judged, self._spec)

    def _written_at(self) -> tuple[int, ...]:
        """Return when the files of the store were last written."""
        files = (self.store.folder / name for name in ("hvlab.db", "hvlab.db-wal"))
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)


def _state(store: Store, run_id: str) -> tuple[str, Run, RunProgress | None]:
    """Return a run's state: what the store says last counts, and was said before a process ended."""
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


def _judged(records: Sequence[Record], spec: Mapping[str, Any], *, ended: bool) -> tuple[Record, ...] | None:
    """Return the records up to the last complete look: verdicts in between would be one look too many."""
    if not (spec.get("auto") or spec.get("sides")):
        return None
    if ended:
        return tuple(records)
    # Repeats beyond a look are measured only after it.
    last = max((record.repeat for record in records), default=0)
    complete = [look.repeats for look in LOOKS if look.repeats < last] if spec.get("auto") else []
    return tuple(record for record in records if complete and record.repeat <= complete[-1])
