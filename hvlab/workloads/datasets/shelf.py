"""The controller's cache of data sets: each complete, in a folder named after its key."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hvlab.base import cache
from hvlab.base.errors import CheckError
from hvlab.base.files import NO_LOCKS, file_sha256, replacing

_DIGITS = 16


def key_of(sums: Mapping[str, str]) -> str:
    """Return 16 hex digits of the sha256 of sha256sum's sorted output for files; ``sums`` are by name."""
    text = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def key_in(folder: Path) -> str | None:
    """Return the key of the files in ``folder``, if it exists."""
    try:
        return key_of({path.name: file_sha256(path) for path in folder.iterdir()})
    except FileNotFoundError:
        return None


class Shelf:
    """The data sets in a cache folder."""

    def __init__(self, parent: Path) -> None:
        self.folder = parent / "datasets"

    def find(self, key: str) -> Path | None:
        """Return the folder of a set; None if it is missing or damaged."""
        folder = self.folder / key
        if key_in(folder) != key:
            return None
        cache.use(folder)
        return folder

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raise CheckError if the cache cannot be written."""
        try:
            yield
        except OSError as error:
            raise CheckError(
                f"the cache {self.folder} cannot be written: {error.strerror or error}",
                remedy="free some space there, or name another folder in HVLAB_CACHE",
            ) from error

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold ``name`` against every other process, after waiting for its holder.

        On a file system without locks nobody holds it: the key tells whether a set is complete.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f".{name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
            yield

    @contextmanager
    def new_folder(self, name: str) -> Iterator[Path]:
        """Give the holder of ``name`` an empty folder for a new set; it is removed afterwards."""
        new = self.folder / f".new-{name}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            yield new
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def take(self, new: Path) -> tuple[Path, str]:
        """Move the files of ``new`` to their place; return it and their key."""
        key = key_of({path.name: file_sha256(path) for path in new.iterdir()})
        folder = self.folder / key
        with self.lock(key):
            if self.find(key) is None:
                shutil.rmtree(folder, ignore_errors=True)
                new.rename(folder)
        return folder, key


def archive(folder: Path) -> Path:
    """Return a set as one compressed file, made unless it exists. Raises CheckError for a changed set."""
    packed = folder.with_name(f"{folder.name}.tar.gz")
    with Shelf(folder.parent.parent).lock(folder.name):
        if not packed.is_file():
            if key_in(folder) != folder.name:
                raise CheckError(f"the files in {folder} have changed", remedy="remove this folder")
            with replacing(packed) as part, tarfile.open(part, "w:gz", compresslevel=1) as tar:
                for path in sorted(folder.iterdir()):
                    tar.add(path, path.name, filter=_nobodys)
        cache.use(packed)
    return packed


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member
