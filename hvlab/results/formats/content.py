"""The bytes of a log as text: unpacked, decoded, and without what a collector put around its lines. Pure."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from hvlab.base.errors import UsageError

# What a small hostile file unpacks to would fill the memory.
_LARGEST = 256 * 2**20
_PACKED: Mapping[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
# How docker keeps a container's output, and how Ansible prints the lines of a task's.
_DOCKER = re.compile(r'\{"log": ?"')
_ANSIBLE = re.compile(r'^\s*"(?:\[[\d,]+\]<stdout>:)?#', re.MULTILINE)
_STRING = re.compile(r'\s*("(?:[^"\\]|\\.)*"),?\s*')


def text_of(content: bytes, name: str) -> str:
    """Return the text of a file that may be packed, of any Unicode encoding, or within JSON.

    A byte that no text has becomes U+FFFD. Raises UsageError where a packed file is damaged or too large.
    """
    plain = _unpacked(content, name)
    encoding = next((encoding for mark, encoding in _MARKS if plain.startswith(mark)), "utf-8")
    text = plain.decode(encoding, errors="replace")
    if not (_DOCKER.match(text) or _ANSIBLE.search(text)):
        return text
    return "\n".join(map(_own, text.splitlines()))


def _unpacked(content: bytes, name: str) -> bytes:
    opened = next((opened for magic, opened in _PACKED.items() if content.startswith(magic)), None)
    if opened is None:
        return content
    try:
        with opened(io.BytesIO(content)) as packed:
            plain = bytes(packed.read(_LARGEST + 1))
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise UsageError(f"{name} is damaged: {error}", remedy="fetch it again") from error
    if len(plain) > _LARGEST:
        raise UsageError(
            f"{name} holds more than {_LARGEST >> 20} MiB", remedy="unpack it, and cut it into parts"
        )
    return plain


def _own(line: str) -> str:
    """Return a line as the program wrote it; the line itself where nothing was put around it."""
    try:
        if _DOCKER.match(line):
            return str(json.loads(line)["log"]).rstrip("\r\n")
        if match := _STRING.fullmatch(line):
            return str(json.loads(match[1]))
    except ValueError:
        pass
    return line
