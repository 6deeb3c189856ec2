"""Write a file in one step: it is the old one or the new one, never half of either. Which keys are whole."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def key_whole(private: Path) -> bool:
    """Return whether a private key of SSH is there, and no half of one; it asks no program."""
    try:
        lines = private.read_text("ascii").split()
        if lines[:4] != ["-----BEGIN", "OPENSSH", "PRIVATE", "KEY-----"]:
            # A key in another form, which somebody else made.
            return lines[:1] == ["-----BEGIN"] and lines[-1].endswith("-----")
        end = ["-----END", "OPENSSH", "PRIVATE", "KEY-----"]
        return lines[-4:] == end and bool(base64.b64decode("".join(lines[4:-4]), validate=True))
    except (FileNotFoundError, IndexError, ValueError):
        return False


def public_whole(private: Path, public: Path) -> bool:
    """Return whether ``public`` is the public half of a whole private key."""
    try:
        blob = base64.b64decode(public.read_text("ascii").split()[1], validate=True)
        body = private.read_text("ascii").split()[4:-4]
        return bool(blob) and (not body or blob in base64.b64decode("".join(body)))
    except (FileNotFoundError, IndexError, ValueError):
        return False
