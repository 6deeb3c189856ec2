"""Run a program on this machine, for a limited time."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hvlab.base.errors import HvlabError

_GRACE_S = 5.0


class TimeLimitError(HvlabError):
    """A program did not end in time; it was killed, with all that it had started.

    ``printed`` is its output until then.
    """

    def __init__(self, message: str, *, remedy: str | None = None, printed: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.printed = printed


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    seconds: float,
    given: str = "",
    env: Mapping[str, str] | None = None,
    remedy: str | None = None,
    hung: str = "run it by hand to see what it waits for (a disk, a network, a lock), then try again",
) -> subprocess.CompletedProcess[str]:
    """Run ``argv`` with the text ``given`` on its input; return its status and what it printed.

    Raises HvlabError with ``remedy`` where it cannot be started, TimeLimitError with ``hung`` as its remedy
    after ``seconds``.
    """
    return finish(begin(argv, env=env, remedy=remedy), seconds=seconds, given=given, hung=hung)


def begin(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    remedy: str | None = None,
) -> subprocess.Popen[str]:
    """Start a program that `finish` waits for."""
    words = [os.fspath(word) for word in argv]
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", env=env
        )
    except OSError as error:
        raise HvlabError(f"cannot run {words[0]}: {error.strerror}", remedy=remedy) from error


def finish(
    process: subprocess.Popen[str], *, seconds: float, given: str = "", hung: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Wait for a program that `begin` started, as `run` does."""
    words: list[str] = list(process.args)  # type: ignore[arg-type]
    try:
        out, err = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired as expired:
        abandon(process)
        printed = (expired.output or b"").decode(errors="replace")
        raise TimeLimitError(
            f"`{shlex.join(words)}` {explain_timeout(seconds)}", remedy=hung, printed=printed
        ) from None
    except BaseException:
        abandon(process)
        raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def bound(argv: Sequence[str]) -> list[str]:
    """Return a command that ends (SIGTERM) with the process that starts it, even where that is killed.

    See PR_SET_PDEATHSIG in prctl(2); without setpriv of util-linux it is the command itself.
    """
    return [*(["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []), *argv]


def explain_timeout(seconds: float) -> str:
    """Return the message for a program that did not end in time."""
    return f"did not end within {seconds:g} s and was killed"


def kill(program: int) -> None:
    """Kill a program and all that it started; this one itself comes last."""
    family, waiting = [], [program]
    while waiting:
        family.append(waiting.pop())
        for file in Path(f"/proc/{family[-1]}/task").glob("*/children"):
            with suppress(OSError):
                waiting += map(int, file.read_text().split())
    for pid in sorted(family, key=os.getpid().__eq__):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def abandon(process: subprocess.Popen[str]) -> None:
    """End a program that nobody waits for any more."""
    kill(process.pid)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with suppress(OSError):
                stream.close()
    # A process waiting for a disk survives even this.
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
