"""The progress of long work, on standard error: a live line on a terminal, elsewhere a line for each case."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Display:
    """What is running, how many cases are done, how much time is left. A context manager."""

    def __init__(self, total: int, *, done: int = 0) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.total, self.done, self.before = total, done, done
        self._started = self._last = time.monotonic()
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

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, markup=False)

    def step(self, text: str) -> None:
        """Say what is going on now."""
        left = self._left()
        remaining = f"about {timedelta(seconds=round(left))} left" if left is not None else ""
        self._progress.update(self._task, description=text, left=remaining)

    def extend(self, total: int, text: str) -> None:
        """Count up to ``total`` cases from now on, and say why."""
        self.total = total
        self._progress.update(self._task, total=total)
        self.note(text)

    def waited(self, seconds: float) -> None:
        """Leave time that passed before the work began out of the estimate of the time left."""
        self._started += seconds
        self._last += seconds

    def finished(self, case: str, hosts: Sequence[str], seconds: float, status: str) -> None:
        """Count a case and say how it ended."""
        self.done += 1
        self._last = time.monotonic()
        self._progress.update(self._task, completed=self.done)
        left = self._left()
        remaining = f", about {left:.0f} s left" if left else ""
        self.note(
            f"[{self.done}/{self.total}] {case} on {','.join(hosts)}: {status} ({seconds:.1f} s{remaining})"
        )

    def _left(self) -> float | None:
        """Return the seconds left, estimated from the cases done in this call; None before the first."""
        measured = self.done - self.before
        if not measured:
            return None
        expected = (self._last - self._started) / measured * (self.total - self.done)
        return max(0.0, expected - (time.monotonic() - self._last))
