"""The files of a user's own training, as one archive that goes to the hosts like a data set.

``chosen`` describes them in a line that a run keeps: the key of their content, their folder, and their names.
``pack`` makes the archive from that line.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shlex
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from hvlab.base.errors import UsageError
from hvlab.base.paths import cache_dir
from hvlab.workloads.datasets.shelf import Shelf, key_of

# The only file of the set; programs/command.py unpacks it.
ARCHIVE = "files.tar"
LIMIT = 256 * 2**20
# Archives kept here and on the hosts (modules/hvlab_data.py): each edit makes another one.
KEPT = 5
# Without spaces, which a shell's line has: bash -c "cd src && python train.py".
_SCRIPT = re.compile(r"\S+\.(py|sh)")
# Never part of a program.
_SKIPPED = (".git", ".hg", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache")
# A folder with such files holds hvlab's results.
_RESULTS = ("hvlab.db", "runs/*/store.jsonl")


def format_chosen(words: Sequence[str], paths: Sequence[str], folder: Path) -> str:
    """Return the line for a command: the files in ``folder`` that it names, and ``paths``; empty without any.

    Raises UsageError for files that are missing, elsewhere, or too large.
    """
    folder = folder.absolute()
    names = dict.fromkeys(_inside(path, folder) for path in paths)
    for word in words:
        if Path(word).is_absolute() or word.startswith("-") or ".." in Path(word).parts:
            continue
        if word and _is_file(folder / word):
            names.setdefault(str(Path(word)))
        elif _SCRIPT.fullmatch(word) and not any(_is_file(folder / name / word) for name in names):
            raise UsageError(
                f"there is no file {word} in {folder}",
                remedy="start hvlab in its folder, or give an absolute path that is on every host",
            )
    return shlex.join([_key(folder, names), str(folder), *names]) if names else ""


def pack(line: str, *, cache: Path | None = None) -> tuple[str, Path]:
    """Return the key and the folder of the archive of ``line``, made unless cached.

    Raises UsageError if the files have changed since ``line`` was written, CheckError if the cache cannot be
    written.
    """
    key, folder, *names = shlex.split(line)
    shelf = Shelf(cache or cache_dir())
    with shelf.writing(), shelf.lock("own"):
        cached = shelf.find(key)
        if cached:
            os.utime(cached)
            return key, cached
        with shelf.new_folder("own") as new:
            with (new / ARCHIVE).open("wb") as file:
                _write(file, Path(folder), names)
            place, content = shelf.take(new)
        _forget(shelf, place)
    if content != key:
        raise UsageError(
            f"the files in {folder} have changed since this run was started",
            remedy="start a new run: the figures of two programs do not belong together",
        )
    return key, place


def _forget(shelf: Shelf, newest: Path) -> None:
    folders = [path for path in shelf.folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    own = [path for path in folders if [file.name for file in path.iterdir()] == [ARCHIVE]]
    for old in sorted(own, key=lambda path: (path == newest, path.stat().st_mtime))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
        old.with_name(f"{old.name}.tar.gz").unlink(missing_ok=True)


class _Digest(io.RawIOBase):
    """A file that keeps only the sha256 of its content."""

    def __init__(self) -> None:
        self.sum = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        block = bytes(cast("bytes", data))
        self.sum.update(block)
        return len(block)


def _key(folder: Path, names: Sequence[str] | dict[str, None]) -> str:
    digest = _Digest()
    try:
        _write(cast("IO[bytes]", digest), folder, list(names))
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be read: {error.strerror}", remedy="correct its permissions"
        ) from error
    return key_of({ARCHIVE: digest.sum.hexdigest()})


def _write(file: IO[bytes], folder: Path, names: Sequence[str]) -> None:
    """Write an archive that depends on the files' names, content and executable bits alone."""
    total = 0
    with tarfile.open(fileobj=file, mode="w|") as tar:
        for path in sorted({path for name in names for path in _files(folder / name)}):
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            state = path.stat()
            member.size, member.mode = state.st_size, 0o755 if state.st_mode & 0o100 else 0o644
            total += state.st_size
            if total > LIMIT:
                raise UsageError(
                    f"the files to copy from {folder} are more than {LIMIT // 2**20} MiB",
                    remedy="name fewer with --copy; keep data on the hosts, and give its absolute path",
                )
            with path.open("rb") as content:
                tar.addfile(member, content)


def _files(path: Path, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[Path]:
    """Yield the files of a folder, without links to folders ``above`` (device, inode)."""
    if path.is_file():
        yield path
    elif path.is_dir() and path.name not in _SKIPPED and not any(any(path.glob(each)) for each in _RESULTS):
        state = path.stat()
        here = (state.st_dev, state.st_ino)
        if here not in above:
            for inner in path.iterdir():
                yield from _files(inner, above | {here})


def _is_file(path: Path) -> bool:
    """Whether such a file exists; the text of a program, too long for a name, is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _inside(path: str, folder: Path) -> str:
    whole = (folder / Path(path).expanduser()).resolve()
    if not whole.exists():
        raise UsageError(f"--copy {path}: there is no such file or folder in {folder}")
    try:
        return str(whole.relative_to(folder.resolve()))
    except ValueError:
        raise UsageError(
            f"--copy {path}: it is not in {folder}", remedy="start hvlab in a folder that holds all files"
        ) from None
