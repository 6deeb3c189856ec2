"""Files: written in one step, so that each is the old one or the new one; and their sums."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What locking says where there are no locks: Lustre without the mount option flock, NFS without lockd.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


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


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
