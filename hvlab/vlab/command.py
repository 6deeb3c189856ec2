"""Run one program and say clearly what went wrong."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from threading import Event, Timer

from hvlab.base import process
from hvlab.base.errors import HvlabError

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
    """Run ``argv`` and return whether it ended with 0; what it prints is dropped."""
    return not process.run(argv, seconds=SECONDS, env=environment()).returncode


def stream(argv: Sequence[str], *, line: Callable[[str], None], remedy: str | None = None) -> None:
    """Run ``argv``, hand over each line it prints while it runs; raises HvlabError like ``run``."""
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
        raise process.TimeLimitError(f"`{shlex.join(argv)}` {process.late(_STREAM_SECONDS)}", remedy=remedy)
    if program.returncode:
        raise _failure(argv, program.returncode, "".join(lines[-15:]), remedy)


def _failure(argv: Sequence[str], code: int, output: str, remedy: str | None) -> HvlabError:
    return HvlabError(f"`{shlex.join(argv)}` ended with {code}:\n{output.strip()}", remedy=remedy)
