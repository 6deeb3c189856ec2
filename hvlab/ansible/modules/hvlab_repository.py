#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Add a signed package source to apt, dnf or yum, or leave the host as it was."""

from __future__ import annotations

DOCUMENTATION = """
module: hvlab_repository
short_description: Add a signed package source to apt, dnf or yum, or leave the host as it was
description:
  - The fingerprint of the key is computed from the key itself and compared before anything is written.
  - Only this source is asked then. When it does not answer or its signature does not fit, everything written
    is taken back, and the failure names the host, what was seen and what to do.
  - When files and key are as wanted, nothing is downloaded.
options:
  name: {description: Name of its files., type: str, required: true}
  url: {description: Address of the source., type: str}
  suite: {description: The suite for apt; a flat repository has C(/)., type: str, default: /}
  components: {description: The components of a suite for apt., type: list, elements: str, default: []}
  key: {description: "Its public key: a URL, a path on the controller, or the armored text.", type: str}
  fingerprint:
    description: The fingerprint that the key must have, or at least its last 8 digits.
    type: str
    default: ""
  priority: {description: The priority that apt gives to what comes from there., type: int}
  enabled: {description: Whether the source is used., type: bool, default: true}
  gpgcheck: {description: Let dnf and yum check the signature of each package., type: bool, default: true}
  repo_gpgcheck: {description: Let them check that of the metadata too., type: bool, default: false}
  conflicts:
    description: Parts of addresses. Entries of other files that have one must not stand beside this source.
    type: list
    elements: str
    default: []
  replace: {description: Switch such entries off instead of refusing., type: bool, default: false}
  host: {description: Name of the host in messages; the action plugin gives it., type: str, default: ""}
  state: {description: Whether it shall be there., type: str, choices: [present, absent], default: present}
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Add the source
  hvlab_repository:
    name: nvidia
    url: https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64
    key: https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/3bf863cc.pub
    fingerprint: EB693B3035CD5710E231E123A4B469963BF863CC
"""

RETURN = """
paths: {description: The files that were changed or would be., type: list, elements: str, returned: success}
fingerprint: {description: That of the key in use., type: str, returned: state=present}
"""

import glob
import os
import re
import shutil
import socket
import time
from urllib.error import HTTPError, URLError

from ansible.module_utils import hvlab_openpgp, hvlab_sources
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hvlab_managers import SECONDS, Apt, Rpm, remedy
from ansible.module_utils.urls import open_url

LOCK_SECONDS = 300
TROUBLE = re.compile(
    r"^(?:E:|Err:|Error:| *- (?:Curl error|Status code)"
    r"|W: (?:Failed to fetch|Some index|An error|GPG error|The repository)).*",
    re.MULTILINE,
)


class RefusedError(Exception):
    """What was seen, and what to do about it."""

    def __init__(self, seen: str, remedy: str) -> None:
        super().__init__(seen)
        self.seen, self.remedy = seen, remedy


