"""One measurement of a lab at a time: two would distort each other's figures."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from hvlab.base.errors import UsageError

# Every lock of this machine, in the words of Linux (proc_locks(5)).
_LOCKS = Path("/proc/locks")


@contextmanager
def measuring(folder: Path, lab: str) -> Iterator[None]:
    """Lock a lab with a file in the results folder.

    Raises UsageError if another process measures it, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f".{lab}.lock").open("a+", encoding="utf-8")
    except OSError as error:
        problem = f"the results folder {folder} cannot be written: {error.strerror}"
        raise UsageError(problem, remedy="choose another with --results") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            process = file.read().strip() or "?"
            problem = f"lab {lab} is being measured by process {process}, with results in {folder}"
            raise UsageError(
                problem,
                remedy="Wait for it to end: two runs at once would distort each other's figures. If they "
                "use different hosts, give each its own --results.",
            ) from None
        except OSError as error:
            raise UsageError(
                f"the results folder {folder} is on a file system that has no locks: {error.strerror}",
                remedy="choose another with --results (Lustre has locks if mounted with flock)",
            ) from error
        _sign(file, folder)
        yield


def holder(folder: Path, lab: str) -> int | None:
    """Return the process on this machine that measures the lab, if any.

    The lock is not tried: that would refuse a measurement that begins in the same instant.
    """
    file = folder / f".{lab}.lock"
    try:
        pid, inode = file.read_text("utf-8").strip(), file.stat().st_ino
        locks = _LOCKS.read_text("utf-8")
    except OSError:
        return None
    for line in locks.splitlines():
        match line.split():
            case [_, "FLOCK", _, _, owner, place, *_] if owner == pid and place.endswith(f":{inode}"):
                return int(pid)
    return None


def _sign(file: TextIO, folder: Path) -> None:
    try:
        file.truncate(0)
        # Without a buffer, which would fail once more as the file is closed.
        os.write(file.fileno(), str(os.getpid()).encode())
    except OSError as error:
        problem = f"the results folder {folder} cannot be written: {error.strerror}"
        raise UsageError(problem, remedy="free space there, or choose another with --results") from error
