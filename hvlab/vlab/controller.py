"""Programs that the controller runs as root, and files that it writes, whose mode and owner matter."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Timer

from hvlab.base import process
from hvlab.base.errors import HvlabError
from hvlab.base.files import write_file

# Time limit of a program, unless it is known to take longer; an image may come over a slow line.
SECONDS = 60.0
_STREAM_SECONDS = 3600.0

# A plain user's PATH on Debian has no sbin, where ip, nft and tc lie.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def environment(**extra: str) -> dict[str, str]:
    """Return the environment for a system program: untranslated messages, sbin on the PATH."""
    return {**os.environ, "PATH": PATH, "LC_ALL": "C.UTF-8", **extra}


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    given: str = "",
    remedy: str | None = None,
    seconds: float = SECONDS,
) -> str:
    """Run ``argv`` with the text ``given`` on its input and return its output.

    Raises HvlabError with the command and its error output when it fails, or takes more than ``seconds``.
    """
    done = process.run(argv, seconds=seconds, given=given, env=environment(), remedy=remedy)
    if done.returncode:
        raise _failure(done.args, done.returncode, done.stderr or done.stdout, remedy)
    return done.stdout


def succeeds(argv: Sequence[str]) -> bool:
    """Run ``argv`` and return whether it ended with 0; its output is dropped."""
    return not process.run(argv, seconds=SECONDS, env=environment()).returncode


def stream(argv: Sequence[str], *, line: Callable[[str], None], remedy: str | None = None) -> None:
    """Run ``argv`` and pass each line of its output to ``line`` at once; raises HvlabError like ``run``."""
    lines: list[str] = []
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment(),
    ) as program:
        late = Event()

        def end() -> None:
            late.set()
            process.kill(program.pid)

        timer = Timer(_STREAM_SECONDS, end)
        timer.start()
        try:
            for text in program.stdout or ():
                lines.append(text)
                line(text.rstrip())
        except BaseException:
            process.kill(program.pid)
            raise
        finally:
            timer.cancel()
    if late.is_set():
        raise process.TimeLimitError(
            f"`{shlex.join(argv)}` {process.explain_timeout(_STREAM_SECONDS)}", remedy=remedy
        )
    if program.returncode:
        raise _failure(argv, program.returncode, "".join(lines[-15:]), remedy)


def _failure(argv: Sequence[str], code: int, output: str, remedy: str | None) -> HvlabError:
    return HvlabError(f"`{shlex.join(argv)}` ended with {code}:\n{output.strip()}", remedy=remedy)


_LONGEST = 1 << 20


def write(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write a file in one step, and the directories it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, content, mode=mode)


@contextmanager
def folder_within(root: Path, inner: str, *, make: bool = True) -> Iterator[int]:
    """Open the folder ``inner`` of a node's tree at ``root``; missing folders are made, with mode 0755.

    The node's root controls these paths. So no link is followed, not even one that is made meanwhile.
    Raises NotADirectoryError with the whole path of a link, or of a file in the place of a folder.
    """
    path = root
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in Path(inner).parts:
            path /= name
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=descriptor)
            above, descriptor = descriptor, _open_folder(path, descriptor)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_folder(path: Path, above: int) -> int:
    try:
        return os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NotADirectoryError(errno.ENOTDIR, "a link, or no folder", str(path)) from None
        raise


def write_in(folder: int, name: str, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write a file in an open folder in one step; a link in its place is replaced."""
    part = f".{name}.{os.urandom(4).hex()}"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        raise


def read_in(folder: int, name: str) -> bytes | None:
    """Return the content of a file in a folder: b"" if missing, None for a link and the like.

    Also None for a file that is too long: a node's root decides its size.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return b""
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        return file.read(_LONGEST) if stat.S_ISREG(about.st_mode) and about.st_size <= _LONGEST else None


def link(path: Path, target: str) -> None:
    """Make ``path`` a symbolic link to ``target``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def close(folder: Path) -> None:
    """Make a folder of root's alone: below are trees with keys and set-uid programs of virtual hosts."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def discard(tree: Path) -> None:
    """Remove a directory tree, never reaching into another file system."""
    run(["rm", "-rf", "--one-file-system", "--", tree], seconds=600)
