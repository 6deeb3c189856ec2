"""What a command costs this machine: seconds, CPU seconds and memory of all processes that it starts.

Processes that outlive their parents count as well, such as ssh's shared connections.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import click

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Usage:
    """Wall and CPU seconds of a command, and the most MB that its processes held together (PSS)."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


def measure(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, adopt: bool = True
) -> tuple[Usage, str]:
    """Run a command that must succeed; return what it cost, and its output.

    ``adopt`` says whether processes that outlive their parents count: those of a lab's hosts would, too.
    """
    _adopt_orphans(adopt)
    before, start, peak = _cpu_seconds(), monotonic(), [0.0]
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(over, peak), daemon=True)
    watch.start()
    try:
        done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    finally:
        over.set()
        watch.join()
        _adopt_orphans(False)
    if done.returncode:
        raise click.ClickException(
            f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
        )
    usage = Usage(round(monotonic() - start, 1), round(_cpu_seconds() - before, 1), round(peak[0]))
    return usage, done.stdout


def _adopt_orphans(yes: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


def _watch(over: threading.Event, peak: list[float]) -> None:
    while not over.wait(_INTERVAL_S):
        peak[0] = max(peak[0], sum(_megabytes(process) for process in _descendants()))


def _descendants() -> dict[int, list[str]]:
    """Return ``/proc/<pid>/stat`` from the state on, of all processes below this one."""
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
    below: dict[int, list[str]] = {}
    parents = {os.getpid()}
    while parents:
        children = {pid: stat for pid, stat in stats.items() if int(stat[1]) in parents}
        below |= children
        parents = set(children)
    return below


def _megabytes(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
    return 0.0


def _cpu_seconds() -> float:
    """Return the CPU time of all children so far: of those that ended, and of those that still run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(sum(map(int, stat[11:15])) for stat in _descendants().values())
    return ended.ru_utime + ended.ru_stime + running / _TICKS
