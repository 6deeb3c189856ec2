"""Write files whose mode and owner matter."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hvlab.files import write_file
from hvlab.vlab.command import run


def write(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write a file in one step, and the directories it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content, mode=mode)


def link(path: Path, target: str) -> None:
    """Make ``path`` a symbolic link to ``target``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@contextmanager
def locked(directory: Path, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a directory for oneself, making it when it is missing; ``waiting`` is called when it is held.

    If it is empty in the end, it goes. The holder may remove it, too: who waits for it then makes a new one.
    """
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        except FileExistsError:
            # mkdir raises it where the holder removes the directory between its two steps.
            if directory.exists() and not directory.is_dir():
                raise
            continue
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, directory):
                try:
                    yield
                finally:
                    with suppress(OSError):
                        directory.rmdir()
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open directory still has this name: it may have been removed, and made again by others."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def discard(tree: Path) -> None:
    """Remove a directory tree, never reaching into another file system."""
    run(["rm", "-rf", "--one-file-system", "--", tree], seconds=600)
