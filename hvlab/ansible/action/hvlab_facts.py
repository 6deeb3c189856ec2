# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Gather facts, and hold the host if the task asks for it."""

from __future__ import annotations

import shlex
from typing import Any

from hvlab.ansible.plugin import HvlabAction
from hvlab.base.errors import report
from hvlab.checks.before import explain_lock

# Python reads the program as the first line of its input.
_READ = "exec(__import__('json').loads(input()))"


class ActionModule(HvlabAction):
    """See the module of the same name for its options and results."""

    def act(self) -> dict[str, Any]:
        """Return the facts and, if the host was taken, the command that holds it."""
        args = self.args
        if self._connection.transport not in ("ssh", "local"):
            args["lock"] = ""
        result = self._on_host(**args)
        if "holder" in result:
            return result | {"msg": report([explain_lock(self.host, result["holder"])])}
        if args["lock"] and not self._task.check_mode and not result.get("failed"):
            result["lock_link"] = self._link(str(result["ansible_facts"]["ansible_python"]["executable"]))
        return result

    def _link(self, python: str) -> list[str]:
        """Return the command that runs Python on the host, beside the task's own connection."""
        if self._connection.transport == "local":
            return [python, "-c", _READ]
        command = shlex.join([python, "-c", _READ])
        ssh = self._connection.get_option("ssh_executable")
        built = self._connection._build_command(ssh, "ssh", self._connection.host, command)
        words = [word.decode() for word in built]
        # Without sshpass, which reads from a pipe of this process: the connection is already there.
        return words[words.index(ssh) :]
