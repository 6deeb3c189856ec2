"""Slurm's words: the command of an allocation, and what its answers mean. Pure.

As recorded of Slurm 22.05. Every answer that ends a run becomes an error that says which host, what was seen
and what to do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hvlab.errors import CheckError, HvlabError, UnreachableError, UsageError
from hvlab.lab.inventory import Lab

PARTITION = "hvlab"
_COLUMNS = 3
RUNNING = "RUNNING"
UNKNOWN = "UNKNOWN"
COMPLETING = "COMPLETING"
NODE_FAIL = "NODE_FAIL"
_RESUMES = "the same command resumes from there"
_SEE = "see `sinfo` and `scontrol show partition`"
_PARTITION = f"set lab_slurm_partition in the inventory; {_SEE}"
# What salloc says when it ends at once: the error, and what to do.
_REFUSALS: tuple[tuple[str, type[HvlabError], str], ...] = (
    ("Invalid partition name", UsageError, _PARTITION),
    (
        "not permitted to use this partition",
        UsageError,
        f"ask who runs the cluster for the right, or {_PARTITION}",
    ),
    ("partition not available", UsageError, f"ask who runs the cluster, or {_PARTITION}"),
    ("Invalid account", UsageError, "name one of yours in lab_slurm_options, such as [--account=NAME]"),
    ("Invalid qos", UsageError, "name one of yours in lab_slurm_options, such as [--qos=NAME]"),
    ("Invalid node name", UsageError, "give the hosts the names that they have in Slurm: `sinfo -N`"),
    ("Requested node configuration is not available", UsageError, f"ask for fewer slots or hosts; {_SEE}"),
    ("Requested time limit is invalid", UsageError, "name a shorter --time in lab_slurm_options"),
    ("accounting/QOS policy", CheckError, "end a job of yours (`squeue --me`), or ask for a higher limit"),
    ("Access/permission denied", UsageError, "ask who runs the cluster for the right"),
    ("Unable to contact slurm controller", UnreachableError, f"look at slurmctld on its host; {_RESUMES}"),
    (
        "Invalid authentication credential",
        CheckError,
        "give all hosts the same munge key, and the right time",
    ),
    (
        "Resource temporarily unavailable",
        CheckError,
        f"Slurm takes no more jobs now (MaxJobCount): see `squeue`, and try again later; {_RESUMES}",
    ),
    (
        "Relinquishing job allocation",
        UnreachableError,
        f"a host was lost before the job began: see `sinfo -R`, and slurmctld's log; {_RESUMES}",
    ),
    ("No such file", UsageError, "install Slurm there, or measure with --launcher mpirun"),
    ("command not found", UsageError, "install Slurm there, or measure with --launcher mpirun"),
)
# Why a job waits that waits for ever: squeue's reason, and what to do.
_HOPELESS: Mapping[str, str] = {
    # Hosts outside of the partition, or more time than it gives (22.05).
    "PartitionConfig": "limit the hosts with -l to those of the partition, name a shorter --time in "
    f"lab_slurm_options, or {_PARTITION}",
    "PartitionNodeLimit": f"limit the hosts with -l to those of the partition, or {_PARTITION}",
    "PartitionTimeLimit": "name a shorter --time in lab_slurm_options",
    "PartitionDown": f"ask who runs the cluster, or {_PARTITION}",
    "PartitionInactive": f"ask who runs the cluster, or {_PARTITION}",
    "AccountNotAllowed": "name an account in lab_slurm_options, such as [--account=NAME]",
    "QOSNotAllowed": "name a QOS in lab_slurm_options, such as [--qos=NAME]",
    "BadConstraints": f"change lab_slurm_options; {_SEE}",
    "JobHeldUser": "release it: `scontrol release`",
    "JobHeldAdmin": "ask who runs the cluster why jobs are held",
}
# The end of a sentence of slurmctld's own, such as "Job's account not known, so it can't use this partition".
_NO_RIGHT = re.compile(r"Job's (?:account|QOS) .* use this partition")
# Why a job ends whose last steps are still being cleared away.
_COMPLETING = {"TimeLimit": "TIMEOUT", "NodeDown": NODE_FAIL, "NodeFail": NODE_FAIL}
# What does not pass by itself. A node that slurmctld has not heard of yet, such as all of them after it was
# started anew, soon answers or is down.
_UNFIT = ("down", "drain", "fail", "maint", "power")


@dataclass(frozen=True)
class Waiting:
    """A job of the queue: its number, its state and why it waits, in Slurm's words."""

    job: str
    state: str
    reason: str


