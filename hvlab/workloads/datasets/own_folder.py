"""A folder of the user's own: the four files under any of their usual names, plain or compressed."""

from __future__ import annotations

import gzip
import shutil
import zlib
from pathlib import Path

from hvlab.base.errors import UsageError
from hvlab.workloads.datasets import idx

_NAMES = (
    f"the four files are {', '.join(idx.FILES)}, plain or with .gz, also written like train-images.idx3-ubyte"
)


def copy(source: Path, folder: Path) -> None:
    """Copy the four files of ``source`` to ``folder``, unpacked and under their usual names.

    Raises UsageError that names the file that is missing, unreadable or not an IDX file.
    """
    files = {name: _find(source, name) for name in idx.FILES}
    missing = [name for name, path in files.items() if path is None]
    if missing:
        raise UsageError(f"{source} has no {', no '.join(missing)}", remedy=_NAMES)
    for name, path in files.items():
        if path is not None:
            _unpack(path, folder / name)
    try:
        idx.check(folder)
    except idx.FormatError as error:
        raise UsageError(f"{source}: {error}", remedy="use IDX files in MNIST's format") from error


def _find(source: Path, name: str) -> Path | None:
    """Return the file, the plain one where there are several."""
    names = (name, name.replace("-idx", ".idx"))
    paths = [source / f"{each}{suffix}" for suffix in ("", ".gz") for each in names]
    return next((path for path in paths if path.is_file()), None)


def _unpack(path: Path, target: Path) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        source = opened(path, "rb")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", remedy="correct its permissions"
        ) from error
    with source, target.open("wb") as file:
        try:
            shutil.copyfileobj(source, file)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UsageError(f"{path} is damaged: {error}", remedy="download it again") from error
