"""Measure: run the pending cases, and put each into the store as its files arrive."""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from hvlab import workloads
from hvlab.base import cache
from hvlab.base.errors import HvlabError, InterruptedRunError, UsageError
from hvlab.base.files import make_folder, write_file
from hvlab.bench import allocation, containers, looks
from hvlab.bench.allocation import Allocation, Losses
from hvlab.bench.estimate import estimate, format_duration
from hvlab.bench.progress import Display
from hvlab.bench.schedule import Schedule
from hvlab.remote import probe
from hvlab.remote.playbook import HostFailure, Login, Play, login_of, reap
from hvlab.results import outcomes
from hvlab.results.lock import measuring
from hvlab.results.store import Run, Store, make_run_id
from hvlab.workloads.case import Case
from hvlab.workloads.datasets import Dataset, own_files, prepare, rules
from hvlab.workloads.launchers import slurm
from hvlab.workloads.parameters import RULES

_TICK_S = 0.1
# The name that stores already contain.
INFEASIBLE = "left-out.json"
# How long beyond a case's time limit Ansible may be silent: it connects to hosts and ends ranks.
_SILENCE_S = 120.0


def measure(
    schedule: Schedule,
    store: Store,
    *,
    restart: bool = False,
    resume: Run | None = None,
    locked: bool = False,
) -> str:
    """Run every pending case and return the run's id; ``resume`` is the run to resume.

    ``locked`` says that the caller is ``measuring`` the lab into that store already.

    An unfinished run with the same schedule is resumed too, unless ``restart`` says otherwise.
    Raises UnreachableError, UsageError (a backend is not built) and InterruptedRunError; a case that fails
    is a record, not an error.
    """
    login = login_of(schedule.lab)
    with nullcontext() if locked else measuring(store.folder, schedule.lab.name):
        resumed = resume or (None if restart else store.unfinished(schedule.spec.key(schedule.lab)))
        measured = store.records(resumed.run_id) if resumed else []
        done = {record.case_id for record in measured}
        due = looks.list_due(schedule.cases, schedule.spec, measured)
        pending = [case for case in due if case.id not in done]
        progress = Display(len(due), done=len(due) - len(pending))
        if resumed:
            progress.note(f"resuming run {resumed.run_id}: {progress.done} of {len(due)} cases are done")
        if pending:
            progress.expect(estimate_time(schedule, pending, store))
        known_hosts = login.trust.known_hosts if login.trust else None
        if schedule.lab.prepared:  # The others were asked when the lab was made.
            probe.probe([schedule.lab.host(name) for name in schedule.hosts], known_hosts=known_hosts)
        data = _prepare_data(schedule.cases)
        if data:
            cache.keep_limit(progress.note)
        schedule = replace(schedule, keys={name: dataset.key for name, dataset in data.items()})
        run_id = resumed.run_id if resumed else make_run_id()
        run = _Run(*(run_id, schedule, store, login, progress, pending), data=tuple(data.values()))
        run.end_earlier()
        progress.keep(run.folder)
        run.enter(resumed)
        run.run()
    return run.run_id


def estimate_time(schedule: Schedule, cases: Sequence[Case], store: Store) -> str:
    """Estimate the time of a run: ``cases`` first, then the repeats that its questions need."""
    text = estimate(cases, store).text
    if not schedule.spec.auto:
        return text
    every = estimate(schedule.cases, store)
    limit = schedule.spec.time_limit
    most = f"; at most {every.cases} cases, {every.time}, if its questions stay open"
    return text + most + (f"; time limit {format_duration(limit)}" if limit else "")


def _prepare_data(cases: Iterable[Case]) -> dict[str, Dataset]:
    cases = list(cases)
    names = dict.fromkeys(name for case in cases for name in workloads.data(case))
    lines = dict.fromkeys(line for case in cases for line in workloads.files(case))
    tables = dict.fromkeys(case.params[RULES.name] for case in cases if RULES.name in case.params)
    return {
        **{name: prepare(name) for name in names},
        **{text: Dataset(text, folder, key) for text in tables for key, folder in [rules.place(text)]},
        **{line: Dataset(line, folder, key) for line in lines for key, folder in [own_files.pack(line)]},
    }


