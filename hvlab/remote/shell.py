"""Commands on one host, as the user that runs the ranks: without Ansible, so within 0.2 s."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from hvlab.base import process
from hvlab.base.answers import clean
from hvlab.lab.inventory import Host
from hvlab.remote.playbook import SSH_OPTIONS, Login

# Exit code of ssh's own failures.
SSH_FAILED = 255
_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "LogLevel=ERROR", *SSH_OPTIONS)


@dataclass(frozen=True)
class Shell:
    """The lab user on ``host``."""

    login: Login
    host: Host

    def argv(self, words: Sequence[str]) -> list[str]:
        """Return the argv that runs a command there."""
        trust = self.login.trust
        if trust is None:
            user = self.login.other_user
            return ["runuser", "--login", user, "--command", shlex.join(words)] if user else list(words)
        options = [*_OPTIONS, *trust.ssh_options]
        return [
            *("ssh", "-T", "-i", str(trust.identity)),
            *(word for option in options for word in ("-o", option)),
            *shlex.split(self.host.text("ansible_ssh_common_args") or ""),
            *("-l", self.login.user, "-p", str(self.host.port), "--", self.host.address, shlex.join(words)),
        ]

    def run(self, words: Sequence[str], *, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end; its output is cleaned.

        Raises HvlabError, TimeLimitError after ``seconds``.
        """
        done = process.run(self.argv(words), seconds=seconds)
        return subprocess.CompletedProcess(done.args, done.returncode, clean(done.stdout), clean(done.stderr))

    def start(self, words: Sequence[str]) -> subprocess.Popen[str]:
        """Start a command there; the caller reads its standard error."""
        return subprocess.Popen(
            self.argv(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
