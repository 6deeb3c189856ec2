"""The bench, with hosts and Ansible replaced by a stand-in that writes a case's files."""

import json
from pathlib import Path

import pytest

from hvlab import bench
from hvlab.errors import CheckError, InterruptedRunError, UnreachableError, UsageError
from hvlab.matrix import expand
from hvlab.results import Store
from hvlab.runner import Fault
from hvlab.schedule import Schedule
from tests.unit.labs import lab, spec
from tests.unit.test_workloads import ENDED, RESULT

FACTS = {"ansible_local": {"hvlab_horovod": {"variants": {"cpu": {"operations": ["MPI"]}}}}}


class FakeTrust:
    def __init__(self, folder: Path) -> None:
        self.known_hosts = folder / "known_hosts"
        self.certificate = folder / "cert"
        self.known_hosts.write_text("")
        self.certificate.write_text("cert\n")

    def renew_user_certificate(self, user: str) -> bool:
        return False


class FakePlay:
    """Runs one case a tick; ``script`` maps a case's number in this play to what happens instead."""

    script: dict[int, object] = {}
    plans: list[dict] = []

    def __init__(self, playbook, login, variables):
        self.plan = json.loads(Path(variables["hvlab_plan"]).read_text())
        self.folder = Path(variables["hvlab_plan"]).parent
        self.faults: list[Fault] = []
        self.rc = 0
        self.left = list(self.plan["cases"])
        self.number = 0
        FakePlay.plans.append(self.plan)

    def __enter__(self):
        (self.folder / "facts.json").write_text(json.dumps(dict.fromkeys(self.plan["hosts"], FACTS)))
        return self

    def __exit__(self, *raised):
        pass

    def last_words(self):
        return "last words"

    def wait(self, seconds):
        if not self.left:
            return True
        self.number += 1
        event = FakePlay.script.get(self.number, {})
        if isinstance(event, type) and issubclass(event, BaseException):
            raise event
        if isinstance(event, Fault):
            self.faults.append(event)
            return True
        name = self.left.pop(0)
        (self.folder / name).mkdir()
        (self.folder / name / "case.json").write_text(json.dumps(ENDED | event))
        (self.folder / name / "result.json").write_text(json.dumps(RESULT))
        return False


@pytest.fixture
def world(monkeypatch, tmp_path):
    """Replace trust, probe, Ansible and the reaper; return the list of reaped runs."""
    reaped: list[str] = []
    FakePlay.script, FakePlay.plans = {}, []
    monkeypatch.setattr(bench, "lab_trust", lambda name: FakeTrust(tmp_path))
    monkeypatch.setattr(bench.probe, "probe", lambda hosts, known_hosts: None)
    monkeypatch.setattr(bench, "Play", FakePlay)
    monkeypatch.setattr(bench, "reap", lambda login, run_id, hosts: reaped.append(run_id) or [])
    return reaped


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def plan(repeats: int = 3, *, asked: bool = True) -> Schedule:
    wanted = spec("mpi", repeats=repeats)
    return Schedule(wanted, lab(), tuple(expand(wanted, lab())[0]), asked)


def test_every_case_becomes_records(world, store):
    run_id = bench.measure(plan(), store)
    records = store.records(run_id)
    assert len({record.case_id for record in records}) == 3
    assert len(records) == 3 * 2 * 6
    assert {record.status for record in records} == {"ok"}
    assert records[0].hosts == ("n1", "n2")
    assert records[0].stack == {"torch": "2.9.0", "os": "None None"}
    assert records[0].raw_path == f"runs/{run_id}/allreduce-mpi-2x1-r1"
    assert store.run().state == "finished"


def test_a_failed_case_is_one_record_and_the_rest_goes_on(world, store):
    FakePlay.script = {2: {"rc": 1, "error": "boom"}}
    run_id = bench.measure(plan(), store)
    failed = [record for record in store.records(run_id) if record.status == "failed"]
    assert [(record.case_id, record.metric, record.error) for record in failed] == [
        ("allreduce-mpi-2x1-r2", None, "boom")
    ]
    assert store.overview()[0] | {"run_id": "", "started_at": ""} == {
        "run_id": "",
        "started_at": "",
        "cases": 3,
        "ok": 2,
        "failed": 1,
        "state": "finished",
        "lab": "t",
    }


