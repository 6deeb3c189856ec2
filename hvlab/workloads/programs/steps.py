"""After a failed case: cancel the rest of its step, and report the state of its allocation.

    steps.py NAME          the name of the step; SLURM_JOB_ID is the allocation

Runs in the case's folder, where the launcher's stderr is. Prints {"job", "state", "cancelled"}: Slurm's word
for the allocation's state, UNKNOWN if Slurm does not answer or did not answer srun, and the cancelled steps.
Needs Python 3.8+, and Slurm's commands.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import Sequence

GRACE_S = 20.0
_ANSWER_S = 15


def main() -> int:
    job, cancelled = os.environ["SLURM_JOB_ID"], []
    deadline = time.monotonic() + GRACE_S
    while state(job) == "RUNNING" and time.monotonic() < deadline:
        left = steps(job, sys.argv[1])
        if not left:
            break
        new = [step for step in left if step not in cancelled]
        if new:
            answer(["scancel", *new])
            cancelled += new
        time.sleep(0.2)
    now = state(job)
    if now == "RUNNING" and is_unanswered():
        now = "UNKNOWN"
    print(json.dumps({"job": job, "state": now, "cancelled": cancelled}))
    return 0


def is_unanswered() -> bool:
    """Whether srun reached no slurmctld, so that the step never began; it may be back since."""
    try:
        with open("stderr", errors="replace") as file:
            return bool(re.search(r"^srun: error: .*Unable to contact slurm controller", file.read(), re.M))
    except OSError:
        return False


def state(job: str) -> str:
    """Return the state of an allocation, GONE if Slurm has forgotten it.

    After its time slurmctld starts no more steps, and reports its end up to half a minute later.
    """
    status, text = answer(["scontrol", "--oneliner", "show", "job", job])
    if "Invalid job id" in text:
        return "GONE"
    match = re.search(r"JobState=(\w+)", text)
    ends = re.search(r"EndTime=(\d+-\d+-\d+T\d+:\d+:\d+)", text)
    if not match or status:
        return "UNKNOWN"
    over = ends and time.mktime(time.strptime(ends.group(1), "%Y-%m-%dT%H:%M:%S")) <= time.time()
    return "TIMEOUT" if over and match.group(1) == "RUNNING" else match.group(1)


def steps(job: str, name: str) -> list[str]:
    text = answer(["squeue", "--noheader", "--all", "--steps", "--jobs", job, "--format", "%i|%j"])[1]
    rows = [line.strip().partition("|") for line in text.splitlines()]
    return [step for step, _, named in rows if named == name]


def answer(argv: Sequence[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            argv,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            timeout=_ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
