"""The data sets of the training workloads, prepared on the controller.

In: the name of a data set, or a folder of the user's. Out: a ``Dataset``, four IDX files in the cache under a
key that stands for their content, and its compressed ``archive`` for the hosts. Read ``prepare`` below first,
then ``shelf``, the cache. ``mirrors`` (MNIST) and ``idx`` bring the files, and ``idx`` reads and writes their
format; ``sets.yml`` holds checksums and mirrors. ``own_files`` are no data set, but go to the hosts in the
same way: what a user's own training needs there.
"""

from __future__ import annotations

import difflib
import gzip
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hvlab.base.errors import CheckError, UsageError
from hvlab.base.paths import cache_dir
from hvlab.base.yaml_files import read_shipped
from hvlab.workloads.datasets import idx
from hvlab.workloads.datasets.mirrors import Patience, RemoteFile, fetch
from hvlab.workloads.datasets.shelf import Shelf, archive, key_of

__all__ = ["NAMES", "SYNTHETIC", "Dataset", "Patience", "archive", "prepare"]

# Made by each rank; there is nothing to copy.
SYNTHETIC = "synthetic"
NAMES = ("digits", "mnist", SYNTHETIC)
MIRRORS = "HVLAB_MNIST_MIRRORS"


@dataclass(frozen=True)
class Dataset:
    """Files in ``folder``: four IDX files, or one of ``own_files``.

    ``key``, 16 hex digits, stands for their content.
    """

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
    """Return a data set as files on the controller, made or fetched where the cache does not have it.

    ``digits`` and ``mnist`` are names; anything else is a folder with the four files. ``mirrors`` are
    addresses of MNIST's files without their names; by default those in HVLAB_MNIST_MIRRORS, else well-known
    ones. Raises UsageError for an unknown name and for a folder that does not hold what it should, CheckError
    where no mirror gives the files or the cache cannot be written.
    """
    shelf = Shelf(cache or cache_dir())
    with shelf.writing():
        if name_or_dir not in _sets():
            return _from_folder(name_or_dir, shelf)
        key = key_of(_sets()[name_or_dir]["sha256"])
        with shelf.locked(name_or_dir):
            folder = shelf.find(key)
            if folder:
                return Dataset(name_or_dir, folder, key)
            with shelf.new_folder(name_or_dir) as new:
                if name_or_dir == "digits":
                    idx.write_digits(new)
                else:
                    _mnist(shelf, new, _mirrors(mirrors), patience or Patience())
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
    with shelf.locked("given"), shelf.new_folder("given") as new:
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


def _mnist(shelf: Shelf, new: Path, mirrors: Sequence[str], patience: Patience) -> None:
    """Fetch MNIST and unpack it; files that arrived are kept for the next try."""
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
