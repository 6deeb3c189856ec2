"""The allocation of a run: Slurm grants its hosts before the first case, and has them back after the last.

A run may lose hosts and allocations: ``Losses`` decides how it continues, and whether to ask again.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from hvlab.base.errors import HvlabError, UnreachableError, UsageError
from hvlab.bench.progress import Display
from hvlab.bench.schedule import Schedule
from hvlab.lab.inventory import Lab
from hvlab.remote.playbook import RESUMES, Login
from hvlab.remote.shell import SSH_FAILED, Shell
from hvlab.workloads.case import Case
from hvlab.workloads.launchers import slurm, slurm_queue

_FILE = "allocation.json"
_TICK_S, _LOOK_S, ANSWER_S = 0.1, 1.0, 30.0
# A request that waits for long is looked at less often, since slurmctld is everybody's.
_LOOK_PART, _LOOK_MOST_S = 0.1, 30.0
# Maximum number of hosts asked to give an allocation back if the first ones do not answer.
_ASKED = 3
# slurmctld may be restarted, or moved to another host, during a run.
_AWAY_S = 90.0
# salloc does not always notice that its job ended before the hosts were ready, as where a prolog fails.
_ABSENT_S = 60.0


@dataclass(frozen=True)
class Allocation:
    """Hosts that Slurm has granted as a job; ``waited`` is the time in the queue, in seconds.

    ``own`` tells that the run asked for them; otherwise hvlab was started inside.
    """

    job: str
    shell: Shell
    waited: float = 0.0
    own: bool = True

    @property
    def env(self) -> Mapping[str, str]:
        """Return the environment in which srun starts steps of it."""
        return {"SLURM_JOB_ID": self.job}

    def state(self) -> str:
        """Return its state in Slurm's word; wait for a slurmctld that is away for a while."""
        deadline = time.monotonic() + _AWAY_S
        while True:
            state = slurm.state(_ask(self.shell, ("scontrol", "--oneliner", "show", "job", self.job)))
            if state != slurm.UNKNOWN or time.monotonic() > deadline:
                return state
            time.sleep(_LOOK_S)


@contextmanager
def allocate(
    schedule: Schedule, cases: Sequence[Case], folder: Path, login: Login, show: Display, *, seconds: float
) -> Iterator[Allocation | None]:
    """Have the hosts of those ``cases`` that Slurm starts while the block runs; None if it starts none.

    ``folder`` is the run's, and named after it; ``seconds`` is how long the cases are estimated to take.
    Raises UsageError, CheckError or UnreachableError where Slurm does not grant them.
    """
    run_id = folder.name
    hosts = schedule.list_allocated(cases)
    if not hosts:
        yield None
        return
    shell = Shell(login, schedule.lab.host(hosts[0]))
    if os.environ.get("SLURM_JOB_ID"):
        yield _around(shell, hosts)
        return
    (folder / _FILE).write_text(json.dumps({"hosts": hosts}), "utf-8")
    asked = _Request(shell, hosts, run_id, show, schedule.spec.queue_limit)
    try:
        # The most minutes that the partition gives, where somebody needs to know.
        limited = slurm.has_time_limit(schedule.lab)
        longest = None if limited else slurm.longest(_ask(shell, slurm.partition(schedule.lab)))
        yield asked.wait(schedule.allocation(cases, run_id, seconds=seconds, longest=longest))
    finally:
        if asked.refused:
            (folder / _FILE).unlink()
        for problem in release(schedule.lab, login, folder):
            show.note(problem)


def release(lab: Lab, login: Login, folder: Path) -> list[str]:
    """Cancel a run's jobs in the queue, if it had an allocation; return the failures.

    ``folder`` is the run's.
    """
    file, run_id = folder / _FILE, folder.name
    if not file.is_file():
        return []
    own = {host.name for host in lab.hosts}
    hosts = [name for name in json.loads(file.read_text("utf-8"))["hosts"] if name in own][:_ASKED]
    left = ""
    for host in hosts:
        answers, left = _cancel(Shell(login, lab.host(host)), run_id)
        if not left:
            file.unlink()
            return []
        if answers:
            hosts = [host]
            break
    name = slurm.job_name(run_id)
    return [f"{', '.join(hosts)}: the allocation {name} may still be in the queue: {left}"] if hosts else []