@dataclass
class _Run:
    """A run in progress; ``queue``, of those ``pending``, shrinks as the files of the cases arrive."""

    run_id: str
    schedule: Schedule
    store: Store
    login: Login
    progress: Display
    pending: list[Case]
    queue: list[Case] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    data: tuple[Dataset, ...] = ()
    folder: Path = field(init=False)
    losses: Losses = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.store.run_folder(self.run_id)
        self.losses = Losses(self.schedule, self.folder, self.login, self.progress)

    def end_earlier(self) -> None:
        """End the leftovers of earlier runs of the lab on the hosts and in Slurm's queue."""
        for past in self.store.runs():
            if past.lab != self.schedule.lab.name:
                continue
            if past.state == "running" or self._mark(past.run_id).exists():
                self.reap(past.run_id)
                if past.state == "running":
                    self.store.enter(past.run_id, "interrupted")
            else:
                self.release(past.run_id)

    def enter(self, resumed: Run | None) -> None:
        """Have the run in the store: a new one, or the one that is ``resumed``, with what arrived since."""
        if resumed:
            self.queue = list(self.pending)
            self.collect()
            self.pending = self.list_due()
            self.store.enter(self.run_id, "running")
            return
        self.store.create(
            self.run_id,
            lab=self.schedule.lab.name,
            spec_key=self.schedule.spec.key(self.schedule.lab),
            spec=asdict(self.schedule.spec),
            cases=[case.id for case in looks.first(self.schedule.cases, self.schedule.spec)],
        )

    def run(self) -> None:
        """Run the pending cases; record in the store how the run ended."""
        ended = "finished"
        try:
            while self.pending:
                self.queue = self._cut_to_limit(self.pending)
                self.queue = self.losses.on_fit_hosts(self.queue)
                if not self.queue:
                    ended = "interrupted"
                    self._note_end_of_time()
                    break
                self._play()
                self.pending = self.list_due()
        except UsageError:
            self.store.enter(self.run_id, "refused")
            raise
        except KeyboardInterrupt as error:
            self._break_off("interrupted: ending the processes on the hosts")
            done = f"{self.progress.done} of {self.progress.total} cases"
            raise InterruptedRunError(
                f"interrupted; run {self.run_id} has {done}",
                remedy=f"run the same command again{self._where()} to resume it (--restart starts a new run)",
            ) from error
        except BaseException:
            self._break_off("ending the processes on the hosts that answer")
            raise
        self.store.enter(self.run_id, ended)

    def _break_off(self, words: str) -> None:
        """End the run in the store and on the hosts; where one of the two fails, the other is done."""
        with ExitStack() as ending:
            # Until the hosts are this run's own and have sent their facts, nothing was started there.
            if (self.folder / "facts.json").exists():
                ending.callback(self.reap, self.run_id, without=self.losses.gone)
                ending.callback(self.progress.note, words)
            else:
                ending.callback(self.release, self.run_id)
            self.store.enter(self.run_id, "interrupted")

    def _where(self) -> str:
        """Return the option that gets the next Slurm job these hosts; empty outside a job."""
        lab = self.schedule.lab
        names = ",".join(sorted(host.name for host in lab.hosts))
        return f" on the same hosts (sbatch --nodelist={names})" if lab.step else ""

    def list_due(self) -> list[Case]:
        """Return the cases still to be measured, given the results so far."""
        records = self.store.records(self.run_id)
        done = {record.case_id for record in records}
        due = looks.list_due(self.schedule.cases, self.schedule.spec, records)
        pending = [case for case in due if case.id not in done]
        if pending and len(due) > self.progress.total:
            repeats = max(case.repeat for case in due)
            self.progress.extend(
                len(due), f"open questions: {len(pending)} more cases, up to {repeats} repeats"
            )
        return pending

    def _cut_to_limit(self, cases: Sequence[Case]) -> list[Case]:
        """Return whole repeats of ``cases`` for which there is time; all without a time limit."""
        limit, elapsed = self.schedule.spec.time_limit, time.monotonic() - self.started
        if not limit:
            return list(cases)
        measured = self.progress.done - self.progress.before
        if not measured:  # An estimate without earlier runs may be far off: one repeat shows it.
            return [case for case in cases if case.repeat == cases[0].repeat]
        most = int((limit - elapsed) / (elapsed / measured))
        repeats = [case.repeat for case in cases]
        whole = [repeat for repeat in dict.fromkeys(repeats) if bisect_right(repeats, repeat) <= most]
        # Half of them, then another look at the clock: cases may become slower.
        return [case for case in cases if case.repeat in whole[: (len(whole) + 1) // 2]]

    def _note_end_of_time(self) -> None:
        lab = self.schedule.lab
        names = ",".join(host.name for host in lab.hosts)
        named = f"--hosts {names} --python {lab.vars.get('hvlab_rank_python')} "
        here = "" if lab.prepared else "--here " if lab.step else named
        self.progress.note(
            f"no time for another repeat: {len(self.pending)} cases are left before the next look. "
            f"`hvlab bench {here}--resume {self.run_id}` continues for as long again"
        )

    def _mark(self, run_id: str) -> Path:
        """Return the marker file: present while a run may have processes left on hosts."""
        return self.store.run_folder(run_id) / "unended"

    def reap(self, run_id: str, *, without: Collection[str] = ()) -> None:
        """End a run's leftovers on the hosts, but those ``without`` an answer; report where that failed."""
        mark = self._mark(run_id)
        # An unwritable folder must not stop the clean-up.
        with suppress(OSError):
            make_folder(mark.parent)
            mark.touch()
        hosts = [name for name in self.schedule.hosts if name not in without]
        try:
            left = reap(self.login, run_id, hosts) if hosts else []
            failures = [failure for failure in left if not slurm.is_job_over(failure.message)]
        except HvlabError as error:
            failures = [HostFailure(", ".join(hosts), str(error), unreachable=True)]
        failures += containers.remove(self.schedule.lab, run_id, self.store.run_folder(run_id))
        if not failures and not without:
            mark.unlink(missing_ok=True)
        for failure in failures:
            self.progress.note(f"{failure.host}: run {run_id} could not be ended: {failure.message}")
        self.release(run_id)

    def release(self, run_id: str) -> None:
        """Give back the hosts of a run that Slurm still has; report where that failed."""
        folder = self.store.run_folder(run_id)
        for problem in allocation.release(self.schedule.lab, self.login, folder):
            self.progress.note(problem)

    def _play(self) -> None:
        make_folder(self.folder)
        (self.folder / "refused.json").unlink(missing_ok=True)
        schedule = self.losses.remaining(self.queue)
        seconds = estimate(self.queue, self.store).seconds
        granting = allocation.allocate(
            schedule, self.queue, self.folder, self.login, self.progress, seconds=seconds
        )
        with self.progress, granting as allocated:
            if allocated:
                self.started += allocated.waited
                self.progress.exclude_wait(allocated.waited)
            self._run_cases(schedule, allocated)

    def _run_cases(self, schedule: Schedule, allocated: Allocation | None) -> None:
        content = schedule.content(self.queue, self.run_id)
        content["allocation"] = dict(allocated.env) if allocated else {}
        done = self.progress.done
        content["certificate"] = self.login.certificate
        content["as_user"] = self.login.other_user
        content["driver"] = os.getpid()
        # It holds the ranks' environment as it is, and with it what is kept out of everything else.
        write_file(self.folder / "plan.json", json.dumps(content, indent=1), mode=0o600)
        infeasible = [asdict(case) for case in self.schedule.infeasible]
        (self.folder / INFEASIBLE).write_text(json.dumps(infeasible, indent=1), "utf-8")
        variables = {
            "hvlab_plan": str(self.folder / "plan.json"),
            "hvlab_hosts": ",".join(schedule.hosts),
            "hvlab_head": schedule.hosts[0],
            "hvlab_data": [{"key": dataset.key, "folder": str(dataset.folder)} for dataset in self.data],
        }
        login = replace(self.login, port=self.schedule.port)
        with (
            containers.running(
                self.schedule, self.run_id, self.folder, trust=login.trust, note=self.progress.note
            ),
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
            if self.queue and not self.losses.again(
                allocated, len(self.queue), done=self.progress.done - done
            ):
                raise HvlabError(
                    f"Ansible ended before the last case, {len(self.queue)} pending:\n{play.last_words()}",
                    remedy="run the same command again to resume",
                )

    def _show(self) -> None:
        if not (self.folder / "facts.json").exists():
            self.progress.step("reaching the hosts")
        elif self.queue:
            text = f"{self.queue[0].id} on {','.join(self.queue[0].hosts)}"
            self.progress.step(text, running=True)

    def collect(self) -> int:
        """Put every case whose files have arrived into the store; return their number."""
        before = len(self.queue)
        for case in list(self.queue):
            folder = self.folder / case.id
            if not folder.is_dir():
                break
            outcome = workloads.outcome(case, folder)
            versions = containers.stack(self.folder, case)
            self.store.add(outcomes.records(self.run_id, case, outcome, versions))
            self.queue.remove(case)
            status = outcomes.status(outcome)
            ended = status if outcome.error is None else f"{status}: {outcome.error}"
            self.progress.count_case(case.id, case.hosts, outcome.seconds, ended)
        return before - len(self.queue)

    def _check(self, play: Play) -> None:
        refused = self.folder / "refused.json"
        if refused.exists():
            refusals = json.loads(refused.read_text("utf-8"))
            remedies = dict.fromkeys(refusal["remedy"] for refusal in refusals.values())
            remedy = f"{'; '.join(remedies)}; or leave {', '.join(refusals)} out"
            raise UsageError("; ".join(refusal["observed"] for refusal in refusals.values()), remedy=remedy)
        self.losses.gone |= {each.host: each.message for each in play.failures if each.unreachable}
        play.check(
            "the playbook failed",
            remedy="fix the cause, with `hvlab provision` if the stack has changed, then run this again"
            if self.schedule.lab.prepared
            else "fix the cause, then run this again",
        )
