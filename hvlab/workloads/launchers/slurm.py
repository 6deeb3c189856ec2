"""Slurm's words: the command of an allocation, and what its answers mean. Pure.

As recorded of Slurm 22.05, and as its slurm_errno.c has them. Every answer that ends a run becomes an error
that says which host, what was seen and what to do. What its queue says is in slurm_queue.
"""

from __future__ import annotations

import math
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence

from hvlab.base import remedies
from hvlab.base.errors import CheckError, HvlabError, UnreachableError, UsageError
from hvlab.lab.inventory import Lab
from hvlab.workloads.launchers import slurm_queue
from hvlab.workloads.launchers.slurm_queue import RESUMES, SEE, Unfit

PARTITION = "hvlab"
RUNNING = "RUNNING"
UNKNOWN = "UNKNOWN"
COMPLETING = "COMPLETING"
NODE_FAIL = "NODE_FAIL"
CANCELLED = "CANCELLED"
_ERRORS = {"usage": UsageError, "check": CheckError, "unreachable": UnreachableError}
# The only answer of an unreachable slurmctld after which it cannot have taken the request.
_NOT_REACHED = "connect failure"
# Maximum lines shown of an unknown error.
_SHOWN = 3
# Twice the estimate, and one case as long as it may take; a run that is slower gets another allocation.
_MARGIN, _LEAST_S = 2, 600
# slurm_strerror of ESLURM_INVALID_JOB_ID, ESLURM_JOB_PENDING and ESLURM_ALREADY_DONE; srun has words of its
# own for the last (src/srun/libsrun/allocate.c).
_JOB_OVER = re.compile(
    r"Unable to (?:confirm allocation|create step) for job \d+: "
    r"(Invalid job id|Job is pending execution|Job/step already completing or completed)"
    r"|Slurm job \d+ has expired"
)
# The options of salloc that limit the time.
_TIME = re.compile(r"-t|--time(?:[= ]|$)")
# Those that ask for memory: of a node, a CPU or a GPU. Slurm takes one of them.
_MEMORY = re.compile(r"--mem(?:-per-[cg]pu)?(?:[= ]|$)")
# Why a job ends whose last steps are still being cleared away.
_COMPLETING = {"TimeLimit": "TIMEOUT", "NodeDown": NODE_FAIL, "NodeFail": NODE_FAIL}


def job_name(run_id: str) -> str:
    """Return the name of a run's allocation."""
    return f"hvlab-{run_id}"


def request(
    lab: Lab, hosts: Sequence[str], run_id: str, *, gpus: int = 0, minutes: int = 0
) -> tuple[str, ...]:
    """Return the command that asks for whole hosts; it ends when they are granted, and they stay so.

    ``minutes`` limits the time where no option of the lab does; with 0 it is the partition's.
    """
    return (
        *("salloc", "--no-shell", f"--job-name={job_name(run_id)}"),
        *_partition(lab),
        *(f"--nodes={len(hosts)}", f"--nodelist={','.join(hosts)}"),
        # Nobody else's work beside what is measured; all of the hosts' memory.
        "--exclusive",
        *([] if any(_MEMORY.match(option) for option in _options(lab)) else ["--mem=0"]),
        *([f"--gres=gpu:{gpus}"] if gpus else []),
        *([f"--time={minutes}"] if minutes and not has_time_limit(lab) else []),
        *_options(lab),
    )


def _partition(lab: Lab) -> list[str]:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-p", "--partition", default=lab.vars.get("lab_slurm_partition", PARTITION))
    name = parser.parse_known_args(_options(lab))[0].partition
    return [f"--partition={name}"] if name else []


def _options(lab: Lab) -> list[str]:
    """Return the words of the lab's options: a list, or one line as of a shell. Raises UsageError."""
    given = lab.vars.get("lab_slurm_options") or []
    try:
        return shlex.split(given) if isinstance(given, str) else list(map(str, given))
    except ValueError as error:
        raise UsageError(
            f"lab_slurm_options {given!r} cannot be read: {error}",
            remedy="write a list, such as [--account=physics, --time=60]",
        ) from error


def has_time_limit(lab: Lab) -> bool:
    """Return whether an option of the lab limits the time of its allocations."""
    return any(_TIME.match(option) for option in _options(lab))


def minutes(estimate: float, case: float, longest: int | None = None) -> int:
    """Return the time limit of an allocation, in minutes, for work with this estimate in seconds.

    ``case`` is the time limit of the longest case in seconds, ``longest`` what the partition gives at most.
    """
    needed = math.ceil((_MARGIN * estimate + max(case, _LEAST_S)) / 60)
    return needed if longest is None else min(needed, longest)


def partition(lab: Lab) -> tuple[str, ...]:
    """Return the command that shows the time limit of the lab's partition."""
    # Where no partition is named, all are shown, and the default one has a *.
    named = _partition(lab)
    return ("sinfo", "--noheader", *named, "--format=%l" if named else "--format=%P %l")


