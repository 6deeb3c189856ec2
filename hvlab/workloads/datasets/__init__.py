"""The data sets of the training workloads, prepared on the controller.

In: the name of a data set, or a folder of the user's. Out: a ``Dataset``, four IDX files in the cache under a
key that stands for their content, and its compressed ``archive`` for the hosts. Read ``prepare`` below first,
then ``shelf``, the cache. Mirrors (MNIST) and ``idx`` bring the files, and ``idx`` reads and writes their
format; ``sets.yml`` holds checksums and mirrors. ``own_files`` are no data set, but go to the hosts in the
same way: what a user's own training needs there.
"""

from __future__ import annotations

import difflib
import gzip
import http.client
import os
import re
import shutil
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from hvlab.base.errors import CheckError, UsageError
from hvlab.base.files import file_sha256
from hvlab.base.paths import cache_dir
from hvlab.base.yaml_files import read_shipped
from hvlab.workloads.datasets import idx
from hvlab.workloads.datasets.shelf import Shelf, archive, key_of

_BLOCK = 1 << 16
_PARTIAL = 206


@dataclass(frozen=True)
class RemoteFile:
    """A file on the mirrors: its length and its sha256 in hex."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Patience:
    """Seconds that a mirror may be silent, and that one file may take."""

    silence: float = 10.0
    file: float = 300.0


class MirrorError(Exception):
    """A mirror did not give a file; ``dead``: it will give no other either."""

    def __init__(self, message: str, *, dead: bool = False) -> None:
        super().__init__(message)
        self.dead = dead


def fetch(
    files: Mapping[str, RemoteFile], mirrors: Sequence[str], folder: Path, patience: Patience
) -> dict[str, list[str]]:
    """Fetch the files into ``folder``, resuming partial ones; return the mirrors' errors if some lack."""
    errors: dict[str, list[str]] = {mirror: [] for mirror in mirrors}
    missing = {name: file for name, file in files.items() if not _is_complete(folder / name, file)}
    for mirror in mirrors:
        for name, file in list(missing.items()):
            try:
                _fetch_one(f"{mirror.rstrip('/')}/{name}", folder / name, file, patience)
                del missing[name]
            except MirrorError as error:
                errors[mirror].append(f"{name}: {error}")
                if error.dead:
                    break
    return errors if missing else {}


def _is_complete(path: Path, file: RemoteFile) -> bool:
    return path.is_file() and file_sha256(path) == file.sha256


def _fetch_one(url: str, path: Path, file: RemoteFile, patience: Patience) -> None:
    """Fetch one file; restart if another mirror's beginning does not fit."""
    part = path.with_name(f"{path.name}.part")
    begun = part.stat().st_size if part.is_file() else 0
    begun = begun if begun < file.bytes else 0
    _load(url, part, begun, file, patience)
    if begun and file_sha256(part) != file.sha256:
        _load(url, part, 0, file, patience)
    digest = file_sha256(part)
    if digest != file.sha256:
        part.unlink()
        raise MirrorError(f"its sha256 is {digest}, not {file.sha256}")
    part.rename(path)


def _load(url: str, part: Path, begun: int, file: RemoteFile, patience: Patience) -> None:
    """Fetch the rest of ``part`` from byte ``begun`` on, or all of it if the mirror gives no parts."""
    end = time.monotonic() + patience.file
    opener = urllib.request.build_opener()
    opener.addheaders = [("User-Agent", "hvlab"), *([("Range", f"bytes={begun}-")] if begun else [])]
    with _one_line_errors(patience), opener.open(url, timeout=patience.silence) as answer:
        length = begun if answer.status == _PARTIAL else 0
        announced = answer.length
        if announced is not None and length + announced != file.bytes:
            raise MirrorError(f"it has {length + announced} bytes, not {file.bytes}")
        with part.open("ab" if length else "wb") as out:
            for block in iter(lambda: answer.read1(_BLOCK), b""):
                length += len(block)
                if length > file.bytes:
                    raise MirrorError(f"it is longer than {file.bytes} bytes")
                out.write(block)
                if time.monotonic() > end:
                    problem = f"only {length} of {file.bytes} bytes arrived in {patience.file:g} s"
                    raise MirrorError(problem, dead=True)
    if length < file.bytes:
        raise MirrorError(f"only {length} of {file.bytes} bytes arrived")


