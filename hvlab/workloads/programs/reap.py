"""End the processes of a case (RUN/CASE) or of a whole run (RUN) on this host: TERM, then KILL.

A process belongs to it when it is ours and HVLAB_CASE in its environment says so, or when it is the Open MPI
daemon above such a process. Nobody else's process is touched. Open MPI's session folders, which its killed
daemons leave, are ended once none of our processes uses MPI. Prints a JSON list of what was ended.
Needs Python 3.8+ and no package.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import platform
import shutil
import signal
import stat
import sys
import tempfile
import time
from typing import Any

GRACE_S = 3.0
DAEMONS = ("orted", "mpirun", "prted", "prterun")
SESSIONS = ("ompi", "prte")


def main() -> int:
    """Return the exit status: 2 if no run is named."""
    case = "/".join(sys.argv[1:]).strip("/")
    if not case:
        sys.stderr.write("usage: reap.py RUN[/CASE]\n")
        return 2
    print(json.dumps(reap(case)))
    sweep(tempfile.gettempdir())
    return 0


def reap(case: str) -> list[dict[str, Any]]:
    ended: dict[int, dict[str, Any]] = {}
    deadline = time.monotonic() + GRACE_S
    sent = signal.SIGTERM
    while True:
        pids = [pid for pid in processes(case) if is_alive(pid)]
        for pid in pids:
            if ended.get(pid, {}).get("signal") == sent.name:
                continue
            ended[pid] = {"pid": pid, "argv": arguments(pid), "signal": sent.name}
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)
        if not pids:
            return list(ended.values())
        if time.monotonic() > deadline:
            if sent is signal.SIGKILL:
                return list(ended.values())
            sent, deadline = signal.SIGKILL, time.monotonic() + GRACE_S
        time.sleep(0.05)


def sweep(folder: str) -> None:
    """Remove our session folders of Open MPI, unless a process of ours may still use one."""
    own = lineage(os.getpid())
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    if any(pid not in own and is_ours(pid) and is_alive(pid) and uses_mpi(pid) for pid in pids):
        return
    host = platform.node().partition(".")[0]
    for session in SESSIONS:
        for path in glob.glob("{}/{}.{}*.{}".format(folder, session, host, os.getuid())):
            about = os.lstat(path)
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)


def uses_mpi(pid: int) -> bool:
    """Whether a process is a daemon of Open MPI or was started by one."""
    try:
        with open("/proc/{}/environ".format(pid), "rb") as file:
            environment = file.read().split(b"\0")
    except OSError:
        return False
    return name(pid) in DAEMONS or any(item.startswith((b"OMPI_", b"PMIX_")) for item in environment)


def processes(case: str) -> list[int]:
    """Return the pids of a case or run, without our own ancestors."""
    spared = lineage(os.getpid())
    pids = set()
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        if pid in spared or not belongs(pid, case):
            continue
        pids.add(pid)
        pids.update(up for up in lineage(pid) if up not in spared and name(up) in DAEMONS and is_ours(up))
    return sorted(pids)


def belongs(pid: int, case: str) -> bool:
    """Whether a process is ours and marked with the case, or with a case of the run."""
    try:
        with open("/proc/{}/environ".format(pid), "rb") as file:
            environment = file.read().split(b"\0")
    except OSError:
        return False
    own = b"HVLAB_CASE=" + os.fsencode(case.rstrip("/"))
    return any(item == own or item.startswith(own + b"/") for item in environment) and is_ours(pid)


def is_ours(pid: int) -> bool:
    try:
        return os.stat("/proc/{}".format(pid)).st_uid == os.getuid()
    except OSError:
        return False


def status(pid: int) -> tuple[str, int]:
    """Return (state, parent's pid) of a process; ("", 0) if it is gone."""
    try:
        with open("/proc/{}/stat".format(pid), errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[1])


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return status(pid)[0] not in ("", "Z", "X")


def name(pid: int) -> str:
    try:
        with open("/proc/{}/comm".format(pid), errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def lineage(pid: int) -> list[int]:
    """Return a process and its ancestors, without init."""
    line = []
    while pid > 1:
        line.append(pid)
        pid = status(pid)[1]
    return line


def arguments(pid: int) -> list[str]:
    try:
        with open("/proc/{}/cmdline".format(pid), "rb") as file:
            return [part.decode(errors="replace") for part in file.read().split(b"\0")[:-1]][:8]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