def longest(text: str) -> int | None:
    """Return the minutes that ``partition`` shows; None if there is no limit, or no answer."""
    match = re.search(r"^(?:\S+\* )?(?:(\d+)-)?(?:(\d+):)?(\d+):\d+\s*$", text, re.MULTILINE)
    if not match:
        return None
    days, hours, rest = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + rest


def queue(run_id: str) -> tuple[str, ...]:
    """Return the command that shows a run's job in the queue, in a hidden partition too."""
    return ("squeue", "--noheader", "--all", f"--name={job_name(run_id)}", "--format=%i|%T|%r")


def withdrawal(run_id: str) -> tuple[str, ...]:
    """Return the command that ends a run's salloc, which continues if its connection ended."""
    return ("pkill", "-KILL", "-f", f"^salloc --no-shell --job-name={job_name(run_id)} ")


def read_granted_job(stderr: str) -> str:
    """Return the number of the job that salloc was granted. Raises CheckError if it names none."""
    match = re.search(r"Granted job allocation (\d+)", stderr)
    if not match:
        raise CheckError(f"salloc names no job: {stderr.strip()}", remedy=SEE)
    return match[1]


def is_revoked(stderr: str) -> bool:
    """Return whether salloc was granted a job that ended before its hosts were ready."""
    return "Relinquishing job allocation" in stderr


def is_not_taken(stderr: str) -> bool:
    """Return whether Slurm has no job of a salloc that failed: it said so, or was not started at all."""
    kinds = {
        row["kind"] for row in remedies.family("salloc") if re.search(row["sign"], stderr, re.IGNORECASE)
    }
    started = "salloc:" in stderr or not stderr.strip()
    return not started or _NOT_REACHED in stderr or (bool(kinds) and "unreachable" not in kinds)


def is_job_over(message: str) -> bool:
    """Return whether srun could start no step because its job is over, or back in the queue.

    Slurm has then ended the job's processes itself.
    """
    return bool(_JOB_OVER.search(message))


def explain_refusal(host: str, stderr: str, status: int, taken: Mapping[str, Unfit]) -> HvlabError:
    """Return the error of a salloc that was refused on ``host``; ``taken`` are nodes that take no jobs."""
    if is_revoked(stderr) and taken:
        return slurm_queue.unusable(taken)
    lines = [line.strip().removeprefix("salloc: ").removeprefix("error: ") for line in stderr.splitlines()]
    lines = [line for line in lines if line] or [f"exit status {status}"]
    for line in lines:
        if remedy := slurm_queue.remedy(line):
            return UsageError(f"{host}: Slurm grants no hosts: {line}", remedy=remedy)
    if row := remedies.find_remedy("salloc", stderr, **slurm_queue.WORDS):
        return _ERRORS[row["kind"]](f"{host}: Slurm grants no hosts: {lines[-1]}", remedy=row["remedy"])
    # A site's own rules stand before the error.
    return CheckError(f"{host}: Slurm grants no hosts: {'; '.join(lines[-_SHOWN:])}", remedy=SEE)


def explain_vanished(host: str) -> HvlabError:
    """Return the error of a job that ended before its hosts were ready, while salloc waits on ``host``."""
    problem = f"{host}: salloc waits for a job that is no longer in Slurm's queue"
    return CheckError(problem, remedy=f"see slurmctld's log for the reason; {RESUMES}")


def state(text: str) -> str:
    """Return the state of an allocation, from `scontrol show job`; GONE where Slurm has forgotten it."""
    if "Invalid job id" in text:
        return "GONE"
    match = re.search(r"JobState=(\w+) Reason=(\w+)", text)
    if not match:
        return UNKNOWN
    return _COMPLETING.get(match[2], match[1]) if match[1] == COMPLETING else match[1]


def explain_end(job: str, how: str) -> HvlabError:
    """Return the error of an allocation that ended, in state ``how``, after which none is asked for."""
    if how == CANCELLED:
        return CheckError(f"job {job} was cancelled, not by hvlab", remedy=f"ask who ended it; {RESUMES}")
    problem = f"the allocation (job {job}) ended before a case was done: {how}"
    if how == "TIMEOUT":
        remedy = (
            "name a longer --time in lab_slurm_options, or a partition that has it; measure shorter cases"
        )
        return CheckError(problem, remedy=f"{remedy}; {RESUMES}")
    if how == NODE_FAIL:
        return UnreachableError(problem, remedy=f"see `sinfo -R` and bring the host back; {RESUMES}")
    if how in (UNKNOWN, RUNNING):
        return UnreachableError(
            f"slurmctld did not answer at the end of a case; job {job} may still be there",
            remedy=f"look at slurmctld on its host; {RESUMES}",
        )
    return CheckError(problem, remedy=f"see `scontrol show job {job}`; {RESUMES}")


def outside(job: str, hosts: Sequence[str], inside: Sequence[str]) -> HvlabError | None:
    """Return the error of hosts that are not in the allocation that hvlab runs in."""
    others = [host for host in hosts if host not in inside]
    if not others:
        return None
    return UsageError(
        f"{', '.join(others)}: not in the allocation {job}, which has {', '.join(inside) or 'no hosts'}",
        remedy=f"limit the hosts: -l {','.join(inside)}" if inside else "unset SLURM_JOB_ID",
    )
