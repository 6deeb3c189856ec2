"""The bench, with hosts and Ansible replaced by a stand-in that writes a case's files."""

import errno
import json
import os
import stat
import time
from pathlib import Path

import pytest

from hvlab.base.errors import CheckError, HvlabError, InterruptedRunError, UnreachableError, UsageError
from hvlab.bench import measure
from hvlab.bench.schedule import Schedule
from hvlab.remote import playbook
from hvlab.remote.playbook import HostFailure, Play
from hvlab.results.lock import measuring
from hvlab.results.store import Store
from hvlab.workloads.datasets import Dataset
from tests.unit.labs import lab, spec
from tests.unit.test_workloads import ENDED, RESULT, TRAINED

FACTS = {"ansible_local": {"hvlab_horovod": {"variants": {"cpu": {"operations": ["MPI"]}}}}}


class FakeTrust:
    def __init__(self, folder: Path) -> None:
        self.known_hosts = folder / "known_hosts"
        self.certificate = folder / "cert"
        # What is not there is not damaged.
        self.host_ca = self.user_ca = self.identity = folder / "absent"
        self.known_hosts.write_text("")
        self.certificate.write_text("cert\n")

    def renew_user_certificate(self, user: str, **_: object) -> bool:
        return False


class FakePlay:
    """Runs one case a tick; ``script`` maps a case's number in this play to what happens instead."""

    script: dict[int, object] = {}
    plans: list[dict] = []
    variables: dict = {}
    result: dict = RESULT

    def __init__(self, playbook, login, variables):
        self.plan = json.loads(Path(variables["hvlab_plan"]).read_text())
        self.folder = Path(variables["hvlab_plan"]).parent
        self.failures: list[HostFailure] = []
        self.rc = 0
        self.left = list(self.plan["cases"])
        self.number = 0
        FakePlay.plans.append(self.plan)
        FakePlay.variables = variables

    def __enter__(self):
        (self.folder / "facts.json").write_text(json.dumps(dict.fromkeys(self.plan["hosts"], FACTS)))
        return self

    def __exit__(self, *raised):
        pass

    def last_words(self):
        return "last words"

    _error = None
    finish = Play.finish
    check = Play.check

    def wait(self, seconds):
        if not self.left:
            return True
        self.number += 1
        event = FakePlay.script.get(self.number, {})
        if isinstance(event, type) and issubclass(event, BaseException):
            raise event
        if isinstance(event, HostFailure):
            self.failures.append(event)
            return True
        name = self.left.pop(0)
        (self.folder / name).mkdir()
        (self.folder / name / "case.json").write_text(json.dumps(ENDED | event))
        (self.folder / name / "result.json").write_text(json.dumps(FakePlay.result))
        return False


@pytest.fixture
def world(monkeypatch, tmp_path):
    """Replace trust, probe, Ansible and the reaper; return the list of reaped runs."""
    reaped: list[str] = []
    FakePlay.script, FakePlay.plans, FakePlay.result = {}, [], RESULT
    monkeypatch.setattr(playbook, "lab_trust", lambda name: FakeTrust(tmp_path))
    monkeypatch.setattr(measure.probe, "probe", lambda hosts, known_hosts: None)
    monkeypatch.setattr(measure, "Play", FakePlay)
    monkeypatch.setattr(measure, "reap", lambda login, run_id, hosts: reaped.append(run_id) or [])
    return reaped


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def plan(repeats: int = 3, **changes) -> Schedule:
    return Schedule.of(spec("mpi", repeats=repeats, **changes), lab())


def test_a_secret_is_in_the_plan_alone_which_nobody_else_reads(world, store):
    run_id = measure.measure(plan(1, env="HF_TOKEN=hf-aaaa"), store)
    (record, *_) = store.records(run_id)
    assert (record.status, record.params["env"]) == ("ok", "HF_TOKEN=***")
    kept = [path for path in store.folder.rglob("*") if path.is_file() and b"hf-aaaa" in path.read_bytes()]
    assert kept == [store.run_folder(run_id) / "plan.json"]
    assert stat.S_IMODE(kept[0].stat().st_mode) == 0o600


def test_every_case_becomes_records(world, store):
    run_id = measure.measure(plan(), store)
    records = store.records(run_id)
    assert len({record.case_id for record in records}) == 3
    assert len(records) == 3 * 2 * 9
    assert {record.status for record in records} == {"ok"}
    assert records[0].hosts == ("n1", "n2")
    assert records[0].stack == {"torch": "2.9.0", "os": "None None"}
    assert records[0].raw_path == f"runs/{run_id}/allreduce-mpi-2x1-r1"
    assert store.run().state == "finished"


