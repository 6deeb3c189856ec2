"""The real state of a lab: its processes and mounts, read from /proc and never from a record."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
_OCTAL = re.compile(rb"\\([0-7]{3})")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def root_option(root: Path) -> str:
    """Return the argument by which a node's systemd-nspawn is known."""
    return f"--directory={root}"


def supervisors(nodes: Path) -> dict[str, list[int]]:
    """Return the pids of systemd-nspawn by the name of the node, for the nodes that lie in ``nodes``.

    The first is the one that was started; while a node starts it has children of the same command line.
    A process of somebody else than root, or the user that runs this, is none, whatever its command line says.
    """
    trusted = {0, os.geteuid()}
    pids_of: dict[str, list[int]] = defaultdict(list)
    for pid in _pids():
        for word in _read(PROC / str(pid) / "cmdline").split(b"\0"):
            root = Path(os.fsdecode(word.partition(b"=")[2]))
            if word.startswith(b"--directory=/") and root.parent.parent == nodes:
                uids = {int(uid) for uid in _status(pid, b"Uid")[:2]}
                if uids and uids <= trusted and is_alive(pid):
                    pids_of[root.parent.name].append(pid)
    return {name: sorted(pids, key=lambda pid: (_start_tick(pid), pid)) for name, pids in pids_of.items()}


def members(nodes: Path) -> dict[str, set[int]]:
    """Return the pids that run inside each node: those whose root is that node's overlay."""
    node_in: dict[str, str | None] = {}
    pids_of: dict[str, set[int]] = defaultdict(set)
    for pid in _pids():
        with suppress(OSError):
            space = str((PROC / str(pid) / "ns/mnt").readlink())
            if space not in node_in:
                node_in[space] = _node_of(_read(PROC / str(pid) / "mountinfo"), nodes)
            name = node_in[space]
            if name is not None:
                pids_of[name].add(pid)
    return pids_of


def _node_of(mountinfo: bytes, nodes: Path) -> str | None:
    """Return the name of the node whose upper directory is mounted on / in this mount table."""
    for line in mountinfo.split(b"\n"):
        mounted, _, kind = line.partition(b" - ")
        if kind.startswith(b"overlay ") and mounted.split(b" ")[4] == b"/":
            for option in os.fsdecode(kind.split(b" ")[-1]).split(","):
                key, _, value = option.partition("=")
                if key == "upperdir" and Path(value).parent.parent == nodes:
                    return Path(value).parent.name
    return None


def mounts(below: Path) -> list[Path]:
    """Return the mount points at or below a directory, the deepest first."""
    points = []
    for line in filter(None, _read(PROC / "self/mountinfo").split(b"\n")):
        name = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), line.split(b" ")[4])
        point = Path(os.fsdecode(name))
        if point == below or below in point.parents:
            points.append(point)
    return points[::-1]


def leader(supervisor: int) -> int | None:
    """Return the pid, seen from here, of a node's own PID 1; None while it has none."""
    for task in (PROC / str(supervisor) / "task").glob("*/children"):
        for child in _read(task).split():
            if _status(int(child), b"NSpid")[1:] == [b"1"]:
                return int(child)
    return None


def _status(pid: int, key: bytes) -> list[bytes]:
    """Return the words of a line of a process's status; none when it is gone."""
    lines = (line.split() for line in _read(PROC / str(pid) / "status").split(b"\n"))
    return next((words[1:] for words in lines if words and words[0] == key + b":"), [])


def _start_tick(pid: int) -> int:
    """Return when a process began, in clock ticks since the machine booted; 0 when it is gone."""
    stat = _read(PROC / str(pid) / "stat").rpartition(b")")[2].split()
    return int(stat[19]) if stat else 0


def age(pid: int) -> float:
    """Return the age of a process in seconds."""
    uptime = float(_read(PROC / "uptime").split()[0])
    return max(0.0, uptime - _start_tick(pid) / os.sysconf("SC_CLK_TCK"))


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    state = _read(PROC / str(pid) / "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in (b"Z", b"X")


def kill(pids: set[int], seconds: float = 5.0) -> set[int]:
    """Kill processes, wait up to ``seconds`` and return those that still run."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return wait_gone(pids, seconds)


def wait_gone(pids: set[int], seconds: float) -> set[int]:
    """Wait up to ``seconds`` for processes to end and return those that still run."""
    deadline = time.monotonic() + seconds
    while (left := {pid for pid in pids if is_alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left
