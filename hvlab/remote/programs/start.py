"""Runs another program on a host without an inventory, in its own place. Needs Python 3.8+ and Linux.

Its input holds the program, its input, and arguments and environment of each host: one argument of a process
holds less. In a step with several hosts each finds its own by its name, and prints that first. The time limit
holds on the host, so that a slow one costs no other's answer.
"""

import json
import os
import signal
import subprocess
import sys

given = json.load(sys.stdin)
hosts = given["hosts"]
name = os.environ.get("SLURMD_NODENAME", "")
own = hosts.get(name) or next(iter(hosts.values()))
if len(hosts) > 1:
    print(name, flush=True)
reading, writing = os.pipe()
if not os.fork():
    os.close(reading)
    with open(writing, "w") as stream:
        stream.write(given["input"])
    os._exit(0)
os.close(writing)
os.dup2(reading, 0)
# It outlasts exec.
signal.alarm(given["seconds"])
os.environ.update(own["environment"])
python = given["python"] or sys.executable
try:
    if given["python"]:
        ask = [python, "-c", "import sys; print(sys.version_info >= (3, 8))"]
        done = subprocess.run(
            ask,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=given["seconds"],
            check=False,
        )
        if done.stdout.strip() != b"True":
            words = done.stderr.decode("utf-8", "replace").strip().splitlines()
            sys.exit("{}: {}".format(python, words[-1] if words else "it is no Python from 3.8 on"))
    os.execvp(python, [python, "-c", given["program"], *own["arguments"]])  # noqa: S606 - in its own place
except OSError as error:
    sys.exit("{}: {}".format(python, "it is a folder" if os.path.isdir(python) else error.strerror))