@contextmanager
def _one_line_errors(patience: Patience) -> Iterator[None]:
    try:
        yield
    except HTTPError as error:
        error.close()
        raise MirrorError(f"HTTP {error.code} {error.reason}") from error
    except (URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        silent = f"no answer within {patience.silence:g} s"
        problem = silent if isinstance(reason, TimeoutError) else str(reason) or type(reason).__name__
        raise MirrorError(problem, dead=True) from error


__all__ = ["NAMES", "SYNTHETIC", "Dataset", "Patience", "archive", "prepare"]

# Made by each rank; there is nothing to copy.
SYNTHETIC = "synthetic"
NAMES = ("digits", "mnist", SYNTHETIC)
MIRRORS = "HVLAB_MNIST_MIRRORS"


@dataclass(frozen=True)
class Dataset:
    """Files in ``folder``: four IDX files, or one of ``own_files``; ``key`` (16 hex digits) is theirs."""

    name: str
    folder: Path
    key: str


def prepare(
    name_or_dir: str,
    *,
    cache: Path | None = None,
    mirrors: Sequence[str] | None = None,
    patience: Patience | None = None,
) -> Dataset:
    """Return a data set as files on the controller, made or fetched unless cached.

    ``digits`` and ``mnist`` are names; anything else is a folder with the four files. ``mirrors`` are
    addresses of MNIST's files without their names; by default those in HVLAB_MNIST_MIRRORS, else well-known
    ones. Raises UsageError for an unknown name or a wrong folder, CheckError if no mirror has the files or
    the cache cannot be written.
    """
    shelf = Shelf(cache or cache_dir())
    with shelf.writing():
        if name_or_dir not in _sets():
            return _from_folder(name_or_dir, shelf)
        key = key_of(_sets()[name_or_dir]["sha256"])
        with shelf.lock(name_or_dir):
            folder = shelf.find(key)
            if folder:
                return Dataset(name_or_dir, folder, key)
            with shelf.new_folder(name_or_dir) as new:
                if name_or_dir == "digits":
                    idx.write_digits(new)
                else:
                    _fetch_mnist(shelf, new, _mirrors(mirrors), patience or Patience())
                return Dataset(name_or_dir, *shelf.take(new))


@once
def _sets() -> Mapping[str, Mapping[str, Any]]:
    sets: Mapping[str, Mapping[str, Any]] = read_shipped(Path(__file__).with_name("sets.yml"))
    return sets


def _from_folder(name: str, shelf: Shelf) -> Dataset:
    source = Path(name).expanduser()
    if name == SYNTHETIC:
        raise UsageError(f"{SYNTHETIC} has no files: each rank makes its own")
    if not source.is_dir():
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"there is no data set {name!r}, and no such folder",
            remedy=f"{hint}give {', '.join(NAMES)} or a folder with MNIST's four files",
        )
    with shelf.lock("given"), shelf.new_folder("given") as new:
        idx.copy_files(source, new)
        return Dataset(name, *shelf.take(new))


def _mirrors(requested: Sequence[str] | None) -> Sequence[str]:
    addresses = re.split(r"[\s,]+", os.environ.get(MIRRORS, "").strip())
    chosen = list(requested or filter(None, addresses)) or list(_sets()["mnist"]["mirrors"])
    for address in chosen:
        if urlsplit(address).scheme not in ("http", "https"):
            raise UsageError(
                f"{address!r} is no mirror", remedy=f"give http:// or https:// addresses in {MIRRORS}"
            )
    return chosen


def _fetch_mnist(shelf: Shelf, new: Path, mirrors: Sequence[str], patience: Patience) -> None:
    """Fetch MNIST and unpack it; complete files are kept for the next try."""
    incoming = shelf.folder / ".incoming-mnist"
    incoming.mkdir(exist_ok=True)
    known = _sets()["mnist"]
    errors = fetch(
        {name: RemoteFile(**file) for name, file in known["archives"].items()}, mirrors, incoming, patience
    )
    if errors:
        lines = "".join(f"\n  {mirror}: {'; '.join(texts)}" for mirror, texts in errors.items())
        raise CheckError(
            f"MNIST could not be fetched:{lines}",
            remedy="download the four files yourself and use --data DIR; or use --data digits, which needs "
            f"no network; {MIRRORS} names other mirrors",
        )
    for name in idx.FILES:
        with gzip.open(incoming / f"{name}.gz") as source, (new / name).open("wb") as file:
            shutil.copyfileobj(source, file)
    shutil.rmtree(incoming)