def test_an_interrupted_run_goes_on_with_what_lacks(world, store):
    FakePlay.script = {2: KeyboardInterrupt}
    with pytest.raises(InterruptedRunError, match="1 of 3"):
        bench.measure(plan(), store)
    first = store.run()
    assert (first.state, world) == ("interrupted", [first.run_id])
    FakePlay.script = {}
    assert bench.measure(plan(), store) == first.run_id
    assert list(FakePlay.plans[1]["cases"]) == ["allreduce-mpi-2x1-r2", "allreduce-mpi-2x1-r3"]
    assert store.run().state == "finished"
    assert bench.measure(plan(), store) != first.run_id


def test_fresh_starts_anew(world, store):
    FakePlay.script = {1: KeyboardInterrupt}
    with pytest.raises(InterruptedRunError):
        bench.measure(plan(), store)
    FakePlay.script = {}
    assert bench.measure(plan(), store, fresh=True) != store.runs()[0].run_id


def test_what_a_killed_bench_left_is_ended_first(world, store):
    store.create("dead", lab="t", spec_key="other", spec={}, cases=["x"])
    store.create("elsewhere", lab="u", spec_key="other", spec={}, cases=["x"])
    bench.measure(plan(), store)
    assert world == ["dead"]
    assert {run.run_id: run.state for run in store.runs()}["dead"] == "interrupted"


def test_a_lost_host_keeps_the_run_for_later(world, store):
    FakePlay.script = {2: Fault("n1", "gone", unreachable=True)}
    with pytest.raises(UnreachableError, match="n1: gone"):
        bench.measure(plan(), store)
    assert store.run().state == "interrupted"


def test_a_playbook_that_fails(world, store):
    FakePlay.script = {1: Fault("n1", "no programs", unreachable=False)}
    with pytest.raises(CheckError, match="no programs"):
        bench.measure(plan(), store)


def test_a_backend_that_is_not_built_is_refused(world, store, monkeypatch):
    def refuse(self, seconds):
        refused = {"seen": "built without mpi on n2", "remedy": "build it"}
        (self.folder / "refused.json").write_text(json.dumps({"mpi": refused}))
        return True

    monkeypatch.setattr(FakePlay, "wait", refuse)
    with pytest.raises(UsageError, match="built without mpi on n2") as caught:
        bench.measure(plan(), store)
    assert caught.value.remedy == "build it; or leave mpi out"
    assert store.run().state == "refused"
    assert store.unfinished(plan().spec.key(lab())) is None


def test_two_at_once_are_refused(world, store):
    with bench._alone(store, lab()), pytest.raises(UsageError, match="is being measured by process"):
        bench.measure(plan(), store)


def test_a_lab_without_keys(monkeypatch, store):
    monkeypatch.setattr(bench, "lab_trust", lambda name: None)
    monkeypatch.setattr(bench.probe, "probe", lambda hosts: None)
    with pytest.raises(CheckError, match="do not know this machine"):
        bench.measure(plan(), store)
    assert store.runs() == []


def test_a_lab_without_keys_whose_hosts_are_down(monkeypatch, store):
    def fail(hosts):
        raise UnreachableError("n1 is off")

    monkeypatch.setattr(bench, "lab_trust", lambda name: None)
    monkeypatch.setattr(bench.probe, "probe", fail)
    with pytest.raises(UnreachableError, match="n1 is off"):
        bench.measure(plan(), store)


def test_an_unreachable_host_leaves_no_run(world, store, monkeypatch):
    def fail(hosts, known_hosts):
        raise UnreachableError("n2: no answer")

    monkeypatch.setattr(bench.probe, "probe", fail)
    with pytest.raises(UnreachableError):
        bench.measure(plan(), store)
    assert store.runs() == []
