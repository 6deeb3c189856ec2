"""Slurm's queue: why a job waits, whether it would wait for ever, and which nodes take no jobs. Pure.

Reasons are those of squeue, states those of sinfo: src/common/job_state_reason.c and `node_state_string` of
Slurm 22.05 to 26.05. Every reason that ends a run becomes an error that says what was seen and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hvlab.base import remedies
from hvlab.base.errors import CheckError, HvlabError, UnreachableError, UsageError

SEE = "see `sinfo` and `scontrol show partition`"
SET_PARTITION = f"set lab_slurm_partition in the inventory; {SEE}"
RESUMES = "the same command resumes from there"
# For the remedies of other tools' messages.
WORDS = {"see": SEE, "set_partition": SET_PARTITION, "resumes": RESUMES}
_COLUMNS = 3
_SHORTER = "name a shorter --time in lab_slurm_options"
_ACCOUNT = "name one of yours in lab_slurm_options, such as [--account=NAME]"
_QOS = "name one of yours in lab_slurm_options, such as [--qos=NAME]"
_LESS_MEMORY = "name a smaller --mem in lab_slurm_options"
_RESERVATION = "name another --reservation in lab_slurm_options, or none: `scontrol show reservation`"
# What one job may have, by its account and user (Assoc) or its QOS. Limits of all jobs together (Grp, PerUser
# and PerAccount) are no such reason: other jobs end.
_ONE_JOB = re.compile(r"(Assoc|QOS)Max(\w+?)(Per(?:Job|Node))(?:Limit)?$|QOS(Min)\w+$")
# The end of a sentence of slurmctld's own, such as "Job's account not known, so it can't use this partition".
_NO_RIGHT = re.compile(r"Job's (?:account|QOS) .* use this partition")
_ABOUT_NODES = ("ReqNodeNotAvail", "NodeDown", "Nodes required for job are DOWN")
_MAINTENANCE = "Reserved for maintenance"
_BEFORE = "; with a shorter --time in lab_slurm_options it may end before that"
# Reasons that do not pass. A node unknown to slurmctld, such as all of them after it was
# restarted, soon answers or is down; blocked, reserved, planned and power saving pass.
_UNFIT = ("down", "drain", "drained", "draining", "fail", "failing", "inval", "maint", "error")
# What sinfo adds to a state. A node that is about to reboot (@), rebooting (^) or powering up (#) comes back.
_FLAGS = "*~#!%$@^+-"
_RETURNING = "@^#"


@dataclass(frozen=True)
class Waiting:
    """A job of the queue: its number, its state and why it waits, in Slurm's words."""

    job: str
    state: str
    reason: str

    @property
    def about_nodes(self) -> bool:
        """Whether it waits for nodes that may take no jobs."""
        return self.reason.strip("()").startswith(_ABOUT_NODES)

    @property
    def hint(self) -> str:
        """Return advice for an earlier start; empty if there is nothing to do."""
        return _BEFORE if _MAINTENANCE in self.reason else ""


@dataclass(frozen=True)
class Unfit:
    """A node that takes no jobs: its state, and the reason that somebody gave."""

    host: str
    state: str
    reason: str

    @property
    def base(self) -> str:
        """Return its state without the flags that sinfo adds."""
        return self.state.lower().rstrip(_FLAGS)

    @property
    def observed(self) -> str:
        """Name the problem."""
        reason = f" ({self.reason})" if self.reason not in ("", "none") else ""
        return f"{self.host}: Slurm reports it as {self.state}{reason}"


def waiting(text: str) -> Waiting | None:
    """Return the job that `squeue` shows in three columns; None without one."""
    rows = _rows(text)
    return Waiting(*rows[0]) if rows else None


