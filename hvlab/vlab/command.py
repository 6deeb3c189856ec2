"""Run one program and say clearly what went wrong."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence

from hvlab.errors import HvlabError

# A plain user's PATH on Debian has no sbin, where ip, nft and tc lie.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def environment(**extra: str) -> dict[str, str]:
    """Return the environment for a system program: untranslated messages, sbin on the PATH."""
    return {**os.environ, "PATH": PATH, "LC_ALL": "C.UTF-8", **extra}


def run(
    argv: Sequence[str | os.PathLike[str]], *, given: str | None = None, remedy: str | None = None
) -> str:
    """Run ``argv`` with the text ``given`` on its input and return what it printed.

    Raises HvlabError with the command and its error output when it fails.
    """
    words = [os.fspath(word) for word in argv]
    try:
        done = subprocess.run(
            words, input=given or "", text=True, capture_output=True, check=False, env=environment()
        )
    except OSError as error:
        raise HvlabError(f"cannot run {words[0]}: {error.strerror}", remedy=remedy) from error
    if done.returncode:
        raise _failure(words, done.returncode, done.stderr or done.stdout, remedy)
    return done.stdout


def succeeds(argv: Sequence[str]) -> bool:
    """Run ``argv`` and return whether it ended with 0; what it prints is dropped."""
    return not subprocess.run(argv, capture_output=True, check=False, env=environment()).returncode


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
    ) as process:
        try:
            for text in process.stdout or ():
                lines.append(text)
                line(text.rstrip())
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise _failure(argv, process.returncode, "".join(lines[-15:]), remedy)


def _failure(argv: Sequence[str], code: int, said: str, remedy: str | None) -> HvlabError:
    return HvlabError(f"`{shlex.join(argv)}` ended with {code}:\n{said.strip()}", remedy=remedy)
