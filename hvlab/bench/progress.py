"""The progress of long work, on standard error: a live line on a terminal, elsewhere a line for each case.

It is also written to a file of the run, for `hvlab watch` in another terminal.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from hvlab.base.answers.shapes import Count, NotNegative
from hvlab.base.files import make_folder, write_file

NAME = "progress.json"


class RunProgress(BaseModel):
    """The progress of a run for other processes of this machine; times are seconds since 1970.

    ``before`` cases were done when it began, and ``left`` was the estimate ``at`` that time. ``doing`` says
    the current activity, with ``running`` a case; ``expected`` is the estimate before the first.
    """

    model_config = ConfigDict(strict=True)

    machine: str
    pid: Count
    begun: NotNegative
    at: NotNegative
    total: Count
    done: Count
    before: Count
    doing: str
    running: bool
    left: NotNegative | None
    expected: str


def read(folder: Path) -> RunProgress | None:
    """Return the last state that the bench in ``folder`` wrote; None if nothing can be read."""
    try:
        return RunProgress.model_validate_json((folder / NAME).read_bytes())
    except (OSError, ValidationError):
        return None


class Display:
    """The current activity, the number of finished cases, the time left. A context manager."""

    def __init__(self, total: int, *, done: int = 0) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.total, self.done, self.before = total, done, done
        self._started = self._last = time.monotonic()
        self._begun = time.time()
        self._doing = self._expected = ""
        self._running = False
        self._file: Path | None = None
        self._written: tuple[int, int, str] | None = None
        self._progress = Progress(
            SpinnerColumn(),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("reaching the hosts", total=total, completed=done, left="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()
        self._doing, self._running = "", False
        self._write()

    def keep(self, folder: Path) -> None:
        """Write the progress into the run's folder from now on."""
        make_folder(folder)
        self._file = folder / NAME
        self._write()

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, markup=False)

    def expect(self, text: str) -> None:
        """Print how long the work will take."""
        self._expected = text
        self.note(text)

    def step(self, text: str, *, running: bool = False) -> None:
        """Set the current activity, and whether it is a running case."""
        left = self._estimate_left()
        remaining = f"about {timedelta(seconds=round(left))} left" if left is not None else ""
        self._progress.update(self._task, description=text, left=remaining)
        self._doing, self._running = text, running
        self._write()

    def extend(self, total: int, text: str) -> None:
        """Count up to ``total`` cases from now on, and say why."""
        self.total = total
        self._progress.update(self._task, total=total)
        self.note(text)

    def exclude_wait(self, seconds: float) -> None:
        """Leave time that passed before the work began out of the estimate of the time left."""
        self._started += seconds
        self._last += seconds

    def count_case(self, case: str, hosts: Sequence[str], seconds: float, status: str) -> None:
        """Count a case and say how it ended."""
        self.done += 1
        self._last = time.monotonic()
        self._progress.update(self._task, completed=self.done)
        left = self._estimate_left()
        remaining = f", about {left:.0f} s left" if left else ""
        self.note(
            f"[{self.done}/{self.total}] {case} on {','.join(hosts)}: {status} ({seconds:.1f} s{remaining})"
        )

    def _estimate_left(self) -> float | None:
        """Return the seconds left, estimated from the cases done in this call; None before the first."""
        measured = self.done - self.before
        if not measured:
            return None
        expected = (self._last - self._started) / measured * (self.total - self.done)
        return max(0.0, expected - (time.monotonic() - self._last))

    def _write(self) -> None:
        """Replace the file where anything has changed; a full disk ends the run at the store, not here."""
        state = (self.done, self.total, self._doing)
        if self._file is None or state == self._written:
            return
        self._written = state
        progress = RunProgress(
            machine=socket.gethostname(),
            pid=os.getpid(),
            begun=self._begun,
            at=time.time(),
            total=self.total,
            done=self.done,
            before=self.before,
            doing=self._doing,
            running=self._running,
            left=self._estimate_left(),
            expected=self._expected,
        )
        with suppress(OSError):
            write_file(self._file, progress.model_dump_json() + "\n")
