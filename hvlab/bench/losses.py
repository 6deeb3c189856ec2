"""Allocations that end before a run's cases do: whether another one is of use, and what is left for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hvlab.bench.allocation import ANSWER_S, Allocation
from hvlab.bench.progress import Display
from hvlab.bench.schedule import Schedule
from hvlab.errors import HvlabError, UnreachableError
from hvlab.lab.inventory import Lab
from hvlab.launchers import slurm
from hvlab.remote.playbook import RESUMES, Login
from hvlab.remote.shell import Shell
from hvlab.workloads.case import Case

# Written by hvlab_case where the allocation ended under a case, which then counts as not run.
_LOST = "lost.json"


@dataclass
class Losses:
    """The allocations of a run that ended before its cases did; ``folder`` is the run's.

    ``fruitless`` is how many did in a row without a finished case.
    """

    schedule: Schedule
    folder: Path
    login: Login
    show: Display
    lost: bool = False
    fruitless: int = 0

    def again(self, allocation: Allocation | None, left: int, *, done: int) -> bool:
        """Return whether the cases ``left`` are for another allocation, since this one has ended under them.

        ``done`` is how many cases ended in it. Raises HvlabError where another one would be of no use.
        """
        file = self.folder / _LOST
        if allocation is None or not file.is_file():
            return False
        state = str(json.loads(file.read_text("utf-8"))["state"])
        state = allocation.state() if state in (slurm.UNKNOWN, slurm.COMPLETING) else state
        self.fruitless = 0 if done else self.fruitless + 1
        # A host or slurmctld may be away under the first case; a time limit under which no case ends stays.
        allowed = 1 if state in (slurm.NODE_FAIL, slurm.RUNNING) else 0
        if self.fruitless > allowed or not allocation.own or state == slurm.UNKNOWN:
            raise slurm.ended(allocation.job, state)
        self.lost = True
        why = "did not answer" if state == slurm.RUNNING else f"has ended job {allocation.job}, {state}"
        self.show.note(f"Slurm {why}: another allocation for the {left} cases left")
        return True

    def remaining(self, cases: Sequence[Case]) -> Schedule:
        """Return the schedule to go on with: after a loss that of ``cases`` alone: hosts may be gone."""
        (self.folder / _LOST).unlink(missing_ok=True)
        return replace(self.schedule, cases=tuple(cases)) if self.lost else self.schedule

    def on_fit_hosts(self, cases: list[Case]) -> list[Case]:
        """Return the cases that Slurm has hosts for; after a loss some may be gone.

        Raises UnreachableError where there are none.
        """
        if not self.lost or not cases:
            return cases
        gone = _unfit(self.schedule.lab, self.login, replace(self.schedule, cases=tuple(cases)).hosts)
        fit = [case for case in cases if not gone.keys() & set(case.hosts)]
        if not fit:
            reasons = "; ".join(node.seen for node in gone.values())
            raise UnreachableError(f"{reasons}: {len(cases)} cases are left", remedy=RESUMES)
        return fit


def _unfit(lab: Lab, login: Login, hosts: Sequence[str]) -> dict[str, slurm.Unfit]:
    """Return those of the hosts that take no jobs now; a host that answers is asked."""
    for name in hosts:
        with suppress(HvlabError):
            done = Shell(login, lab.host(name)).run(slurm.nodes(hosts), seconds=ANSWER_S)
            if done.returncode == 0:
                return slurm.unfit(done.stdout)
    return {}
