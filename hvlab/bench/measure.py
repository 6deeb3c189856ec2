"""Measure: run the pending cases, and put each into the store as its files arrive."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from hvlab import workloads
from hvlab.bench import containers, recording
from hvlab.bench.estimate import estimate
from hvlab.bench.progress import Display
from hvlab.bench.schedule import Schedule
from hvlab.datasets import Dataset, own_files, prepare
from hvlab.errors import CheckError, HvlabError, InterruptedRunError, UsageError
from hvlab.lab.inventory import Lab
from hvlab.remote import probe
from hvlab.remote.playbook import Login, Play, reap
from hvlab.remote.trust import lab_trust
from hvlab.results.store import Run, Store, new_run_id
from hvlab.workloads.case import Case

_TICK_S = 0.1
# The name that stores already contain.
INFEASIBLE = "left-out.json"
# How long beyond a case's time limit Ansible may be silent: it connects to hosts and ends ranks.
_SILENCE_S = 120.0


def measure(schedule: Schedule, store: Store, *, restart: bool = False, resume: Run | None = None) -> str:
    """Run every pending case and return the run's id; ``resume`` is the run to resume.

    An unfinished run with the same schedule is resumed too, unless ``restart`` says otherwise.
    Raises UnreachableError, UsageError (a backend is not built) and InterruptedRunError; a case that fails
    is a record, not an error.
    """
    login = _login(schedule.lab)
    with _alone(store, schedule.lab):
        resumed = resume or (None if restart else store.unfinished(schedule.spec.key(schedule.lab)))
        done = store.done(resumed.run_id) if resumed else set()
        pending = [case for case in schedule.cases if case.id not in done]
        progress = Display(len(schedule.cases), done=len(schedule.cases) - len(pending))
        if resumed:
            progress.note(
                f"resuming run {resumed.run_id}: {progress.done} of {len(schedule.cases)} cases are done"
            )
        if pending:
            progress.note(estimate(pending, store).text)
        known_hosts = login.trust.known_hosts if login.trust else None
        probe.probe([schedule.lab.host(name) for name in schedule.hosts], known_hosts=known_hosts)
        data = _prepared(pending)
        schedule = replace(schedule, keys={name: dataset.key for name, dataset in data.items()})
        run_id = resumed.run_id if resumed else new_run_id()
        run = _Run(run_id, schedule, store, login, progress, pending, tuple(data.values()))
        for dead in store.runs():
            if dead.lab == schedule.lab.name and dead.state == "running":
                run.reap(dead.run_id)
                store.enter(dead.run_id, "interrupted")
        if resumed:
            run.collect()
            store.enter(run.run_id, "running")
        else:
            store.create(
                run.run_id,
                lab=schedule.lab.name,
                spec_key=schedule.spec.key(schedule.lab),
                spec=asdict(schedule.spec),
                cases=[case.id for case in schedule.cases],
            )
        run.run()
    return run.run_id


def _prepared(cases: Iterable[Case]) -> dict[str, Dataset]:
    """Return the data sets and the user's own files that the cases need, prepared on this machine."""
    cases = list(cases)
    names = dict.fromkeys(name for case in cases for name in workloads.data(case))
    lines = dict.fromkeys(line for case in cases for line in workloads.files(case))
    return {
        **{name: prepare(name) for name in names},
        **{line: Dataset(line, folder, key) for line in lines for key, folder in [own_files.packed(line)]},
    }


