"""Atomic replacement of files, their sums, and locked folders."""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from hvlab.base.errors import UsageError

# errno values on file systems without locks: Lustre without the mount option flock, NFS without lockd.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextmanager
def replacing(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """Yield a new empty file beside ``path``, which takes its place when the block ends without an error.

    It gets exactly ``mode``, whatever the umask, and is on disk before it is renamed, as is its name after.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    part = Path(name)
    try:
        yield part
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
        part.replace(path)
        sync(path.parent)
    finally:
        os.close(descriptor)
        part.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to disk; not every file system can do that with folders."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Replace a file in one step. Raises OSError."""
    with replacing(path, mode=mode) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing(path: Path, *, remedy: str = "choose another --output") -> Iterator[None]:
    """Raise UsageError if a path of the user's choice cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", remedy=remedy) from error


def append(path: Path, lines: str, *, mode: int = 0o666) -> None:
    """Add whole lines to a file in one write, and bring them to disk; others may add some meanwhile.

    A new file gets ``mode``, limited by the umask. A line before, which a full disk cut off, stays a
    line of its own. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        gap = "\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else ""
        data = (gap + lines).encode()
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(descriptor)
        if not size:
            sync(path.parent)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where missing, and bring their names to disk. Raises OSError."""
    new = [part for part in (folder, *folder.parents) if not part.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for part in new:
        sync(part.parent)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, which is made where it is missing, and bring all to disk. Raises OSError."""
    make_folder(folder)
    for name, content in files.items():
        with (folder / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    sync(folder)


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def lock(directory: Path, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock a directory, making it if missing; ``waiting`` is called when another process has it.

    If it is empty in the end, it goes. The holder may remove it, too: who waits for it then makes a new one.
    Where there are no locks, nobody waits.
    """
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        except FileExistsError:
            # mkdir raises it where the holder removes the directory between its two steps.
            if directory.exists() and not directory.is_dir():
                raise
            continue
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
            if _is_at(descriptor, directory):
                try:
                    yield
                finally:
                    with suppress(OSError):
                        directory.rmdir()
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open directory still has this name: it may have been removed, and made again by others."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def is_key_whole(private: Path) -> bool:
    """Whether a private key of SSH exists and is complete; runs no program."""
    try:
        lines = private.read_text("ascii").split()
        if lines[:4] != ["-----BEGIN", "OPENSSH", "PRIVATE", "KEY-----"]:
            # A key in another form, which somebody else made.
            return lines[:1] == ["-----BEGIN"] and lines[-1].endswith("-----")
        end = ["-----END", "OPENSSH", "PRIVATE", "KEY-----"]
        return lines[-4:] == end and bool(base64.b64decode("".join(lines[4:-4]), validate=True))
    except (FileNotFoundError, IndexError, ValueError):
        return False


def is_public_whole(private: Path, public: Path) -> bool:
    """Whether ``public`` is the public half of a whole private key."""
    try:
        blob = base64.b64decode(public.read_text("ascii").split()[1], validate=True)
        body = private.read_text("ascii").split()[4:-4]
        return bool(blob) and (not body or blob in base64.b64decode("".join(body)))
    except (FileNotFoundError, IndexError, ValueError):
        return False
