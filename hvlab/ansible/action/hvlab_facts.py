# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Gather facts, and hold the host if the task asks for it."""

from __future__ import annotations

import shlex
from typing import Any

from ansible.plugins.action import ActionBase

from hvlab.base.errors import report
from hvlab.checks.before import held
from hvlab.stack.provision.arguments import arguments, documentation

# Python reads the program as the first line of its input.
_READ = "exec(__import__('json').loads(input()))"


class ActionModule(ActionBase):  # type: ignore[misc]
    """See the module of the same name for what it takes and gives."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the facts and, if the host was taken, the command that holds it."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = arguments(self, documentation("hvlab_facts"))
        if self._connection.transport not in ("ssh", "local"):
            args["lock"] = ""
        result |= self._execute_module("hvlab_facts", module_args=args, task_vars=task_vars)
        if "holder" in result:
            host = (task_vars or {}).get("inventory_hostname", "?")
            return result | {"msg": report([held(host, result["holder"])])}
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
        # Without sshpass, which reads from a pipe of this process: the connection is there already.
        return words[words.index(ssh) :]
