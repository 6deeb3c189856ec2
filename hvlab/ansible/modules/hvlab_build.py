#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Run the stages of a long build, which resumes after any interruption."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections import deque
from contextlib import suppress
from typing import Any, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hvlab_managed import make_private
from ansible.module_utils.hvlab_packed import MARKER, read_marker
from ansible.module_utils.hvlab_probe import read

REMEDIES = (
    ("No space left on device", "free space on the file system of {path}"),
    ("belongs to UID|everybody may", "name a folder that only root can write to"),
    (
        "Killed|out of memory|virtual memory exhausted|Cannot allocate memory",
        "give the host more memory, or build with fewer jobs at a time",
    ),
    ("Connection timed out|Temporary failure resolving", "check that the host reaches its package source"),
)
# Maximum lines of a stage's output that name an error, and at its end. In parallel builds, the failure is far
# from the end.
ERROR_LINES, LAST_LINES = 6, 12
ERROR = re.compile(
    r"\berror\b|\bfatal\b|\bkilled\b|undefined reference|cannot |could not|no such file|no space",
    re.IGNORECASE,
)


def excerpt(path: str, start: int) -> list[str]:
    """Return the lines of a log, from byte ``start`` on, that name an error, then the last ones."""
    errors: list[str] = []
    last: deque[str] = deque(maxlen=LAST_LINES)
    with open(path, "rb") as file:
        file.seek(start)
        for raw in file:
            line = raw.decode("utf-8", "replace").rstrip()[:300]
            if not line.strip():
                continue
            if len(last) == LAST_LINES and len(errors) < ERROR_LINES and ERROR.search(last[0]):
                errors.append(last[0])
            last.append(line)
    return [*errors, *last]


def remedy(text: str, path: str) -> str:
    """Return the remedy for a known failure in ``text``, else an empty text."""
    for pattern, advice in REMEDIES:
        if re.search(pattern, text):
            return advice.format(path=path)
    return ""


class Build:
    """One folder with its lock, log and stamps."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.path, self.timeout = module, module.params["path"], module.params["timeout"]
        self.log = os.path.join(self.path, "log")
        self.env = dict(os.environ, LC_ALL="C.UTF-8", **{k: str(v) for k, v in module.params["env"].items()})
        self.lock = -1

    def fail(self, message: str, last: Sequence[str] = ()) -> None:
        """End the module; the next run takes the finished stages as they are."""
        lines = "".join("\n  " + line for line in last)
        advice = remedy(message + lines, self.path)
        again = "What to do: {}, then run again".format(advice) if advice else "Correct that, then run again"
        self.module.fail_json(
            msg="{}: {}{}\nLog: {}\n{}; finished stages are not repeated.".format(
                socket.gethostname(), message, lines, self.log, again
            ),
            log=self.log,
        )

    def hold(self) -> None:
        """Take the folder's lock, which the stages inherit; wait for a build that holds it."""
        make_private(os.path.dirname(self.path))
        os.makedirs(self.path, mode=0o755, exist_ok=True)
        self.lock = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
        until = time.monotonic() + self.timeout
        while True:
            try:
                return fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    self.fail("another build still runs in {} after {} s".format(self.path, self.timeout))
                time.sleep(1)

    def run(self, stage: dict[str, Any]) -> None:
        """Run one stage in a session of its own, so that nothing interrupts it."""
        with open(self.log, "ab") as log:
            log.write("== {}: {}\n".format(stage["name"], " ".join(stage["argv"])).encode())
            log.flush()
            start = log.tell()
            process = subprocess.Popen(
                stage["argv"],
                cwd=os.path.join(self.path, stage["chdir"]),
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[self.lock],
            )
        try:
            status = process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.fail(
                "stage {} ran for more than {} s".format(stage["name"], self.timeout),
                excerpt(self.log, start),
            )
        if status:
            how = "signal {} (Killed)".format(-status) if status < 0 else "status {}".format(status)
            self.fail("stage {} ended with {}:".format(stage["name"], how), excerpt(self.log, start))

    def pending(self) -> list[tuple[dict[str, Any], str, str]]:
        """Return the stages still to run, each with the path and the text of its stamp."""
        pending, chain = [], json.dumps(self.module.params["env"], sort_keys=True)
        result = self.module.params["result"]
        own = not result or read_marker(result).get("build") == self.path
        again = False
        for stage in self.module.params["stages"]:
            chain = hashlib.sha256(json.dumps([chain, stage], sort_keys=True).encode()).hexdigest()
            stamp = os.path.join(self.path, "done-" + stage["name"])
            again = again or (not own and result in stage["argv"]) or read(stamp) != chain
            if again:
                pending.append((stage, stamp, chain))
        return pending

    def stages(self) -> list[str]:
        """Run the stages that are pending; return their names."""
        ran, result, begun = [], self.module.params["result"], False
        for stage, stamp, chain in self.pending():
            with suppress(FileNotFoundError):
                os.unlink(stamp)
            self.run(stage)
            begun = begun or result in stage["argv"]
            if begun and os.path.isdir(result):
                self.mark(result)
            with open(stamp, "w") as file:
                file.write(chain)
            ran.append(stage["name"])
        return ran

    def mark(self, result: str) -> None:
        """Mark the result as this build's, at the place of the pack's marker."""
        with open(os.path.join(result, MARKER), "w") as file:
            json.dump({"build": self.path}, file)


def main() -> None:
    """Build."""
    # Whatever root's umask, the lab's users can read what is installed.
    os.umask(0o022)
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "stages": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": text,
                    "argv": {"type": "list", "elements": "str", "required": True},
                    "chdir": {"type": "str", "default": "."},
                },
            },
            "result": {"type": "path"},
            "env": {"type": "dict", "default": {}},
            "timeout": {"type": "int", "default": 7200},
        },
        supports_check_mode=True,
    )
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    build = Build(module)
    if module.check_mode:
        ran = [stage["name"] for stage, _, _ in build.pending()]
        module.exit_json(changed=bool(ran), ran=ran, log=build.log)
    try:
        build.hold()
        ran = build.stages()
    except OSError as error:
        build.fail(str(error))
    module.exit_json(changed=bool(ran), ran=ran, log=build.log)


if __name__ == "__main__":
    main()