@dataclass(frozen=True)
class Unfit:
    """A node that takes no jobs: its state, and the reason that somebody gave."""

    host: str
    state: str
    reason: str

    @property
    def seen(self) -> str:
        """Return what is wrong with it."""
        reason = f" ({self.reason})" if self.reason not in ("", "none") else ""
        return f"{self.host}: Slurm has it as {self.state}{reason}"


def job_name(run_id: str) -> str:
    """Return the name of a run's allocation."""
    return f"hvlab-{run_id}"


def request(lab: Lab, hosts: Sequence[str], run_id: str, *, gpus: int = 0) -> tuple[str, ...]:
    """Return the command that asks for whole hosts; it ends when they are granted, and they stay so."""
    partition = lab.vars.get("lab_slurm_partition", PARTITION)
    return (
        *("salloc", "--no-shell", f"--job-name={job_name(run_id)}"),
        *([f"--partition={partition}"] if partition else []),
        *(f"--nodes={len(hosts)}", f"--nodelist={','.join(hosts)}"),
        # Nobody else's work beside what is measured; all of the hosts' memory.
        *("--exclusive", "--mem=0"),
        *([f"--gres=gpu:{gpus}"] if gpus else []),
        *_options(lab.vars.get("lab_slurm_options") or []),
    )


def _options(given: str | Sequence[object]) -> list[str]:
    """Return the words of options that are a list, or one line as of a shell. Raises UsageError."""
    try:
        return shlex.split(given) if isinstance(given, str) else list(map(str, given))
    except ValueError as error:
        raise UsageError(
            f"lab_slurm_options {given!r} cannot be read: {error}",
            remedy="write a list, such as [--account=physics, --time=60]",
        ) from error


def queue(run_id: str) -> tuple[str, ...]:
    """Return the command that shows a run's job in the queue."""
    return ("squeue", "--noheader", f"--name={job_name(run_id)}", "--format=%i|%T|%r")


def waiting(text: str) -> Waiting | None:
    """Return the job that ``queue`` shows; None where there is none."""
    rows = _rows(text)
    return Waiting(*rows[0]) if rows else None