def test_a_record_tells_every_parameter_but_the_list_of_sizes(world, store):
    records = store.records(measure.measure(plan(1, cycle_time=2.5), store))
    assert records[0].params == {
        "size_bytes": 1024,
        **{
            "iterations": 25,
            "dtype": "float32",
            "op": "sum",
            "form": "single",
            "tensors": 1,
            "in_place": True,
        },
        **{"fusion_threshold": 2**27, "cycle_time": 2.5, "cache_capacity": 1024, "threads": 1},
        **{"hierarchical_allreduce": False, "device": "cpu"},
    }
    FakePlay.script = {1: {"rc": 1, "error": "boom"}}
    (failed,) = store.records(measure.measure(plan(1, cycle_time=2.5), store))
    assert failed.params == {name: value for name, value in records[0].params.items() if name != "size_bytes"}


def test_what_was_left_out_stands_in_the_runs_folder(world, store):
    run_id = measure.measure(plan(1, hosts=(2, 9)), store)
    assert json.loads((store.run_folder(run_id) / "left-out.json").read_text()) == [
        {"case": "allreduce-mpi-9x1-r1", "reason": "9 hosts requested, the lab has 3"}
    ]


def test_a_training_and_its_data(world, store, monkeypatch, tmp_path):
    asked = []

    def prepare(name):
        asked.append(name)
        return Dataset(name, tmp_path / name, f"key-of-{name}")

    monkeypatch.setattr(measure, "prepare", prepare)
    FakePlay.result = TRAINED
    records = store.records(measure.measure(plan(2, workload="mnist", batch=(64, 128)), store))
    assert asked == ["digits"]
    assert FakePlay.variables["hvlab_data"] == [{"key": "key-of-digits", "folder": str(tmp_path / "digits")}]
    for case in FakePlay.plans[0]["cases"].values():
        assert case["argv"][case["argv"].index("--data") + 1] == "~/.hvlab/data/key-of-digits"
    assert {record.status for record in records} == {"ok"}
    assert {record.params["data"] for record in records} == {"digits"}
    hosts = {record.params["host"] for record in records if record.metric == "host_compute_time"}
    assert hosts == {"n1", "n2"}


