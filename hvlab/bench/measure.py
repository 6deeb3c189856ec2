"""Measure: run the cases that lack, and put each into the store as its files arrive."""

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
from hvlab.bench.progress import Display
from hvlab.bench.schedule import Schedule
from hvlab.datasets import Dataset, prepare
from hvlab.errors import CheckError, HvlabError, InterruptedRunError, UnreachableError, UsageError
from hvlab.lab.inventory import Lab
from hvlab.remote import probe
from hvlab.remote.playbook import Login, Play, reap
from hvlab.remote.trust import lab_trust
from hvlab.results.store import Run, Store, new_run_id
from hvlab.workloads.case import Case

_TICK_S = 0.1
# How long beyond a case's time Ansible may give no word: it reaches hosts and ends ranks meanwhile.
_PATIENCE_S = 120.0


def measure(plan: Schedule, store: Store, *, fresh: bool = False, resume: Run | None = None) -> str:
    """Run every case that lacks and return the run's id; ``resume`` is a run to go on with.

    Raises UnreachableError, UsageError (a backend is not built) and InterruptedRunError; a case that fails
    is a record, not an error.
    """
    login = _login(plan.lab)
    with _alone(store, plan.lab):
        left_off = resume or (None if fresh else store.unfinished(plan.spec.key(plan.lab)))
        done = store.done(left_off.run_id) if left_off else set()
        lacking = [case for case in plan.cases if case.id not in done]
        display = Display(len(plan.cases), done=len(plan.cases) - len(lacking))
        if left_off:
            display.note(
                f"resuming run {left_off.run_id}: {display.done} of {len(plan.cases)} cases are done"
            )
        known_hosts = login.trust.known_hosts if login.trust else None
        probe.probe([plan.lab.host(name) for name in plan.hosts], known_hosts=known_hosts)
        data = _prepared(lacking)
        plan = replace(plan, keys={name: found.key for name, found in data.items()})
        run_id = left_off.run_id if left_off else new_run_id()
        run = _Run(run_id, plan, store, login, display, lacking, tuple(data.values()))
        for dead in store.runs():
            if dead.lab == plan.lab.name and dead.state == "running":
                run.reap(dead.run_id)
                store.enter(dead.run_id, "interrupted")
        if left_off:
            run.take_in()
            store.enter(run.run_id, "running")
        else:
            store.create(
                run.run_id,
                lab=plan.lab.name,
                spec_key=plan.spec.key(plan.lab),
                spec=asdict(plan.spec),
                cases=[case.id for case in plan.cases],
            )
        run.go_on()
    return run.run_id


def _prepared(cases: Iterable[Case]) -> dict[str, Dataset]:
    """Return the data sets that the cases need, made ready on this machine."""
    names = dict.fromkeys(name for case in cases for name in workloads.data(case))
    return {name: prepare(name) for name in names}


