# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Answers in place of a host, after the time that a host would take; nothing leaves this machine."""

from __future__ import annotations

import ast
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: simulated
short_description: Answer as a recorded host would
description:
  - For benchmarks. C($SIMULATED_HOSTS) is the folder that C(benchmarks.simulated.hosts) writes.
  - The controller does all of its own work; what it sends is not run anywhere, but answered from a record.
author: [the hvlab authors]
extends_documentation_fragment: [connection_pipelining]
options:
  host:
    description: The host's address.
    default: inventory_hostname
    vars: [{name: inventory_hostname}, {name: ansible_host}]
"""

# What a round trip takes.
DELAY_S = 0.02
_CERTIFICATE = "/etc/ssh/ssh_host_ed25519_key-cert.pub"
# Of the call at the end of what Ansible sends: the module's name, and its arguments as a literal of JSON.
_CALL = re.compile(rb"^ansible_module='(?:\w+\.)*(\w+)',\n(?:.+\n)*?params=(.+),$", re.MULTILINE)
# What hvlab_files fills in of a file's keys before it returns them.
_FILE_KEYS = ("content", "block", "drop", "src", "secret", "mode", "owner", "validate")


class Connection(ConnectionBase):  # type: ignore[misc]
    """Knows three modules: facts, files and commands."""

    transport = "simulated"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        self._folder = Path(os.environ["SIMULATED_HOSTS"])
        self._host = self._folder / str(self.get_option("host"))
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Return the status and output that the recorded host had for this module."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        time.sleep(DELAY_S)
        if in_data is None:
            return 0, (self._folder / "pythons").read_bytes(), b""
        call = _CALL.search(in_data)
        if call is None:
            raise AnsibleConnectionFailure(f"no module in what was sent: {in_data[-200:]!r}")
        module, arguments = (part.decode() for part in call.groups())
        answer = {"hvlab_facts": self._facts, "hvlab_files": self._files, "command": self._command}
        text = answer[module](json.loads(ast.literal_eval(arguments))["ANSIBLE_MODULE_ARGS"])
        return 0, text.encode(), b""

    def put_file(self, in_path: str, out_path: str) -> None:
        """Refuse: nothing that is measured copies files."""
        raise AnsibleConnectionFailure(f"a simulated host takes no files: {in_path} to {out_path}")

    def fetch_file(self, in_path: str, out_path: str) -> None:  # noqa: ARG002
        """Refuse, as for putting."""
        raise AnsibleConnectionFailure(f"a simulated host has no files: {in_path}")

    def close(self) -> None:
        """Have nothing to close."""
        self._connected = False

    def _facts(self, arguments: dict[str, Any]) -> str:
        certificate = self._host / "certificate"
        text = json.dumps(certificate.read_text("utf-8") if certificate.is_file() else None)
        told = (self._host / "facts").read_text("utf-8").replace('"@CERTIFICATE@"', text)
        sent = json.dumps(arguments.get("sent"))
        return told.replace('"@SENT@"', sent).replace('"@NOW@"', str(time.time()))

    def _files(self, arguments: dict[str, Any]) -> str:
        """Keep the host's certificate, which its facts hold from then on; all else is as it was."""
        files = [dict.fromkeys(_FILE_KEYS) | {"state": "file"} | file for file in arguments["files"]]
        for file in files:
            if file["path"] == _CERTIFICATE and not arguments["_ansible_check_mode"]:
                (self._host / "certificate").write_text(file["content"].strip(), "utf-8")
            file["secret"] = file["secret"] and "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
        invocation = {"module_args": {"files": files}}
        return json.dumps({"changed": False, "paths": [], "diff": [], "invocation": invocation})

    def _command(self, _: dict[str, Any]) -> str:
        return (self._host / "health").read_text("utf-8").replace("@NOW@", str(time.time()))