def read(path: str) -> bytes | None:
    """Return the content of a file, None when it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(path: str, data: bytes | None) -> None:
    """Replace a file in one step; None removes it."""
    if data is None:
        if os.path.exists(path):
            os.unlink(path)
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    beside = "{}.{}".format(path, os.urandom(4).hex())
    with open(beside, "wb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(data)
    os.replace(beside, path)


class Repository:
    """One source as wanted and as it is."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        self.kind: Apt | Rpm = (Apt if shutil.which("apt-get") else Rpm)(module.params)
        self.fingerprint = ""

    def key(self) -> bytes:
        """Return the wanted key: the one that is there when it is right, else the one from its place."""
        present = read(self.kind.key_path)
        if present is not None and self.params["fingerprint"]:
            try:
                return self._chosen(present, self.kind.key_path)
            except RefusedError:
                pass
        text = self.params["key"]
        if "BEGIN PGP" in text:
            return self._chosen(text.encode(), "the key that was given")
        return self._chosen(self._download(text), text)

    def _download(self, url: str) -> bytes:
        try:
            with open_url(url, timeout=SECONDS, http_agent="hvlab") as answer:
                return bytes(answer.read(1 << 20))
        except HTTPError as error:
            seen = "the key {} cannot be had: HTTP {} {}".format(url, error.code, error.reason)
            raise RefusedError(seen, "see that the address of the key is right") from None
        except (URLError, OSError, ValueError) as error:
            seen = "{} does not answer: {}".format(url, getattr(error, "reason", error))
            raise RefusedError(seen, remedy(seen, self.kind)) from None

    def _chosen(self, data: bytes, origin: str) -> bytes:
        """Return the one key that is wanted, without others in the same file."""
        wanted = self.params["fingerprint"]
        try:
            found = hvlab_openpgp.keys(data)
        except ValueError as error:
            raise RefusedError(
                "{} is no OpenPGP public key: {}".format(origin, error), "see that the address is right"
            ) from None
        fitting = [name for name in found if hvlab_openpgp.matches(name, wanted)]
        if not fitting:
            seen = "{} has the fingerprint {}, not {}".format(origin, ", ".join(found), wanted)
            raise RefusedError(
                seen, "find out whose key that is; only if it is right, set the fingerprint to it"
            )
        self.fingerprint = fitting[0]
        return bytes(self.kind.key_file(b"".join(found[name] for name in fitting)))

    def others(self) -> dict[str, bytes]:
        """Return the other files that hold a conflicting entry, with the text they shall have."""
        found = {}
        addresses = [self.kind.url, *self.params["conflicts"]]
        for path in sorted(path for pattern in self.kind.patterns for path in glob.glob(pattern)):
            if path == self.kind.path:
                continue
            text = (read(path) or b"").decode("utf-8", "surrogateescape")
            without = hvlab_sources.switch_off(path, text, addresses)
            if without != text:
                found[path] = without.encode("utf-8", "surrogateescape")
        if found and not self.params["replace"]:
            raise RefusedError(
                "{} already leads to this source or its predecessor; two entries with different keys "
                "stop the package manager".format(", ".join(found)),
                "remove that entry, or let it be switched off (replace, in a role its variable replace_old)",
            )
        return found

    def wanted(self) -> dict[str, bytes | None]:
        """Return the content of every file; None where there shall be none."""
        if self.params["state"] == "absent":
            return dict.fromkeys([self.kind.key_path, *self.kind.files()])
        files: dict[str, bytes | None] = {
            path: text.encode() or None for path, text in self.kind.files().items()
        }
        return dict(self.others(), **{self.kind.key_path: self.key()}, **files)

    def run(self) -> None:
        """Bring the wanted state about and end the module."""
        wanted = self.wanted()
        before = {path: read(path) for path in wanted}
        paths = [path for path in wanted if wanted[path] != before[path]]
        present = self.params["state"] == "present"
        asks = present and self.params["enabled"] and (bool(paths) or not self.kind.known())
        if not self.module.check_mode and (paths or asks):
            self.apply({path: wanted[path] for path in paths}, before, asks=asks)
        texts = [path for path in paths if path != self.kind.key_path]
        self.module.exit_json(
            changed=bool(paths or asks),
            paths=paths,
            fingerprint=self.fingerprint,
            diff=[
                {
                    "before_header": path,
                    "after_header": path,
                    "before": (before[path] or b"").decode("utf-8", "replace"),
                    "after": (wanted[path] or b"").decode("utf-8", "replace"),
                }
                for path in texts
            ],
        )

    def apply(self, files: dict[str, bytes | None], before: dict[str, bytes | None], *, asks: bool) -> None:
        """Write the files and ask the source; on a failure everything is as it was."""
        if self.params["state"] == "absent" and before[self.kind.key_path] is not None:
            self.kind.forget(self.module)
        try:
            for path, data in files.items():
                write(path, data)
            if asks:
                self.ask()
        except BaseException:
            for path in files:
                write(path, before[path])
            raise
        if self.params["state"] == "present" and self.kind.key_path in files:
            self.kind.trust(self.module)

    def ask(self) -> None:
        """Let the package manager read the lists of this source; wait for another that holds its lock."""
        until = time.monotonic() + LOCK_SECONDS
        environment = {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        while True:
            status, out, err = self.module.run_command(self.kind.refresh(), environ_update=environment)
            told = out + err
            if not re.search(r"Could not get lock|is another process using it", told):
                break
            if time.monotonic() > until:
                seen = "another process holds the package manager's lock for {} s".format(LOCK_SECONDS)
                raise RefusedError(seen, "let it end, then run again")
            time.sleep(2)
        trouble = [line.strip() for line in TROUBLE.findall(told)]
        if status == 0 and not trouble:
            return
        lines = trouble or [line.strip() for line in told.splitlines() if line.strip()][-3:]
        short = "\n  ".join(dict.fromkeys(line[:300] for line in lines[:4]))
        seen = "{} cannot be used:\n  {}".format(self.kind.url, short)
        raise RefusedError(seen, remedy("\n".join(lines), self.kind))


def main() -> None:
    """Run as an Ansible module."""
    words = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "url": {"type": "str"},
            "suite": {"type": "str", "default": "/"},
            "components": words,
            "key": {"type": "str", "no_log": False},
            "fingerprint": {"type": "str", "default": ""},
            "priority": {"type": "int"},
            "enabled": {"type": "bool", "default": True},
            "gpgcheck": {"type": "bool", "default": True},
            "repo_gpgcheck": {"type": "bool", "default": False},
            "conflicts": words,
            "replace": {"type": "bool", "default": False},
            "host": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ["url", "key"])],
        supports_check_mode=True,
    )
    host = module.params["host"] or socket.gethostname()
    digits = re.sub(r"\s|^0x", "", module.params["fingerprint"])
    if digits and not re.fullmatch(r"[0-9A-Fa-f]{8,64}", digits):
        module.fail_json(
            msg="{}: {!r} is no fingerprint.\nTo go on: give its 40 hexadecimal digits.".format(host, digits)
        )
    try:
        Repository(module).run()
    except RefusedError as error:
        module.fail_json(
            msg="{}: {}.\nNothing was changed.\nTo go on: {}.".format(host, error.seen, error.remedy)
        )


if __name__ == "__main__":
    main()
