#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Merge settings into docker's daemon.json, checked by dockerd, and tell what docker there is."""

from __future__ import annotations

import glob
import json
import os
import re
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: hvlab_docker
short_description: Merge settings into docker's daemon.json, checked by dockerd, and tell what docker there is
description:
  - Keys that are not in O(config) stay. Lists are united, those of O(config) first; dictionaries are merged.
  - dockerd has to accept the result before it replaces the file.
options:
  config: {description: The settings., type: dict, required: true}
  path: {description: The file., type: path, default: /etc/docker/daemon.json}
  data_root_move:
    description: Whether C(data-root) may change while images or containers are under the old one.
    type: str
    choices: [refuse, leave]
    default: refuse
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Use a mirror
  hvlab_docker:
    config: {registry-mirrors: [https://mirror.example.org]}
"""

RETURN = """
docker: {description: Version of docker., type: str, returned: always}
toolkit: {description: Version of NVIDIA's container toolkit., type: str, returned: always}
data_root: {description: Where docker keeps images and containers., type: str, returned: always}
mirrors: {description: The registry mirrors., type: list, elements: str, returned: always}
service: {description: Whether docker runs and is started at boot., type: bool, returned: always}
"""

DATA_ROOT = "/var/lib/docker"
# What a data-root that was used holds: containers, and images of either kind of store.
USED = ("containers/*", "image/*/imagedb/content/sha256/*", "containerd/daemon/*/io.containerd.content*/*")


def merged(old: Any, new: Any) -> Any:
    """Return ``old`` with ``new`` in it: dictionaries merged, lists united, other values replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        return new + [item for item in old if item not in new]
    return new


def contents(root: str) -> list[str]:
    """Return which kinds of things are under a data-root."""
    found = [pattern.split("/")[0] for pattern in USED if glob.glob(os.path.join(root, pattern))]
    return sorted({"images" if kind != "containers" else kind for kind in found})


class Daemon:
    """docker's settings on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.path = module, module.params["path"]
        self.text = self._text()
        self.old = self._settings()
        self.new = merged(self.old, module.params["config"])
        self.changed = self.new != self.old
        self.after = json.dumps(self.new, indent=4) + "\n" if self.changed else self.text

    def _text(self) -> str:
        try:
            with open(self.path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            self.module.fail_json(msg="{}: cannot be read: {}".format(self.path, error))
            return ""

    def _settings(self) -> dict[str, Any]:
        remedy = "mend it (docker does not start with it either), or move it away, and run again"
        try:
            settings = json.loads(self.text) if self.text.strip() else {}
        except ValueError as error:
            self.module.fail_json(msg="{} is no JSON: {}; {}".format(self.path, error, remedy))
        if not isinstance(settings, dict):
            self.module.fail_json(msg="{} holds no JSON object; {}".format(self.path, remedy))
        return dict(settings)

    @property
    def root(self) -> str:
        """Return where docker keeps its data."""
        return str(self.new.get("data-root", DATA_ROOT))

    def check_move(self) -> None:
        """End the module where images or containers would be left behind unasked."""
        old = os.path.normpath(str(self.old.get("data-root", DATA_ROOT)))
        left = contents(old) if os.path.normpath(self.root) != old else []
        if left and self.module.params["data_root_move"] == "refuse":
            self.module.fail_json(
                msg="data-root would change from {old} to {new}, and docker would no longer see the {left} "
                "under {old}; stop docker and copy that folder to {new} first, or set "
                "container_runtime_data_root_move: leave".format(
                    old=old, new=self.root, left=" and ".join(left)
                )
            )

    def validate(self) -> None:
        """Let dockerd judge the new settings; end the module when it refuses."""
        dockerd = self.module.get_bin_path("dockerd", opt_dirs=["/usr/sbin"])
        if dockerd is None:
            if self.module.check_mode:
                return
            self.module.fail_json(
                msg="there is no dockerd to check {} with; install docker".format(self.path)
            )
        handle, path = tempfile.mkstemp(suffix=".json")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self.after)
        os.chmod(path, 0o644)
        status, out, err = self.module.run_command([dockerd, "--validate", "--config-file", path])
        if status and "unknown flag" in err:
            status, err = self._validate_before_23(dockerd, path)
        os.unlink(path)
        if status:
            told = re.sub(
                r"^.*?(unable to configure|failed to)", r"\1", (err or out).strip(), flags=re.DOTALL
            )
            self.module.fail_json(
                msg="dockerd refuses the settings for {}: {}; correct container_runtime_daemon or that file; "
                "nothing was written".format(self.path, told.replace(path, self.path))
            )

    def _validate_before_23(self, dockerd: str, path: str) -> tuple[int, str]:
        """Have a dockerd without --validate read the settings as nobody: it goes no further than that."""
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        status, _, err = self.module.run_command([*nobody, dockerd, "--config-file", path])
        return (0, "") if "needs to be started with root" in err else (status, err)

    def write(self) -> None:
        """Replace the file in one step; its rights stay."""
        folder = os.path.dirname(self.path)
        os.makedirs(folder, mode=0o755, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self.after)
        os.chmod(path, 0o644)
        self.module.atomic_move(path, self.path)

    def ask(self, *argv: str) -> str:
        """Return what a command says; nothing where it fails or is not there."""
        if self.module.get_bin_path(argv[0]) is None:
            return ""
        status, out, _ = self.module.run_command(list(argv))
        return str(out) if status == 0 else ""


def version(text: str) -> str | None:
    """Return the version in what a program says of itself."""
    match = re.search(r"version v?(\d[^\s,]*)", text)
    return match.group(1) if match else None


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "dict", "required": True},
            "path": {"type": "path", "default": "/etc/docker/daemon.json"},
            "data_root_move": {"type": "str", "choices": ["refuse", "leave"], "default": "refuse"},
        },
        supports_check_mode=True,
    )
    daemon = Daemon(module)
    if daemon.changed:
        daemon.check_move()
        daemon.validate()
        if not module.check_mode:
            daemon.write()
    states = [daemon.ask("systemctl", verb, "docker").strip() for verb in ("is-active", "is-enabled")]
    module.exit_json(
        changed=daemon.changed,
        docker=version(daemon.ask("docker", "--version")),
        toolkit=version(daemon.ask("nvidia-ctk", "--version")),
        data_root=daemon.root,
        mirrors=daemon.new.get("registry-mirrors", []),
        service=states == ["active", "enabled"],
        diff={
            "before": daemon.text,
            "after": daemon.after,
            "before_header": daemon.path,
            "after_header": daemon.path,
        },
    )


if __name__ == "__main__":
    main()
