"""Temporary folders that are removed even after a command was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "hvlab-tmp-"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards, or after the next call of any command if this one is killed.

    Its owner holds a lock on it: what is not locked is left over from a process that is gone.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder, lock = _make_locked_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _make_locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = not os.fstat(lock).st_nlink
        except OSError as error:
            # A file system without locks: nobody can take it for abandoned there.
            gone = isinstance(error, BlockingIOError)
        if not gone:
            return folder, lock
        # Between its making and its lock, another process has taken it for abandoned.
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