def _cancel(shell: Shell, run_id: str) -> tuple[bool, str]:
    """Cancel a run's job; return whether the host answers, and why the job may still be there."""
    left = ""
    deadline = time.monotonic() + _AWAY_S
    while time.monotonic() < deadline:
        try:
            shell.run(("scancel", f"--name={slurm.job_name(run_id)}"), seconds=ANSWER_S)
            done = shell.run(slurm.queue(run_id), seconds=ANSWER_S)
        except HvlabError as error:
            return False, str(error)
        job = slurm_queue.waiting(done.stdout)
        if done.returncode == 0 and (job is None or job.state == slurm.COMPLETING):
            return True, ""
        left = done.stderr.strip() or (f"job {job.job} is {job.state}" if job else "squeue says nothing")
        if done.returncode == SSH_FAILED:
            return False, left
        time.sleep(_LOOK_S)
    return True, left


def _around(shell: Shell, hosts: Sequence[str]) -> Allocation:
    job = os.environ["SLURM_JOB_ID"]
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    inside = _ask(shell, ("scontrol", "show", "hostnames", listed)).split() if listed else list(hosts)
    error = slurm.outside(job, hosts, inside)
    if error:
        raise error
    allocation = Allocation(job, shell, own=False)
    if allocation.state() != slurm.RUNNING:
        raise UsageError(
            f"the allocation {job} that SLURM_JOB_ID names is not running",
            remedy="unset SLURM_JOB_ID, or run this inside the allocation",
        )
    return allocation


@dataclass
class _Request:
    shell: Shell
    hosts: Sequence[str]
    run_id: str
    show: Display
    limit: float
    started: float = field(default_factory=time.monotonic)
    reason: str = ""
    refused: bool = False
    absent_since: float | None = None

    def wait(self, argv: Sequence[str]) -> Allocation:
        """Return the allocation when it is granted."""
        try:
            process = self.shell.start(argv)
        except OSError as error:
            self.refused = True
            said = f"cannot run {argv[0]}: {error.strerror}"
            raise slurm.explain_refusal(self.shell.host.name, said, 1, {}) from error
        try:
            looked = time.monotonic()
            while process.poll() is None:
                time.sleep(_TICK_S)
                if time.monotonic() - looked > self._pause(looked):
                    self._check_queue()
                    looked = time.monotonic()
            said = process.stderr.read() if process.stderr else ""
        finally:
            if process.poll() is None:
                self._withdraw()
            process.kill()
            process.wait()
            if process.stderr:
                process.stderr.close()
        waited = time.monotonic() - self.started
        if process.returncode:
            self.refused = process.returncode != SSH_FAILED and slurm.is_not_taken(said)
            raise slurm.explain_refusal(
                self.shell.host.name, said, process.returncode, self._find_unfit_hosts()
            )
        job = slurm.read_granted_job(said)
        after = f" after {waited:.0f} s in the queue" if self.reason else ""
        self.show.note(f"Slurm grants {','.join(self.hosts)} as job {job}{after}")
        return Allocation(job, self.shell, waited)

    def _withdraw(self) -> None:
        """End salloc, which may still try: a later grant would be nobody's."""
        with suppress(HvlabError):
            self.shell.run(slurm.withdrawal(self.run_id), seconds=ANSWER_S)

    def _pause(self, looked: float) -> float:
        """Return the seconds until the next look: a tenth of the time waited, and not beyond the limit."""
        waited = looked - self.started
        pause = min(_LOOK_PART * waited, _LOOK_MOST_S, self.limit - waited if self.limit else _LOOK_MOST_S)
        return max(pause, _LOOK_S)

    def _check_queue(self) -> None:
        """Show why the request waits. Raises HvlabError if it would wait forever, or has waited too long."""
        done = _run(self.shell, slurm.queue(self.run_id))
        job = slurm_queue.waiting(done.stdout) if done else None
        seconds = time.monotonic() - self.started
        absent = job is None and done is not None and done.returncode == 0
        self.absent_since = (self.absent_since or time.monotonic()) if absent else None
        if job is None:
            self.show.step(f"Slurm has no job for the request, {seconds:.0f} s after it")
            error = self._explain_vanished()
        elif job.state != "PENDING":
            return
        else:
            if job.reason != self.reason:
                self.reason = job.reason
                self.show.note(f"job {job.job} waits in the queue: {job.reason}{job.hint}")
            self.show.step(f"in the queue since {seconds:.0f} s: {job.reason}")
            error = slurm_queue.hopeless(job, self._find_unfit_hosts() if job.about_nodes else {})
        if error is None and self.limit and seconds > self.limit:
            error = slurm_queue.too_long(job, seconds, self.limit)
        if error:
            raise error

    def _explain_vanished(self) -> HvlabError | None:
        """Return the error of a job that is not in the queue, though salloc still waits for it."""
        if self.absent_since is None or time.monotonic() - self.absent_since < _ABSENT_S:
            return None
        unfit = self._find_unfit_hosts()
        return slurm_queue.unusable(unfit) if unfit else slurm.explain_vanished(self.shell.host.name)

    def _find_unfit_hosts(self) -> dict[str, slurm_queue.Unfit]:
        return slurm_queue.read_unfit(_ask(self.shell, slurm_queue.nodes(self.hosts)))