@dataclass
class _Run:
    """A run in progress; ``lacking`` shrinks as the cases' files come."""

    run_id: str
    plan: Schedule
    store: Store
    login: Login
    display: Display
    lacking: list[Case]
    data: tuple[Dataset, ...] = ()
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.store.run_folder(self.run_id)

    def go_on(self) -> None:
        """Run what lacks; note in the store how it ended."""
        try:
            self._play()
        except UsageError:
            self.store.enter(self.run_id, "refused")
            raise
        except KeyboardInterrupt as error:
            self.store.enter(self.run_id, "interrupted")
            self.display.note("interrupted: ending what still runs on the hosts")
            self.reap(self.run_id)
            done = f"{self.display.done} of {len(self.plan.cases)} cases"
            raise InterruptedRunError(
                f"interrupted; run {self.run_id} keeps what is done, {done}",
                remedy="the same command again goes on from there (--fresh starts anew)",
            ) from error
        except BaseException:
            self.store.enter(self.run_id, "interrupted")
            raise
        self.store.enter(self.run_id, "finished")

    def reap(self, run_id: str) -> None:
        """End what a run left on the hosts; say where that could not be done."""
        faults = reap(self.login, run_id, self.plan.hosts)
        for fault in faults + containers.remove(self.plan.lab, run_id, self.store.run_folder(run_id)):
            self.display.note(f"{fault.host}: what the run left could not be ended: {fault.message}")

    def _play(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "refused.json").unlink(missing_ok=True)
        content = self.plan.content(self.lacking, self.run_id)
        content["certificate"] = self.login.certificate
        content["as_user"] = self.login.user if self.login.trust is None and os.geteuid() == 0 else None
        content["driver"] = os.getpid()
        (self.folder / "plan.json").write_text(json.dumps(content, indent=1), "utf-8")
        left_out = [asdict(left) for left in self.plan.left_out]
        (self.folder / "left-out.json").write_text(json.dumps(left_out, indent=1), "utf-8")
        variables = {
            "hvlab_plan": str(self.folder / "plan.json"),
            "hvlab_hosts": ",".join(self.plan.hosts),
            "hvlab_head": self.plan.hosts[0],
            "hvlab_data": [{"key": found.key, "folder": str(found.folder)} for found in self.data],
        }
        login = replace(self.login, port=self.plan.spec.ssh_port) if self.plan.spec.container else self.login
        with (
            self.display,
            containers.running(self.plan, self.run_id, self.folder, tell=self.display.note),
            Play("run-cases.yml", login, variables) as play,
        ):
            heard = time.monotonic()
            while not play.wait(_TICK_S):
                heard = time.monotonic() if self.take_in() else heard
                self._show()
                if time.monotonic() - heard > self.plan.spec.timeout + _PATIENCE_S:
                    play.stop()
                    raise HvlabError(f"Ansible fell silent:\n{play.last_words()}")
            self.take_in()
            self._judge(play)

    def _show(self) -> None:
        if not (self.folder / "facts.json").exists():
            self.display.step("reaching the hosts")
        elif self.lacking:
            self.display.step(f"{self.lacking[0].id} on {','.join(self.lacking[0].hosts)}")

    def take_in(self) -> int:
        """Put every case whose files have come into the store; return how many did."""
        before = len(self.lacking)
        for case in list(self.lacking):
            folder = self.folder / case.id
            if not folder.is_dir():
                break
            found = workloads.outcome(case, folder)
            self.store.add(recording.records(self.plan, self.run_id, self.folder, case, found))
            self.lacking.remove(case)
            status = recording.status(found)
            told = status if found.error is None else f"{status}: {found.error}"
            self.display.finished(case.id, case.hosts, found.seconds, told)
        return before - len(self.lacking)

    def _judge(self, play: Play) -> None:
        """Raise what ended the playbook before its end."""
        refused = self.folder / "refused.json"
        if refused.exists():
            told = json.loads(refused.read_text("utf-8"))
            remedies = dict.fromkeys(why["remedy"] for why in told.values())
            remedy = f"{'; '.join(remedies)}; or leave {', '.join(told)} out"
            raise UsageError("; ".join(why["seen"] for why in told.values()), remedy=remedy)
        text = "\n".join(f"  {fault.host}: {fault.message.strip()}" for fault in play.faults)
        if any(fault.unreachable for fault in play.faults):
            remedy = "bring it back; the same command goes on from there"
            raise UnreachableError(f"a host was lost:\n{text}", remedy=remedy)
        if play.faults:
            remedy = (
                "mend what it tells, with `hvlab provision` where the stack is not as it was; then this again"
            )
            raise CheckError(f"the playbook failed:\n{text}", remedy=remedy)
        if self.lacking:
            seen = f"Ansible ended with {play.rc}, {len(self.lacking)} cases were not run"
            raise HvlabError(f"{seen}:\n{play.last_words()}")


def _login(lab: Lab) -> Login:
    """Return the keys the driver logs in with, the certificate good for days."""
    user = str(lab.vars.get("lab_user_name", "hvlab"))
    if lab.local:
        return Login(lab, None, user)
    trust = lab_trust(lab.name)
    if trust is None or not trust.known_hosts.is_file():
        probe.probe(lab.hosts)  # a host that does not answer is the nearer reason
        seen = f"the hosts of lab {lab.name} do not know this machine yet"
        raise CheckError(seen, remedy="run `hvlab provision` first")
    trust.renew_user_certificate(user)
    return Login(lab, trust, user)


@contextmanager
def _alone(store: Store, lab: Lab) -> Iterator[None]:
    """Hold the lab for one measurement at a time."""
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
        file = (store.folder / f".{lab.name}.lock").open("a+", encoding="utf-8")
    except OSError as error:
        seen = f"the results folder {store.folder} cannot be written: {error.strerror}"
        raise UsageError(seen, remedy="choose another with --results") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            seen = f"lab {lab.name} is being measured by process {file.read().strip() or '?'}"
            raise UsageError(
                seen, remedy="wait for its end: two at once would spoil each other's figures"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
