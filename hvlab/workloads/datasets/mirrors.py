"""Files from the first mirror that has them: checked, and resumed where an earlier download stopped."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError

from hvlab.base.files import file_sha256

_BLOCK = 1 << 16
_PARTIAL = 206


@dataclass(frozen=True)
class RemoteFile:
    """A file that the mirrors have: its length and its sha256 in hex."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Patience:
    """How many seconds a mirror may say nothing, and how many one file may take."""

    silence: float = 10.0
    file: float = 300.0


class MirrorError(Exception):
    """A mirror did not give a file; ``dead`` tells that it will give no other either."""

    def __init__(self, message: str, *, dead: bool = False) -> None:
        super().__init__(message)
        self.dead = dead


def fetch(
    files: Mapping[str, RemoteFile], mirrors: Sequence[str], folder: Path, patience: Patience
) -> dict[str, list[str]]:
    """Fetch the files into ``folder``; return each mirror's errors where some are still missing.

    It is empty when all are there. A file that is there stays; one that was begun is resumed.
    """
    errors: dict[str, list[str]] = {mirror: [] for mirror in mirrors}
    missing = {name: file for name, file in files.items() if not _complete(folder / name, file)}
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


def _complete(path: Path, file: RemoteFile) -> bool:
    return path.is_file() and file_sha256(path) == file.sha256


def _fetch_one(url: str, path: Path, file: RemoteFile, patience: Patience) -> None:
    """Fetch one file; start again where what another mirror began does not fit."""
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
    """Fetch the rest of ``part`` from byte ``begun`` on, or all of it where the mirror gives no parts."""
    end = time.monotonic() + patience.file
    with _one_line_errors(patience), _opener(begun).open(url, timeout=patience.silence) as answer:
        length = begun if answer.status == _PARTIAL else 0
        announced = answer.length
        if announced is not None and length + announced != file.bytes:
            raise MirrorError(f"it has {length + announced} bytes, not {file.bytes}")
        with part.open("ab" if length else "wb") as out:
            for block in iter(lambda: answer.read1(_BLOCK), b""):
                length += len(block)
                if length > file.bytes:
                    raise MirrorError(f"it goes on beyond {file.bytes} bytes")
                out.write(block)
                if time.monotonic() > end:
                    problem = f"only {length} of {file.bytes} bytes arrived in {patience.file:g} s"
                    raise MirrorError(problem, dead=True)
    if length < file.bytes:
        raise MirrorError(f"only {length} of {file.bytes} bytes arrived")


def _opener(begun: int) -> urllib.request.OpenerDirector:
    opener = urllib.request.build_opener()
    opener.addheaders = [("User-Agent", "hvlab"), *([("Range", f"bytes={begun}-")] if begun else [])]
    return opener


@contextmanager
def _one_line_errors(patience: Patience) -> Iterator[None]:
    """Turn whatever goes wrong with a connection into one line."""
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
