"""Hosts and allocations that are lost under a run: what goes on, whether another allocation is of use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from hvlab.base.errors import HvlabError, UnreachableError
from hvlab.bench.allocation import ANSWER_S, Allocation
from hvlab.bench.progress import Display
from hvlab.bench.schedule import Schedule
from hvlab.lab.inventory import Lab
from hvlab.remote.playbook import RESUMES, Login
from hvlab.remote.shell import Shell
from hvlab.workloads.case import Case
from hvlab.workloads.launchers import slurm, slurm_queue

# Written by hvlab_case where a host or the allocation was lost under a case, which then counts as not run.
_LOST = "lost.json"


@dataclass
class Losses:
    """What was lost under a run's cases; ``folder`` is the run's.

    ``gone`` says of each lost host what was seen. ``fruitless`` is how many allocations in a row ended
    without a finished case.
    """

    schedule: Schedule
    folder: Path
    login: Login
    show: Display
    lost: bool = False
    fruitless: int = 0
    gone: dict[str, str] = field(default_factory=dict)

    def again(self, allocation: Allocation | None, left: int, *, done: int) -> bool:
        """Return whether to go on with the cases ``left``, since a host or an allocation was lost.

        ``done`` is how many cases ended in it. Raises HvlabError where another allocation would be of no use.
        """
        file = self.folder / _LOST
        if not file.is_file():
            return False
        lost = json.loads(file.read_text("utf-8"))
        if lost.get("hosts"):
            return self._without(lost["hosts"], lost["case"])
        if allocation is None:
            return False
        state = str(lost["state"])
        state = allocation.state() if state in (slurm.UNKNOWN, slurm.COMPLETING) else state
        self.fruitless = 0 if done else self.fruitless + 1
        # A host or slurmctld may be away under the first case; a time limit under which no case ends stays.
        allowed = 1 if state in (slurm.NODE_FAIL, slurm.RUNNING) else 0
        # A person cancels a job: hvlab asks for no other one.
        final = (slurm.UNKNOWN, slurm.CANCELLED)
        if self.fruitless > allowed or not allocation.own or state in final:
            raise slurm.ended(allocation.job, state)
        self.lost = True
        why = "did not answer" if state == slurm.RUNNING else f"has ended job {allocation.job}, {state}"
        self.show.note(f"Slurm {why}: another allocation for the {left} cases left")
        return True

    def _without(self, gone: Mapping[str, str], case: str) -> bool:
        self.gone |= gone
        self.lost = True
        for host, observed in gone.items():
            self.show.note(f"{host} was lost under {case} ({observed}): the cases on other hosts go on")
        return True

    def remaining(self, cases: Sequence[Case]) -> Schedule:
        """Return the schedule to go on with: after a loss that of ``cases`` alone: hosts may be gone."""
        (self.folder / _LOST).unlink(missing_ok=True)
        return replace(self.schedule, cases=tuple(cases)) if self.lost else self.schedule

    def on_fit_hosts(self, cases: list[Case]) -> list[Case]:
        """Return the cases whose hosts are there; after a loss some may be gone.

        Raises UnreachableError where there are none.
        """
        if not self.lost or not cases:
            return cases
        gone = {name: f"{name} was lost ({observed})" for name, observed in self.gone.items()}
        used = replace(self.schedule, cases=tuple(cases))
        if self.schedule.allocated(cases):
            gone |= {name: node.observed for name, node in _unfit(used.lab, self.login, used.hosts).items()}
        fit = [case for case in cases if not gone.keys() & set(case.hosts)]
        if not fit:
            left = "1 case is" if len(cases) == 1 else f"{len(cases)} cases are"
            raise UnreachableError(f"{'; '.join(gone.values())}: {left} left", remedy=RESUMES)
        return fit


def _unfit(lab: Lab, login: Login, hosts: Sequence[str]) -> dict[str, slurm_queue.Unfit]:
    """Return those of the hosts that take no jobs now; a host that answers is asked."""
    for name in hosts:
        with suppress(HvlabError):
            done = Shell(login, lab.host(name)).run(slurm_queue.nodes(hosts), seconds=ANSWER_S)
            if done.returncode == 0:
                return slurm_queue.unfit(done.stdout)
    return {}
