# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Reach a host by a command that runs another one there, such as a step of a Slurm job."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: hvlab_prefix
short_description: Reach a host by a command that runs another one there
description:
  - Puts the words of O(prefix) before every command. Files go through the command's input and output.
  - The host has this user's rights; there is no way to become another.
author: [the hvlab authors]
options:
  prefix:
    description: The words. Without any, commands run on the controller itself.
    type: list
    elements: str
    default: []
    vars: [{name: hvlab_prefix}]
"""

# srun could not start the command, or lost its host. One that merely failed reads "h2: task 0: Exited ...".
_LOST = re.compile(r"^srun: error: ((?!\S+: tasks? [\d,-]+: ).+)$", re.MULTILINE)


class Connection(ConnectionBase):  # type: ignore[misc]
    """See DOCUMENTATION."""

    transport = "hvlab_prefix"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Return the exit status of a shell's command line, and what it printed."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        prefix = self.get_option("prefix")
        pipe = subprocess.PIPE
        # The caller limits its time, as with ssh.
        argv = [*prefix, "/bin/sh", "-c", cmd]
        try:
            with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe) as process:
                out, err = process.communicate(in_data)
        except OSError as error:
            raise AnsibleConnectionFailure(f"`{argv[0]}` cannot be run: {error.strerror}") from error
        lost = _LOST.search(err.decode(errors="replace")) if prefix and process.returncode else None
        if lost:
            raise AnsibleConnectionFailure(f"`{shlex.join(prefix)}` reaches no host: {lost[1]}")
        return process.returncode, out, err

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the controller to the host."""
        super().put_file(in_path, out_path)
        self._shell_out(f"cat > {shlex.quote(out_path)}", Path(in_path).read_bytes())

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the host to the controller."""
        super().fetch_file(in_path, out_path)
        Path(out_path).write_bytes(self._shell_out(f"cat {shlex.quote(in_path)}"))

    def close(self) -> None:
        """Do nothing: each command is a connection of its own."""
        self._connected = False

    def _shell_out(self, line: str, given: bytes = b"") -> bytes:
        status, out, err = self.exec_command(line, in_data=given)
        if status:
            raise AnsibleError(f"`{line}` ended with {status}: {err.decode(errors='replace').strip()}")
        return out
