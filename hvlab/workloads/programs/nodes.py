"""One program on every host of a case, as torchrun is started; the first that fails ends the others.

    nodes.py h1,h2 'ssh -o ...' NAME,NAME PROGRAM ...   on the first host: {node} in a word is the host's
                                                        number, the variables NAME go along
    nodes.py node                                       on the others: becomes what it reads

Needs Python 3.8+.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Iterable, Mapping, Sequence

LOOK_S = 0.1
# The others have as long to say why they end: the rank that failed first may be one of theirs.
OTHERS_S = 3.0


def main() -> int:
    if sys.argv[1:] == ["node"]:
        become(**json.loads(sys.stdin.readline()))
    hosts, ssh, names, *argv = sys.argv[1:]
    return run(hosts.split(","), shlex.split(ssh), names.split(","), argv)


def become(argv: Sequence[str], env: Mapping[str, str]) -> None:
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execvp(argv[0], expand(argv))  # noqa: S606 - a shell would be one more process


def expand(argv: Sequence[str]) -> "list[str]":
    """Return the words with hvlab's folder in this host's home; torchrun itself knows no ~."""
    return [os.path.expanduser(word) if word.startswith("~/.hvlab/") else word for word in argv]


def run(hosts: Sequence[str], ssh: Sequence[str], names: Sequence[str], argv: Sequence[str]) -> int:
    """Return the status of the first program that failed, whose host is told; 0 if all ended well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    env = {name: os.environ[name] for name in names if name in os.environ}
    running: "dict[str, subprocess.Popen[str]]" = {}
    try:
        for number, host in enumerate(hosts):
            own = [word.replace("{node}", str(number)) for word in argv]
            running[host] = (
                subprocess.Popen(expand(own), text=True) if number == 0 else _over_ssh(ssh, host, own, env)
            )
        return _first_failure(running)
    finally:
        # Not by SIGTERM: torchrun says at length that somebody ended it. The case's leftovers are reaped.
        for process in running.values():
            process.kill()


def _over_ssh(
    ssh: Sequence[str], host: str, argv: Sequence[str], env: Mapping[str, str]
) -> "subprocess.Popen[str]":
    there = shlex.join([sys.executable, os.path.abspath(__file__), "node"])
    process = subprocess.Popen([*ssh, host, there], stdin=subprocess.PIPE, text=True)
    # Not as arguments, which every user can read.
    with suppress(OSError), process.stdin:  # type: ignore[union-attr]
        process.stdin.write(json.dumps({"argv": argv, "env": env}) + "\n")  # type: ignore[union-attr]
    return process


def _first_failure(running: "dict[str, subprocess.Popen[str]]") -> int:
    while running:
        for host, process in list(running.items()):
            status = process.poll()
            if status:
                sys.stderr.write("nodes: {}: torchrun ended with {}\n".format(host, status))
                sys.stderr.flush()
                _wait(running.values())
                return status if status > 0 else 128 - status
            if status == 0:
                del running[host]
        time.sleep(LOOK_S)
    return 0


def _wait(processes: "Iterable[subprocess.Popen[str]]") -> None:
    end = time.monotonic() + OTHERS_S
    while time.monotonic() < end and any(process.poll() is None for process in processes):
        time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
