"""The log that ``hvlab doctor --log`` reads: a file or standard input, packed or not, of any size."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import sys
import zlib
from collections import deque
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

import click

from hvlab.base.errors import UsageError

# Bytes kept from the beginning and from the end of a larger log.
_HEAD, _TAIL = 4 * 1024**2, 12 * 1024**2
# Maximum number of bytes read, since a device or a pipe may never end.
_MOST = 1024**3
_BLOCK = 1024**2
_GZIP, _BZIP2, _XZ, _ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
# Errors in packed files; an OSError of gzip or bz2 has no errno.
_BROKEN = (EOFError, zlib.error, lzma.LZMAError, OSError)
_GIVE = "give the path of a log, or - for standard input; -l HOST asks one host"


def lines(path: str) -> list[str]:
    """Return the lines of a log; ``-`` is standard input. Notes omissions on standard error.

    Raises UsageError if there is nothing to read.
    """
    try:
        with _open(path) as file, _unpack(path, file) as log:
            data = _ends(path, log)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", remedy=_GIVE) from None
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    return data.decode(encoding, "replace").split("\n")


def _open(path: str) -> BufferedReader:
    if path != "-":
        return Path(path).open("rb")
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed", remedy="give the path of a log, or pipe one in")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _unpack(path: str, file: BufferedReader) -> IO[bytes]:
    start = file.peek(len(_XZ))
    if start.startswith(_ZSTD):
        raise UsageError(
            f"{path} is packed with zstd", remedy="pipe it in: zstd -dc FILE | hvlab doctor --log -"
        )
    if start.startswith(_GZIP):
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    if start.startswith(_BZIP2):
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if start.startswith(_XZ) else file


def _ends(path: str, file: IO[bytes]) -> bytes:
    """Return a file; of a large one, the beginning and the end."""
    head = b""
    tail: deque[bytes] = deque()
    size = kept = 0
    broken = ""
    while size < _MOST:
        try:
            block = file.read(_BLOCK)
        except _BROKEN as error:
            if getattr(error, "errno", None) is not None:
                raise
            broken = str(error)
            break
        if not block:
            break
        size += len(block)
        if len(head) < _HEAD:
            head += block
            continue
        tail.append(block)
        kept += len(block)
        while kept - len(tail[0]) >= _TAIL:
            kept -= len(tail.popleft())
    if broken:
        click.echo(f"{path} is damaged ({broken}): only the part before the damage is read", err=True)
    if size >= _MOST:
        click.echo(f"{path}: only the first {_MOST // 1024**2} MiB are read", err=True)
    left_out = size - len(head) - kept
    if left_out:
        click.echo(
            f"{path}: {left_out // 1024**2} MiB in its middle are left out; the first {_HEAD // 1024**2} MiB "
            f"and the last {_TAIL // 1024**2} are read",
            err=True,
        )
    return head + (b"\n" if left_out else b"") + b"".join(tail)
