"""Say every 20 s which task is still running, where and for how long; at the end, the time in all."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: hvlab_progress
type: notification
short_description: Plain lines while a task takes long
description:
  - Prints a line every 20 seconds that a task is still running, and the time of the whole run at its end.
  - Prints nothing under ansible-runner, whose events say the same.
requirements:
  - enabled in C(callbacks_enabled)
"""

PERIOD = 20.0


def duration(seconds: float) -> str:
    """Return seconds as `45s`, `1m40s` or `2h05m`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Keeps the hosts that a task is running on, and a thread that reports them."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "hvlab_progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.disabled = "AWX_ISOLATED_DATA_DIR" in os.environ
        self._running: dict[str, tuple[str, float]] = {}
        self._reported: dict[str, int] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._began = time.monotonic()

    def v2_playbook_on_start(self, _: Any) -> None:
        """Start the clock and the thread."""
        self._began = time.monotonic()
        threading.Thread(target=self._report, daemon=True).start()

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Note that a host began a task."""
        with self._lock:
            self._running[host.get_name()] = (task.get_name().strip(), time.monotonic())

    def _count_ended(self, result: Any, **_: Any) -> None:
        with self._lock:
            self._running.pop(result._host.get_name(), None)

    v2_runner_on_ok = v2_runner_on_failed = v2_runner_on_skipped = v2_runner_on_unreachable = _count_ended

    def v2_playbook_on_stats(self, _: Any) -> None:
        """Stop the thread and give the time in all."""
        self._over.set()
        self._display.display(f"\ntime in all: {duration(time.monotonic() - self._began)}")

    def _report(self) -> None:
        while not self._over.wait(1.0):
            for line in self.report_due(time.monotonic()):
                self._display.display(line)

    def report_due(self, now: float) -> list[str]:
        """Return one line, with its hosts, for each task that has been running for another period."""
        with self._lock:
            running = list(self._running.items())
        tasks: dict[str, tuple[float, list[str]]] = {}
        for host, (task, began) in running:
            since, hosts = tasks.get(task, (began, []))
            tasks[task] = (min(since, began), [*hosts, host])
        lines = []
        for task, (since, hosts) in tasks.items():
            periods = int((now - since) // PERIOD)
            if periods > self._reported.get(task, 0):
                lines.append(f"... {task}  {', '.join(hosts)}  {duration(now - since)}")
            self._reported[task] = periods
        return lines
