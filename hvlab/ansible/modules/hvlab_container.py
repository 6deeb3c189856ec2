#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Start a container whose main process is an sshd, and wait for that; or remove it."""

from __future__ import annotations

import socket
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: hvlab_container
short_description: Start a container whose main process is an sshd, and wait for that; or remove it
description:
  - A container that does not come to answer is removed again, and what it printed is in the message.
options:
  name: {description: Name of the container., type: str, required: true}
  state:
    description: What is wanted.
    type: str
    choices: [started, absent]
    default: started
  argv: {description: The C(docker run --detach) command., type: list, elements: str}
  port: {description: Port of its sshd; nothing else may have it., type: int}
  timeout: {description: Seconds until it has to answer., type: int, default: 30}
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Remove the container
  hvlab_container: {name: hvlab-x, state: absent}
"""

RETURN = """
image:
  description: Id of the image.
  type: str
  returned: started
"""

INSTALL = "docker is not installed here; set container_runtime_enabled: true and run `hvlab provision`"


class Container:
    """The container, through docker's command line."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.name = module, module.params["name"]
        self.docker = module.get_bin_path("docker")

    def inspect(self, what: str) -> str | None:
        """Return a field of the container; None where there is none."""
        status, out, err = self._run("container", "inspect", "--format", what, self.name)
        if status == 0:
            return str(out.strip())
        if "no such container" in err.lower():
            return None
        self.module.fail_json(msg="docker does not answer: {}".format(err.strip()))
        return None

    def remove(self) -> None:
        """Remove it, whatever runs in it."""
        status, _, err = self._run("rm", "--force", "--volumes", self.name)
        if status and "no such container" not in err.lower():
            self.module.fail_json(msg="container {} cannot be removed: {}".format(self.name, err.strip()))

    def start(self) -> None:
        """Start it and wait until its sshd answers."""
        port = self.module.params["port"]
        if banner(port) is not None:
            self.fail("port {} is taken; name another with --ssh-port".format(port))
        status, _, err = self.module.run_command([self.docker, *self.module.params["argv"][1:]])
        if status:
            self.remove()
            self.fail("the container does not start: {}".format(err.strip()))
        deadline = time.monotonic() + self.module.params["timeout"]
        while not (banner(port) or "").startswith("SSH-"):
            if self.inspect("{{.State.Running}}") != "true" or time.monotonic() > deadline:
                _, out, err = self._run("logs", "--tail", "20", self.name)
                self.remove()
                self.fail(
                    "sshd in the container does not answer on port {} (the image needs openssh-server and "
                    "python3): {}".format(port, (out + err).strip() or "it said nothing")
                )
            time.sleep(0.2)

    def fail(self, message: str) -> None:
        """End the module."""
        self.module.fail_json(msg=message)

    def _run(self, *words: str) -> Any:
        return self.module.run_command([self.docker, *words])


def banner(port: int) -> str | None:
    """Return what the listener on a port says first, "" where it says nothing, None where there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            return connection.recv(64).decode(errors="replace")
    except ConnectionRefusedError:
        return None
    except OSError:
        return ""


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "absent"], "default": "started"},
            "argv": {"type": "list", "elements": "str"},
            "port": {"type": "int"},
            "timeout": {"type": "int", "default": 30},
        },
        required_if=[("state", "started", ["argv", "port"])],
        supports_check_mode=True,
    )
    container, absent = Container(module), module.params["state"] == "absent"
    if container.docker is None:
        if absent:
            module.exit_json(changed=False)
        module.fail_json(msg=INSTALL)
    running = container.inspect("{{.State.Running}}")
    if absent:
        if running is not None and not module.check_mode:
            container.remove()
        module.exit_json(changed=running is not None)
    if running == "true":
        module.exit_json(changed=False, image=container.inspect("{{.Image}}"))
    if not module.check_mode:
        if running is not None:
            container.remove()
        container.start()
    module.exit_json(changed=True, image=None if module.check_mode else container.inspect("{{.Image}}"))


if __name__ == "__main__":
    main()
