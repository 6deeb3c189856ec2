# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Shared by all probes of a host: commands, files, tolerated failures."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import Any, Callable

SECONDS = 20
# Under WSL nvidia-smi lies apart.
_WSL = "/usr/lib/wsl/lib"


def run(*argv: str) -> str:
    """Return the standard output of a command; raise OSError or CalledProcessError."""
    done = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=SECONDS,
        universal_newlines=True,
        env=dict(os.environ, LC_ALL="C"),
    )
    return done.stdout


def run_for_status(*argv: str, seconds: float = SECONDS) -> tuple[int | None, str]:
    """Return a command's exit status and output; None if it did not end in time.

    A command that hangs in the kernel cannot be killed: it is abandoned. Raises FileNotFoundError.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        errors="replace",
        env=dict(os.environ, LC_ALL="C", PATH=os.environ.get("PATH", os.defpath) + ":" + _WSL),
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _leave(process)
        return None, ""
    return process.returncode, out


def _leave(process: subprocess.Popen[str]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    if process.stdout:
        process.stdout.close()


def read(path: str) -> str | None:
    """Return the stripped text of a file; None if it is missing."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def probe(warn: Callable[[str], None], function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a probe; None when it failed."""
    try:
        return function(*args)
    except FileNotFoundError:
        return None
    except Exception as error:
        warn("hvlab_facts: {} failed: {}".format(function.__name__, error))
        return None