def test_data_in_the_cache_keep_it_below_its_limit(world, store, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HVLAB_CACHE_LIMIT", "1M")
    old = tmp_path / "cache/packs/old-k.tar.gz"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x" * 2_000_000)
    os.utime(old, (time.time() - 3 * 86_400,) * 2)
    FakePlay.result = TRAINED
    measure.measure(plan(1, workload="mnist"), store)
    assert not old.exists()
    assert len([path for path in (tmp_path / "cache/datasets").iterdir() if path.is_dir()]) == 1
    assert "old-k.tar.gz went from the cache" in capsys.readouterr().err


def test_data_that_cannot_be_had_leaves_no_run(world, store, monkeypatch):
    def prepare(name):
        raise UsageError(f"no {name}")

    monkeypatch.setattr(measure, "prepare", prepare)
    with pytest.raises(UsageError, match="no digits"):
        measure.measure(plan(workload="mnist"), store)
    assert store.runs() == []


def test_without_data_none_is_brought(world, store):
    measure.measure(plan(1), store)
    assert FakePlay.variables["hvlab_data"] == []


def test_a_failed_case_is_one_record_and_the_rest_goes_on(world, store):
    FakePlay.script = {2: {"rc": 1, "error": "boom"}}
    run_id = measure.measure(plan(), store)
    failed = [record for record in store.records(run_id) if record.status == "failed"]
    assert [(record.case_id, record.metric, record.error) for record in failed] == [
        (plan().cases[1].id, None, "boom")
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


def test_a_host_that_sends_nonsense_fails_its_cases_and_the_run_goes_on(world, store):
    nested = {**RESULT, "sizes": {"size_bytes": [[float("nan")]]}}
    FakePlay.result = nested
    run_id = measure.measure(plan(), store)
    records = store.records(run_id)
    assert {record.status for record in records} == {"failed"}
    assert all("n1: its result.json: " in record.error for record in records)
    assert store.run(run_id).state == "finished"


def test_an_interrupted_run_goes_on_with_what_lacks(world, store):
    FakePlay.script = {2: KeyboardInterrupt}
    with pytest.raises(InterruptedRunError, match="1 of 3"):
        measure.measure(plan(), store)
    first = store.run()
    assert (first.state, world) == ("interrupted", [first.run_id])
    FakePlay.script = {}
    assert measure.measure(plan(), store) == first.run_id
    assert list(FakePlay.plans[1]["cases"]) == [case.id for case in plan().cases[1:]]
    assert store.run().state == "finished"
    assert measure.measure(plan(), store) != first.run_id


def test_in_a_slurm_job_an_interrupted_run_names_the_hosts_that_resume_it(world, store):
    for step, named in (([], False), (["srun", "--nodelist"], True)):
        FakePlay.script = {2: KeyboardInterrupt}
        with pytest.raises(InterruptedRunError) as raised:
            measure.measure(Schedule.of(spec("mpi", repeats=3), lab(hvlab_step=step)), store, restart=True)
        assert ("sbatch --nodelist=n1,n2,n3" in raised.value.remedy) is named


def test_a_named_run_goes_on_even_if_another_was_begun_since(world, store):
    FakePlay.script = {2: KeyboardInterrupt}
    for _ in range(2):
        with pytest.raises(InterruptedRunError):
            measure.measure(plan(), store, restart=True)
    first, second = store.runs()
    FakePlay.script = {}
    assert measure.measure(plan(), store, resume=first) == first.run_id
    assert {run.run_id: run.state for run in store.runs()} == {
        first.run_id: "finished",
        second.run_id: "interrupted",
    }


def test_fresh_starts_anew(world, store):
    FakePlay.script = {1: KeyboardInterrupt}
    with pytest.raises(InterruptedRunError):
        measure.measure(plan(), store)
    FakePlay.script = {}
    assert measure.measure(plan(), store, restart=True) != store.runs()[0].run_id


def test_what_a_killed_bench_left_is_ended_first(world, store):
    store.create("dead", lab="t", spec_key="other", spec={}, cases=["x"])
    store.create("elsewhere", lab="u", spec_key="other", spec={}, cases=["x"])
    measure.measure(plan(), store)
    assert world == ["dead"]
    assert {run.run_id: run.state for run in store.runs()}["dead"] == "interrupted"


def test_a_lost_host_keeps_the_run_for_later(world, store):
    FakePlay.script = {2: HostFailure("n1", "gone", unreachable=True)}
    with pytest.raises(UnreachableError, match="n1: gone"):
        measure.measure(plan(), store)
    assert store.run().state == "interrupted"


def lose(monkeypatch, after, **hosts):
    """These hosts are lost during the case after that many, in the first play."""
    first = FakePlay.wait

    def wait(self, seconds):
        if len(FakePlay.plans) > 1 or self.number < after or not self.left:
            return first(self, seconds)
        told = {"case": self.left[0], "hosts": hosts}
        (self.folder / "lost.json").write_text(json.dumps(told))
        return True

    monkeypatch.setattr(FakePlay, "wait", wait)


def test_a_lost_host_that_is_not_the_head_stops_its_own_cases_only(world, store, monkeypatch, capsys):
    lose(monkeypatch, 1, n3="10.0.0.3:22: no answer")
    schedule = plan(hosts=(1, 2, 3), repeats=2)
    with pytest.raises(
        UnreachableError, match=r"n3 was lost \(10.0.0.3:22: no answer\): . cases? (is|are) left"
    ):
        measure.measure(schedule, store)
    run = store.run()
    assert run.state == "interrupted"
    done = {record.case_id for record in store.records(run.run_id)}
    assert done >= {case.id for case in schedule.cases if "n3" not in case.hosts}
    assert "n3" not in FakePlay.plans[1]["hosts"]
    assert "n3 was lost under" in capsys.readouterr().err
    # Its ranks may still run there: they are ended before the next case, when it is back.
    assert world == [run.run_id]
    assert measure.measure(schedule, store) == run.run_id
    assert world == [run.run_id] * 2
    assert store.run().state == "finished"
    measure.measure(plan(repeats=1), store)
    assert world == [run.run_id] * 2


def test_a_playbook_that_fails(world, store):
    FakePlay.script = {1: HostFailure("n1", "no programs", unreachable=False)}
    with pytest.raises(CheckError, match="no programs"):
        measure.measure(plan(), store)
    assert store.run().state == "interrupted"
    assert world == [store.run().run_id]


def test_an_ansible_that_is_killed_leaves_no_rank(world, store, monkeypatch):
    """Its workers and the ranks would go on, and the next bench would be refused."""

    def kill(self, seconds):
        self.rc = None
        return True

    monkeypatch.setattr(FakePlay, "wait", kill)
    with pytest.raises(HvlabError, match="Ansible was killed:") as caught:
        measure.measure(plan(), store)
    assert "run the same command again" in caught.value.remedy
    assert world == [store.run().run_id]


def test_whatever_ends_a_run_ends_its_processes(world, store):
    """As rich does, where the reader of its output is gone: `hvlab bench | head`."""
    for event in (SystemExit, BrokenPipeError):
        FakePlay.script = {2: event}
        with pytest.raises(event):
            measure.measure(plan(), store, restart=True)
        assert store.run().state == "interrupted"
        assert world.pop() == store.run().run_id


def test_a_host_that_another_run_has_gets_one_sentence_and_its_remedy(world, store, monkeypatch, capsys):
    monkeypatch.setattr(FakePlay, "__enter__", lambda self: self)
    message = "ann measures this host; what to do: wait for its end"
    FakePlay.script = {1: HostFailure("n1", message, unreachable=False)}
    with pytest.raises(CheckError) as caught:
        measure.measure(plan(), store)
    assert str(caught.value).count("n1: ann") == 1
    assert not caught.value.remedy
    assert not world
    assert "ending the processes" not in capsys.readouterr().err
    assert store.run().state == "interrupted"


def test_a_folder_that_cannot_be_written_keeps_no_host_from_being_reaped(world, store, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    FakePlay.script = {2: SystemExit}
    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(SystemExit):
        measure.measure(plan(), store)
    assert world == [store.run().run_id]


def test_what_could_not_be_ended_is_ended_by_the_next_bench(world, store, monkeypatch, capsys):
    def fail(login, run_id, hosts):
        raise HvlabError("No space left on device")

    FakePlay.script = {2: KeyboardInterrupt}
    with monkeypatch.context() as patch:
        patch.setattr(measure, "reap", fail)
        with pytest.raises(InterruptedRunError):
            measure.measure(plan(), store)
    assert "could not be ended: No space left on device" in capsys.readouterr().err
    FakePlay.script = {}
    measure.measure(plan(repeats=1), store, restart=True)
    assert world == [store.runs()[0].run_id]


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("why", "ended"),
    [
        ("Unable to confirm allocation for job 9: Job is pending execution", True),
        ("Unable to confirm allocation for job 9: Invalid job id specified", True),
        # src/srun/libsrun/allocate.c of Slurm, for a job whose time is over.
        ("Slurm job 9 has expired", True),
        ("Unable to confirm allocation for job 9: Unable to contact slurm controller", False),
    ],
)
def test_what_slurm_ended_with_its_job_needs_no_further_end(store, monkeypatch, capsys, why, ended):
    """A job that is requeued or cancelled takes its steps along."""
    lost = HostFailure("n2", f"reaches no host: {why}", unreachable=True)
    FakePlay.script = {2: KeyboardInterrupt}
    monkeypatch.setattr(measure, "reap", lambda login, run_id, hosts: [lost])
    with pytest.raises(InterruptedRunError):
        measure.measure(plan(), store)
    assert ("could not be ended" in capsys.readouterr().err) is not ended


def test_a_backend_that_is_not_built_is_refused(world, store, monkeypatch):
    def refuse(self, seconds):
        refused = {"observed": "built without mpi on n2", "remedy": "build it"}
        (self.folder / "refused.json").write_text(json.dumps({"mpi": refused}))
        return True

    monkeypatch.setattr(FakePlay, "wait", refuse)
    with pytest.raises(UsageError, match="built without mpi on n2") as caught:
        measure.measure(plan(), store)
    assert caught.value.remedy == "build it; or leave mpi out"
    assert store.run().state == "refused"
    assert store.unfinished(plan().spec.key(lab())) is None


def test_two_at_once_are_refused(world, store):
    with measuring(store.folder, lab().name), pytest.raises(UsageError, match="is being measured by process"):
        measure.measure(plan(), store)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_results_folder_without_locks_is_named(tmp_path, monkeypatch, number):
    """Lustre without the mount option flock, NFS without lockd."""

    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(UsageError, match=f"{tmp_path} .*has no locks: {os.strerror(number)}") as caught:
        measuring(tmp_path, "t").__enter__()
    assert "--results" in caught.value.remedy


def test_a_lab_without_keys(monkeypatch, store):
    monkeypatch.setattr(playbook, "lab_trust", lambda name: None)
    monkeypatch.setattr(playbook, "probe", lambda hosts: None)
    with pytest.raises(CheckError, match="do not trust this machine"):
        measure.measure(plan(), store)
    assert store.runs() == []


def test_a_lab_without_keys_whose_hosts_are_down(monkeypatch, store):
    def fail(hosts):
        raise UnreachableError("n1 is off")

    monkeypatch.setattr(playbook, "lab_trust", lambda name: None)
    monkeypatch.setattr(playbook, "probe", fail)
    with pytest.raises(UnreachableError, match="n1 is off"):
        measure.measure(plan(), store)


def test_an_unreachable_host_leaves_no_run(world, store, monkeypatch):
    def fail(hosts, known_hosts):
        raise UnreachableError("n2: no answer")

    monkeypatch.setattr(measure.probe, "probe", fail)
    with pytest.raises(UnreachableError):
        measure.measure(plan(), store)
    assert store.runs() == []