def _ask(shell: Shell, words: Sequence[str]) -> str:
    done = _run(shell, words)
    return done.stdout + done.stderr if done else ""


def _run(shell: Shell, words: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command; None if the host does not answer."""
    try:
        return shell.run(words, seconds=ANSWER_S)
    except HvlabError:
        return None


# Written by hvlab_case where a host or the allocation was lost under a case, which then counts as not run.
_LOST = "lost.json"


@dataclass
class Losses:
    """Hosts and allocations lost under a run's cases; ``folder`` is the run's.

    ``gone`` has the symptom of each lost host, ``fruitless`` the number of allocations in a row that ended
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
        """Whether to continue with the cases ``left`` after a host or an allocation was lost.

        ``done`` is the number of cases that ended in it. Raises HvlabError if another would be of no use.
        """
        file = self.folder / _LOST
        if not file.is_file():
            return False
        lost = json.loads(file.read_text("utf-8"))
        if lost.get("hosts"):
            return self._drop_hosts(lost["hosts"], lost["case"])
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
            raise slurm.explain_end(allocation.job, state)
        self.lost = True
        why = "did not answer" if state == slurm.RUNNING else f"has ended job {allocation.job}, {state}"
        self.show.note(f"Slurm {why}: another allocation for the {left} cases left")
        return True

    def _drop_hosts(self, gone: Mapping[str, str], case: str) -> bool:
        self.gone |= gone
        self.lost = True
        for host, observed in gone.items():
            self.show.note(f"{host} was lost under {case} ({observed}): the cases on other hosts continue")
        return True

    def remaining(self, cases: Sequence[Case]) -> Schedule:
        """Return the schedule to continue with; after a loss, that of ``cases`` alone."""
        (self.folder / _LOST).unlink(missing_ok=True)
        return replace(self.schedule, cases=tuple(cases)) if self.lost else self.schedule

    def on_fit_hosts(self, cases: list[Case]) -> list[Case]:
        """Return the cases whose hosts are still there. Raises UnreachableError if there are none."""
        if not self.lost or not cases:
            return cases
        gone = {name: f"{name} was lost ({observed})" for name, observed in self.gone.items()}
        used = replace(self.schedule, cases=tuple(cases))
        if self.schedule.list_allocated(cases):
            gone |= {
                name: node.observed for name, node in _find_unfit(used.lab, self.login, used.hosts).items()
            }
        fit = [case for case in cases if not gone.keys() & set(case.hosts)]
        if not fit:
            left = "1 case is" if len(cases) == 1 else f"{len(cases)} cases are"
            raise UnreachableError(f"{'; '.join(gone.values())}: {left} left", remedy=RESUMES)
        return fit


def _find_unfit(lab: Lab, login: Login, hosts: Sequence[str]) -> dict[str, slurm_queue.Unfit]:
    """Return those of the hosts that take no jobs now; a host that answers is asked."""
    for name in hosts:
        with suppress(HvlabError):
            done = Shell(login, lab.host(name)).run(slurm_queue.nodes(hosts), seconds=ANSWER_S)
            if done.returncode == 0:
                return slurm_queue.read_unfit(done.stdout)
    return {}
