"""Hold the hosts that a run changes or measures, from their facts to the end of the run."""

from __future__ import annotations

import atexit
import getpass
import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.errors import report
from hvlab.base.paths import project_dir

DOCUMENTATION = """
name: hvlab_lock
type: notification
short_description: Hold the hosts that a run changes or measures
description:
  - C(hvlab_facts) takes a host, as C(HVLAB_LOCK) of the environment says; this speaks to what holds it there,
    over the connection of the tasks, until the run ends, in whatever way.
  - Ends the run where another one has got a host meanwhile, such as while this machine slept.
requirements:
  - enabled in C(callbacks_enabled)
"""

# module_utils/hvlab_lock.py gives up an owner that is silent for 120 s.
PERIOD_S = 20.0
# Delay before a broken link is made again; after 5 s the host is released.
_LOOK_S = 1.0
_END = " end\n"
_TAKEN = 3
# They change no host.
_READERS = ("fetch.yml",)


@dataclass
class HostLink:
    """The link that holds a host: the command that reaches it, and that command's process."""

    argv: list[str]
    process: subprocess.Popen[str] | None = None

    def speak(self, request: str) -> str:
        """Keep the host; return its answer if another run has it."""
        if self.process and self.process.poll() == _TAKEN:
            return (self.process.stdout.read() if self.process.stdout else "") or "{}"
        if not self.connected:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            self._write(f"{json.dumps(program())}\n{request}\n")
        self._write("\n")
        return ""

    @property
    def connected(self) -> bool:
        """Whether the command runs."""
        return self.process is not None and self.process.poll() is None

    def end(self) -> None:
        """Release the host."""
        self._write(_END)
        if self.process and self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()

    def _write(self, text: str) -> None:
        # It has ended: the next call says how.
        with suppress(OSError):
            if self.process and self.process.stdin:
                self.process.stdin.write(text)
                self.process.stdin.flush()


def program() -> str:
    """Return the program that holds a host."""
    return (project_dir() / "hvlab/ansible/module_utils/hvlab_lock.py").read_text("utf-8")


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Keeps a link to each reserved host, and a thread that speaks over them."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "hvlab_lock"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._request = ""
        self._links: dict[str, HostLink] = {}
        self._pid = os.getpid()
        self._over = threading.Event()

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Name the owner in the environment of all tasks; a playbook within another shares its hosts."""
        name = Path(playbook._file_name).name
        owner = {"owner": describe_caller(), "command": os.environ.get("HVLAB_COMMAND") or command(name)}
        request = {"token": secrets.token_hex(16), "owner": owner}
        given = "" if name in _READERS else json.dumps(request)
        self._request = os.environ.setdefault("HVLAB_LOCK", given)

    def v2_runner_on_ok(self, result: Any, **_: Any) -> None:
        """Open the link to a reserved host."""
        argv = result._result.get("lock_link")
        if argv:
            if not self._links:
                atexit.register(self._end)
                threading.Thread(target=self._speak, daemon=True).start()
            link = self._links[result._host.get_name()] = HostLink(list(argv))
            link.speak(self._request)

    def v2_playbook_on_stats(self, _: Any) -> None:
        """Release all hosts."""
        self._end()

    def _end(self) -> None:
        # Tasks run in forks.
        if os.getpid() != self._pid or self._over.is_set():
            return
        self._over.set()
        for link in list(self._links.values()):
            link.end()

    def _speak(self) -> None:
        spoken = 0.0
        while not self._over.wait(_LOOK_S):
            # Not the monotonic clock: it stands still while this machine sleeps.
            due = abs(time.time() - spoken) > PERIOD_S
            spoken = time.time() if due else spoken
            for host, link in list(self._links.items()):
                if not due and link.connected:
                    continue
                answer = link.speak(self._request)
                if answer and not self._over.is_set():
                    self._display.error(f"this run was silent, and lost a host:\n{find_owner(host, answer)}")
                    # SIGINT may be ignored, as it is in the background.
                    os.kill(os.getpid(), signal.SIGTERM)
                    return


def describe_caller() -> str:
    """Return the user and this machine."""
    user = os.environ.get("SUDO_USER") or getpass.getuser()
    return f"{user}@{socket.gethostname()}"


def command(name: str) -> str:
    """Return the playbook and the hosts it is limited to; other words may be secret."""
    subset = context.CLIARGS.get("subset")
    return f"ansible-playbook {name}" + (f" -l {subset}" if subset else "")


def find_owner(host: str, answer: str) -> str:
    """Return the owner of a host, from its answer."""
    from hvlab.checks.before import explain_lock  # noqa: PLC0415 - it would slow down every run

    try:
        return report([explain_lock(host, answers.load(answer, host))])
    except AnswerError as error:
        return str(error)