def nodes(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return the command that shows the states of nodes."""
    return ("sinfo", "--noheader", "--all", "--Node", f"--nodes={','.join(hosts)}", "--format=%N|%T|%E")


def read_unfit(text: str) -> dict[str, Unfit]:
    """Return the nodes that take no jobs, from what ``nodes`` shows."""
    nodes_shown = [Unfit(*row) for row in _rows(text)]
    return {
        node.host: node
        for node in nodes_shown
        if node.base in _UNFIT and not node.state.endswith(tuple(_RETURNING))
    }


def _rows(text: str) -> list[list[str]]:
    rows = [line.strip().split("|", _COLUMNS - 1) for line in text.splitlines()]
    return [row for row in rows if len(row) == _COLUMNS]


def unusable(taken: Mapping[str, Unfit]) -> HvlabError:
    """Return the error of nodes that take no jobs."""
    bases = {node.base for node in taken.values()}
    names = ",".join(taken)
    lost = "down" in bases
    looks = [
        *([f"see slurmd and munge there (`hvlab verify -l {names}`)"] if lost else []),
        *(["compare `slurmd -C` there with its line in slurm.conf"] if "inval" in bases else []),
        *(["see until when: `scontrol show reservation`"] if "maint" in bases else []),
    ]
    back = (
        f"bring it back (`scontrol update nodename={names} state=resume`)" if bases != {"maint"} else "wait"
    )
    return (UnreachableError if lost else CheckError)(
        "; ".join(node.observed for node in taken.values()),
        remedy=f"{''.join(f'{look}, then ' for look in looks)}{back}, or leave it out with -l; {RESUMES}",
    )


def hopeless(job: Waiting, taken: Mapping[str, Unfit]) -> HvlabError | None:
    """Return the error of a job that would wait for ever; ``taken`` are the nodes that take no jobs."""
    if job.about_nodes and taken:
        return unusable(taken)
    if what := remedy(job.reason):
        return UsageError(f"job {job.job} would wait for ever: {job.reason}", remedy=what)
    return None


def remedy(reason: str) -> str:
    """Return the remedy for a reason for which a job would wait for ever; empty for others."""
    reason = reason.strip("()")
    if limit := _ONE_JOB.match(reason):
        return _within(limit)
    if _NO_RIGHT.match(reason):
        options = "name one that is allowed in lab_slurm_options, such as [--account=NAME] or [--qos=NAME]"
        return f"{options}, or {SET_PARTITION}"
    return remedies.remedy("queue", reason, **WORDS)


def _within(limit: re.Match[str]) -> str:
    """Return how to fit a job into a limit per job, or per node of a job."""
    what, per = limit[2] or "", limit[3] or ""
    if limit[4]:
        less = "ask for more hosts"
    elif "WallDuration" in what:
        less = _SHORTER
    elif per == "PerNode":
        # An allocation has whole hosts, with all of their CPUs.
        less = {"GRES": "ask for fewer slots", "Mem": _LESS_MEMORY, "Memory": _LESS_MEMORY}.get(what, "")
    else:
        less = "ask for fewer hosts" if "Minutes" not in what else f"ask for fewer hosts, {_SHORTER}"
    whose = ("--account", "associations user=$USER") if limit[1] == "Assoc" else ("--qos", "qos")
    other = f"name another {whose[0]} in lab_slurm_options"
    return f"{less + ', or ' if less else ''}{other}; `sacctmgr show {whose[1]}` shows the limits"


def too_long(job: Waiting | None, seconds: float, limit: float) -> HvlabError:
    """Return the error of a request that has waited too long; ``job`` is None where Slurm did not take it."""
    if job is None:
        return CheckError(
            f"Slurm has not taken the request for {seconds:.0f} s; --queue-limit is {limit:.0f} s",
            remedy=f"see whether it answers, and how many jobs it has: `sinfo`, `squeue`; {RESUMES}",
        )
    return CheckError(
        f"job {job.job} waited {seconds:.0f} s in the queue ({job.reason}); --queue-limit is {limit:.0f} s",
        remedy=f"see who is before it: `squeue`; {RESUMES}",
    )
