"""How the system schedules Gloo's threads. Needs no torch."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


def calm() -> None:
    """Keep the threads that receive for Gloo from interrupting others; to be called after a group is made.

    Such a thread spins while another holds their connection's lock to send. If it has just taken the core
    from that very thread, it spins until its time is up: milliseconds for each exchange.
    """
    for task in Path("/proc/self/task").iterdir() if sys.platform == "linux" else ():
        with suppress(OSError):
            if (task / "comm").read_text(encoding="utf-8") == "gloo_tcp_loop\n":
                os.sched_setscheduler(int(task.name), os.SCHED_BATCH, os.sched_param(0))