@dataclass
class _Run:
    """A run in progress; ``pending`` shrinks as the files of the cases arrive."""

    run_id: str
    schedule: Schedule
    store: Store
    login: Login
    progress: Display
    pending: list[Case]
    data: tuple[Dataset, ...] = ()
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.store.run_folder(self.run_id)

    def run(self) -> None:
        """Run the pending cases; record in the store how the run ended."""
        try:
            self._play()
        except UsageError:
            self.store.enter(self.run_id, "refused")
            raise
        except KeyboardInterrupt as error:
            self.store.enter(self.run_id, "interrupted")
            self.progress.note("interrupted: ending the processes on the hosts")
            self.reap(self.run_id)
            done = f"{self.progress.done} of {len(self.schedule.cases)} cases"
            raise InterruptedRunError(
                f"interrupted; run {self.run_id} has {done}",
                remedy="run the same command again to resume it (--restart starts a new run)",
            ) from error
        except BaseException:
            self.store.enter(self.run_id, "interrupted")
            raise
        self.store.enter(self.run_id, "finished")

    def reap(self, run_id: str) -> None:
        """End what a run left on the hosts; report where that failed."""
        failures = reap(self.login, run_id, self.schedule.hosts)
        failures += containers.remove(self.schedule.lab, run_id, self.store.run_folder(run_id))
        for failure in failures:
            self.progress.note(f"{failure.host}: run {run_id} could not be ended: {failure.message}")

    def _play(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "refused.json").unlink(missing_ok=True)
        content = self.schedule.content(self.pending, self.run_id)
        content["certificate"] = self.login.certificate
        content["as_user"] = self.login.user if self.login.trust is None and os.geteuid() == 0 else None
        content["driver"] = os.getpid()
        (self.folder / "plan.json").write_text(json.dumps(content, indent=1), "utf-8")
        infeasible = [asdict(case) for case in self.schedule.infeasible]
        (self.folder / INFEASIBLE).write_text(json.dumps(infeasible, indent=1), "utf-8")
        variables = {
            "hvlab_plan": str(self.folder / "plan.json"),
            "hvlab_hosts": ",".join(self.schedule.hosts),
            "hvlab_head": self.schedule.hosts[0],
            "hvlab_data": [{"key": dataset.key, "folder": str(dataset.folder)} for dataset in self.data],
        }
        login = (
            replace(self.login, port=self.schedule.spec.ssh_port)
            if self.schedule.spec.container
            else self.login
        )
        with (
            self.progress,
            containers.running(self.schedule, self.run_id, self.folder, note=self.progress.note),
            Play("run-cases.yml", login, variables) as play,
        ):
            last_output = time.monotonic()
            while not play.wait(_TICK_S):
                last_output = time.monotonic() if self.collect() else last_output
                self._show()
                if time.monotonic() - last_output > self.schedule.spec.timeout + _SILENCE_S:
                    play.stop()
                    silence = round(time.monotonic() - last_output)
                    raise HvlabError(f"Ansible gave no output for {silence} s:\n{play.last_words()}")
            self.collect()
            self._check(play)

    def _show(self) -> None:
        if not (self.folder / "facts.json").exists():
            self.progress.step("reaching the hosts")
        elif self.pending:
            self.progress.step(f"{self.pending[0].id} on {','.join(self.pending[0].hosts)}")

    def collect(self) -> int:
        """Put every case whose files have arrived into the store; return how many did."""
        before = len(self.pending)
        for case in list(self.pending):
            folder = self.folder / case.id
            if not folder.is_dir():
                break
            outcome = workloads.outcome(case, folder)
            self.store.add(recording.records(self.run_id, self.folder, case, outcome))
            self.pending.remove(case)
            status = recording.status(outcome)
            ended = status if outcome.error is None else f"{status}: {outcome.error}"
            self.progress.finished(case.id, case.hosts, outcome.seconds, ended)
        return before - len(self.pending)

    def _check(self, play: Play) -> None:
        """Raise an error if the playbook ended too early."""
        refused = self.folder / "refused.json"
        if refused.exists():
            refusals = json.loads(refused.read_text("utf-8"))
            remedies = dict.fromkeys(refusal["remedy"] for refusal in refusals.values())
            remedy = f"{'; '.join(remedies)}; or leave {', '.join(refusals)} out"
            raise UsageError("; ".join(refusal["seen"] for refusal in refusals.values()), remedy=remedy)
        play.check(
            "the playbook failed",
            remedy="fix the cause, with `hvlab provision` if the stack has changed, then run this again",
        )
        if self.pending:
            problem = f"Ansible exited with {play.rc}, {len(self.pending)} cases are pending"
            raise HvlabError(f"{problem}:\n{play.last_words()}")


def _login(lab: Lab) -> Login:
    """Return the keys that the driver logs in with; the certificate is valid for days."""
    user = str(lab.vars.get("lab_user_name", "hvlab"))
    if lab.local:
        return Login(lab, None, user)
    trust = lab_trust(lab.name)
    if trust is None or not trust.known_hosts.is_file():
        probe.probe(lab.hosts)  # an unreachable host is the more likely reason
        problem = f"the hosts of lab {lab.name} do not trust this machine yet"
        raise CheckError(problem, remedy="run `hvlab provision` first")
    trust.renew_user_certificate(user)
    return Login(lab, trust, user)


@contextmanager
def _alone(store: Store, lab: Lab) -> Iterator[None]:
    """Lock the lab: one measurement at a time."""
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
        file = (store.folder / f".{lab.name}.lock").open("a+", encoding="utf-8")
    except OSError as error:
        problem = f"the results folder {store.folder} cannot be written: {error.strerror}"
        raise UsageError(problem, remedy="choose another with --results") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            problem = f"lab {lab.name} is being measured by process {file.read().strip() or '?'}"
            raise UsageError(
                problem, remedy="wait for it to end: two runs at once would distort each other's figures"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
