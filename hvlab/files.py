"""Files written in one step: the old one or the new one, never half of either. Folders that nobody leaves."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

_TEMPORARY = "hvlab-tmp-"
# Of a YAML file that a person writes: bytes, and values once its aliases are written out.
_BYTES, _VALUES = 2**20, 100_000


@contextmanager
def replacing(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """Yield a new empty file beside ``path``, which takes its place when the block ends without an error.

    It gets exactly ``mode``, whatever the umask, and is on disk before it is renamed.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    part = Path(name)
    try:
        yield part
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
        part.replace(path)
    finally:
        os.close(descriptor)
        part.unlink(missing_ok=True)


def write_file(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Replace a file in one step. Raises OSError."""
    with replacing(path, mode=mode) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def read_yaml(path: Path) -> Any:
    """Return what a YAML file of a person holds. Raises OSError, or ValueError with what is wrong.

    Refused is also what would take for ever: a file of over 1 MiB, deep nesting, aliases of aliases.
    """
    with path.open("rb") as file:
        content = file.read(_BYTES + 1)
    if len(content) > _BYTES:
        raise ValueError("it is larger than 1 MiB")
    try:
        return written_out(lambda: yaml.safe_load(content.decode("utf-8")))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def written_out(load: Callable[[], Any]) -> Any:
    """Return what ``load`` reads from YAML. Raises ValueError where its aliases or its depth have no end."""
    try:
        value = load()
        size = _values(value, {})
    except RecursionError as error:
        raise ValueError("it is nested too deeply, or an alias stands in what it names") from error
    if size > _VALUES:
        raise ValueError(f"its aliases stand for more than {_VALUES} values")
    return value


def _values(value: Any, known: dict[int, int]) -> int:
    """Return how many values there are once each alias is written out."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(value)]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is gone afterwards, or after the next call of any command if this one is killed.

    Its owner holds a lock on it: what is not locked is left over from a process that is gone.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder, lock = _locked_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between its making and its lock, another process may have taken it for abandoned.
            if os.fstat(lock).st_nlink:
                return folder, lock
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_TEMPORARY}*"):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