def nodes(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return the command that shows the states of nodes."""
    return ("sinfo", "--noheader", "--Node", f"--nodes={','.join(hosts)}", "--format=%N|%T|%E")


def unfit(text: str) -> dict[str, Unfit]:
    """Return the nodes that take no jobs, from what ``nodes`` shows."""
    nodes_shown = [Unfit(*row) for row in _rows(text)]
    return {node.host: node for node in nodes_shown if any(word in node.state.lower() for word in _UNFIT)}


def _rows(text: str) -> list[list[str]]:
    """Return the lines of three columns."""
    rows = [line.strip().split("|", _COLUMNS - 1) for line in text.splitlines()]
    return [row for row in rows if len(row) == _COLUMNS]


def granted(stderr: str) -> str:
    """Return the number of the job that salloc was granted. Raises CheckError where it names none."""
    match = re.search(r"Granted job allocation (\d+)", stderr)
    if not match:
        raise CheckError(f"salloc names no job: {stderr.strip()}", remedy=_SEE)
    return match[1]


def revoked(stderr: str) -> bool:
    """Return whether salloc was granted a job that ended before its hosts were ready."""
    return "Relinquishing job allocation" in stderr


def refused(host: str, stderr: str, status: int, taken: Mapping[str, Unfit]) -> HvlabError:
    """Return the error of a salloc that was refused on ``host``; ``taken`` are nodes that take no jobs."""
    if revoked(stderr) and taken:
        return unusable(taken)
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    reason = lines[-1].removeprefix("salloc: ").removeprefix("error: ") if lines else f"exit status {status}"
    for words, kind, remedy in _REFUSALS:
        if words.lower() in stderr.lower():
            return kind(f"{host}: Slurm grants no hosts: {reason}", remedy=remedy)
    return CheckError(f"{host}: Slurm grants no hosts: {reason}", remedy=_SEE)


def unusable(taken: Mapping[str, Unfit]) -> HvlabError:
    """Return the error of nodes that take no jobs."""
    names = ",".join(taken)
    lost = any("down" in node.state.lower() for node in taken.values())
    look = f"see slurmd and munge there (`hvlab verify -l {names}`), then " if lost else ""
    back = f"`scontrol update nodename={names} state=resume`"
    return (UnreachableError if lost else CheckError)(
        "; ".join(node.seen for node in taken.values()),
        remedy=f"{look}bring it back ({back}), or leave it out with -l; {_RESUMES}",
    )


def hopeless(job: Waiting, taken: Mapping[str, Unfit]) -> HvlabError | None:
    """Return the error of a job that would wait for ever; ``taken`` are the nodes that take no jobs."""
    if job.reason.startswith("ReqNodeNotAvail") and taken:
        return unusable(taken)
    remedy = _HOPELESS.get(job.reason.strip("()"), "")
    if _NO_RIGHT.match(job.reason):
        options = "name one that is allowed in lab_slurm_options, such as [--account=NAME] or [--qos=NAME]"
        remedy = f"{options}, or {_PARTITION}"
    if not remedy:
        return None
    return UsageError(f"job {job.job} would wait for ever: {job.reason}", remedy=remedy)


def too_long(job: Waiting | None, seconds: float, limit: float) -> HvlabError:
    """Return the error of a request that has waited too long; ``job`` is None where Slurm did not take it."""
    if job is None:
        return CheckError(
            f"Slurm has not taken the request for {seconds:.0f} s; --queue-limit is {limit:.0f} s",
            remedy=f"see whether it answers, and how many jobs it has: `sinfo`, `squeue`; {_RESUMES}",
        )
    return CheckError(
        f"job {job.job} waited {seconds:.0f} s in the queue ({job.reason}); --queue-limit is {limit:.0f} s",
        remedy=f"see who is before it: `squeue`; {_RESUMES}",
    )


def state(text: str) -> str:
    """Return the state of an allocation, from `scontrol show job`; GONE where Slurm has forgotten it."""
    if "Invalid job id" in text:
        return "GONE"
    match = re.search(r"JobState=(\w+) Reason=(\w+)", text)
    if not match:
        return UNKNOWN
    return _COMPLETING.get(match[2], match[1]) if match[1] == COMPLETING else match[1]


def ended(job: str, how: str) -> HvlabError:
    """Return the error of an allocation that ended, in state ``how``, before one case was done in it."""
    problem = f"the allocation (job {job}) ended before a case was done: {how}"
    if how == "TIMEOUT":
        remedy = (
            "name a longer --time in lab_slurm_options, or a partition that has it; measure shorter cases"
        )
        return CheckError(problem, remedy=f"{remedy}; {_RESUMES}")
    if how == NODE_FAIL:
        return UnreachableError(problem, remedy=f"see `sinfo -R` and bring the host back; {_RESUMES}")
    if how in (UNKNOWN, RUNNING):
        return UnreachableError(
            f"slurmctld did not answer at the end of a case; job {job} may still be there",
            remedy=f"look at slurmctld on its host; {_RESUMES}",
        )
    return CheckError(problem, remedy=f"see `scontrol show job {job}`; {_RESUMES}")


def outside(job: str, hosts: Sequence[str], inside: Sequence[str]) -> HvlabError | None:
    """Return the error of hosts that are not in the allocation that hvlab runs in."""
    others = [host for host in hosts if host not in inside]
    if not others:
        return None
    return UsageError(
        f"{', '.join(others)}: not in the allocation {job}, which has {', '.join(inside) or 'no hosts'}",
        remedy=f"limit the hosts: -l {','.join(inside)}" if inside else "unset SLURM_JOB_ID",
    )
