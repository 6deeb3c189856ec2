"""The allocation of a run, with Slurm's commands replaced by recorded answers."""

import json
import re
import subprocess

import pytest

from hvlab.base.errors import CheckError, UnreachableError, UsageError
from hvlab.bench import allocation, measure
from hvlab.bench.progress import Display
from hvlab.bench.schedule import Schedule
from hvlab.remote import shell
from hvlab.remote.playbook import Login
from tests.unit.labs import lab, spec
from tests.unit.test_bench import FakePlay, store, world

__all__ = ["store", "world"]


class FakeShell:
    """Slurm's commands: ``salloc`` is a line of a shell, the others give ``answers`` by their name."""

    salloc = "echo 'salloc: Granted job allocation 7' >&2"
    answers: dict[str, list[str]] = {}
    asked: list[list[str]] = []

    def __init__(self, login, host):
        self.host = host

    def start(self, words):
        FakeShell.asked.append([self.host.name, *words])
        return subprocess.Popen(["sh", "-c", FakeShell.salloc], stderr=subprocess.PIPE, text=True)

    def run(self, words, *, seconds):
        FakeShell.asked.append([self.host.name, *words])
        answers = FakeShell.answers.get(words[0], [""])
        return subprocess.CompletedProcess(words, 0, answers.pop(0) if answers[1:] else answers[0], "")


@pytest.fixture
def slurm(monkeypatch):
    """Replace Slurm; return the class that stands for it."""
    FakeShell.salloc, FakeShell.answers, FakeShell.asked = "echo 'Granted job allocation 7' >&2", {}, []
    monkeypatch.setattr(allocation, "Shell", FakeShell)
    monkeypatch.setattr(allocation, "_LOOK_S", 0.2)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return FakeShell


def plan(*backends, **changes):
    return Schedule.of(spec(*(backends or ("mpi",)), launcher="srun", **changes), lab())


def granting(schedule, folder):
    login = Login(lab(), None, "x")
    return allocation.allocate(schedule, schedule.cases, folder, login, Display(1), seconds=300)


def commands(slurm):
    """The commands in their order, without the looks at the queue, of which a busy machine makes more."""
    return [words[1] for words in slurm.asked if words[1] not in ("squeue", "sinfo")]


def test_hosts_are_granted_and_given_back(slurm, tmp_path):
    with granting(plan(hosts=(1, 2)), tmp_path) as granted:
        assert granted.env == {"SLURM_JOB_ID": "7"}
        assert commands(slurm) == ["salloc"]
        (asked,) = [words for words in slurm.asked if words[1] == "salloc"]
        assert "--nodelist=n1,n2" in asked
        # Twice 300 s, and one case of 900 s.
        assert "--time=25" in asked
    assert ["n1", "scancel", f"--name=hvlab-{tmp_path.name}"] in slurm.asked
    assert not (tmp_path / "allocation.json").exists()


def test_no_more_time_is_asked_for_than_the_partition_gives(slurm, tmp_path):
    slurm.answers["sinfo"] = ["20:00\n"]
    with granting(plan(), tmp_path):
        assert "--time=20" in slurm.asked[-1]


def test_a_request_that_waits_for_long_is_looked_at_less_often(slurm):
    asked = allocation._Request(None, ["n1"], "R", Display(1), 600.0, started=1000.0)
    after = {waited: asked._pause(1000.0 + waited) for waited in (0.2, 5, 40, 300, 595, 599.9)}
    assert after == pytest.approx({0.2: 0.2, 5: 0.5, 40: 4, 300: 30, 595: 5, 599.9: 0.2})
    without = allocation._Request(None, ["n1"], "R", Display(1), 0.0, started=1000.0)
    assert without._pause(1000.0 + 7200) == 30


def test_the_nodes_are_asked_for_only_where_the_job_waits_for_them(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(allocation, "_LOOK_S", 0.05)
    slurm.salloc = "sleep 0.4; echo 'Granted job allocation 7' >&2"
    slurm.answers["squeue"] = ["7|PENDING|Priority\n"] * 20 + [""]
    with granting(plan(), tmp_path):
        shown = [words for words in slurm.asked if words[1] == "sinfo" and "--Node" in words]
    assert shown == []


@pytest.mark.parametrize(
    ("sinfo", "error"),
    [
        ("n2|drained|hvlab health: no ib0\n", "n2: Slurm reports it as drained"),
        ("", "no longer in Slurm's queue"),
    ],
)
def test_a_job_that_ended_before_its_hosts_were_ready_is_not_waited_for(
    slurm, tmp_path, monkeypatch, sinfo, error
):
    """Seen with Slurm 22.05: a prolog failed, the job was cancelled, and salloc went on waiting."""
    monkeypatch.setattr(allocation, "_ABSENT_S", 0.5)
    slurm.salloc = "echo 'salloc: Granted job allocation 7' >&2; exec sleep 20"
    slurm.answers = {"squeue": ["7|RUNNING|None\n", ""], "sinfo": ["", sinfo]}
    with pytest.raises(CheckError, match=error):
        granting(plan(), tmp_path).__enter__()
    assert "scancel" in commands(slurm)


def test_a_slurmctld_that_is_away_has_no_say_about_the_queue(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(allocation, "_ABSENT_S", 0.2)
    slurm.salloc = "sleep 1; echo 'salloc: Granted job allocation 7' >&2"
    answers_of = slurm.run

    def run(self, words, *, seconds):
        done = answers_of(self, words, seconds=seconds)
        away = words[0] == "squeue" and "scancel" not in commands(slurm)
        return (
            subprocess.CompletedProcess(words, 1, "", "Unable to contact slurm controller") if away else done
        )

    monkeypatch.setattr(slurm, "run", run)
    with granting(plan(), tmp_path) as granted:
        assert granted.job == "7"


@pytest.mark.parametrize("error", [KeyboardInterrupt, CheckError("x")])
def test_they_are_given_back_whatever_happens(slurm, tmp_path, error):
    with pytest.raises((KeyboardInterrupt, CheckError)), granting(plan(), tmp_path):
        raise error
    assert "scancel" in commands(slurm)


def test_it_is_cancelled_until_the_queue_is_empty(slurm, tmp_path):
    with granting(plan(), tmp_path):
        slurm.answers["squeue"] = ["7|RUNNING|None\n", "7|COMPLETING|None\n"]
    assert commands(slurm) == ["salloc", "scancel", "scancel"]


def test_where_the_first_host_does_not_answer_another_one_cancels(slurm, tmp_path, monkeypatch, capsys):
    """What is on the others would stay until its time is over."""
    answers_of = slurm.run

    def run(self, words, *, seconds):
        done = answers_of(self, words, seconds=seconds)
        return subprocess.CompletedProcess(words, 255, "", "n1: No route") if self.host.name == "n1" else done

    with granting(plan(hosts=(1, 2)), tmp_path):
        monkeypatch.setattr(slurm, "run", run)
    assert ["n2", "scancel", f"--name=hvlab-{tmp_path.name}"] in slurm.asked
    assert not (tmp_path / "allocation.json").exists()
    assert "still be in the queue" not in capsys.readouterr().err


def test_where_no_host_answers_the_run_keeps_its_mark(slurm, tmp_path, monkeypatch, capsys):
    with granting(plan(hosts=(1, 2)), tmp_path):
        gone = subprocess.CompletedProcess([], 255, "", "No route to host")
        monkeypatch.setattr(slurm, "run", lambda self, words, *, seconds: gone)
    assert (tmp_path / "allocation.json").exists()
    said = capsys.readouterr().err
    assert f"n1, n2: the allocation hvlab-{tmp_path.name} may still be in the queue: No route to host" in said


def test_nothing_is_asked_for_ranks_that_others_start(slurm, tmp_path):
    schedule = Schedule.of(spec("mpi"), lab())
    with granting(schedule, tmp_path) as granted:
        assert granted is None
    assert slurm.asked == []


def test_the_time_in_the_queue_is_shown(slurm, tmp_path, capsys):
    slurm.salloc = "sleep 0.5; echo 'Granted job allocation 7' >&2"
    slurm.answers["squeue"] = ["7|PENDING|Resources\n"] * 3 + [""]
    with granting(plan(), tmp_path) as granted:
        assert granted.waited >= 0.5
    said = capsys.readouterr().err
    assert "job 7 waits in the queue: Resources" in said
    assert "Slurm grants n1,n2 as job 7 after" in said


@pytest.mark.parametrize(
    ("reason", "error", "limit"),
    [
        ("Resources", "--queue-limit is 1 s", 1),
        ("PartitionConfig", "would wait for ever", 0),
        ("ReqNodeNotAvail, UnavailableNodes:n2", "n2: Slurm reports it as drained", 0),
    ],
)
def test_a_request_that_waits_too_long_leaves_the_queue(slurm, tmp_path, reason, error, limit):
    sinfo = "n2|drained|bad disk\n"
    slurm.salloc = "exec sleep 30"
    pending = f"7|PENDING|{reason}\n"

    def run(self, words, *, seconds):
        slurm.asked.append([self.host.name, *words])
        text = {"squeue": "" if "scancel" in commands(slurm) else pending, "sinfo": sinfo}.get(words[0], "")
        return subprocess.CompletedProcess(words, 0, text, "")

    slurm_run, slurm.run = slurm.run, run
    try:
        with pytest.raises((CheckError, UsageError), match=error):
            granting(plan(queue_limit=limit), tmp_path).__enter__()
    finally:
        slurm.run = slurm_run
    assert "scancel" in commands(slurm)


def test_a_request_that_slurm_does_not_take_waits_no_longer_than_the_limit(slurm, tmp_path):
    slurm.salloc = "echo 'salloc: error: Slurm job queue full, sleeping and retrying.' >&2; exec sleep 30"
    with pytest.raises(CheckError, match=r"has not taken the request for \d+ s; --queue-limit is 1 s"):
        granting(plan(queue_limit=1), tmp_path).__enter__()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("salloc: error: ...: Unable to contact slurm controller (connect failure)", UnreachableError),
        ("runuser: user hvlab does not exist", CheckError),
    ],
)
def test_what_was_refused_needs_no_cancelling(slurm, tmp_path, said, kind):
    slurm.salloc = f"echo '{said}' >&2; exit 1"
    with pytest.raises(kind, match="n1: Slurm grants no hosts"):
        granting(plan(), tmp_path).__enter__()
    assert "scancel" not in commands(slurm)


@pytest.mark.parametrize(
    "answer",
    ["Socket timed out on send/recv operation", "Unable to contact slurm controller (receive failure)"],
)
def test_what_slurm_may_have_taken_is_cancelled(slurm, tmp_path, answer):
    """A busy slurmctld takes a request and answers too late: the job is there, and has its hosts."""
    slurm.salloc = f"echo 'salloc: error: Job submit/allocate failed: {answer}' >&2; exit 1"
    with pytest.raises(UnreachableError, match="n1: Slurm grants no hosts"):
        granting(plan(), tmp_path).__enter__()
    assert commands(slurm) == ["salloc", "scancel"]


@pytest.mark.usefixtures("slurm")
def test_a_machine_without_slurm_is_named(tmp_path, monkeypatch):
    """On the machine itself there is no shell that would say it."""
    monkeypatch.setattr(allocation, "Shell", shell.Shell)
    monkeypatch.setattr(Login, "other_user", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="n1: Slurm grants no hosts: cannot run salloc: No such") as raised:
        granting(plan(), tmp_path).__enter__()
    assert "--launcher mpirun" in raised.value.remedy
    assert not (tmp_path / "allocation.json").exists()


def test_a_salloc_that_still_tries_goes_before_its_job_is_cancelled(slurm, tmp_path):
    """It outlives its ssh, and would go on for a minute: the job that it gets then is nobody's."""
    slurm.salloc = "echo 'salloc: error: Slurm job queue full, sleeping and retrying.' >&2; exec sleep 30"
    with pytest.raises(CheckError, match="has not taken the request"):
        granting(plan(queue_limit=1), tmp_path).__enter__()
    assert commands(slurm) == ["salloc", "pkill", "scancel"]
    salloc, pkill = (next(words for words in slurm.asked if words[1] == name) for name in commands(slurm)[:2])
    assert re.match(pkill[-1], " ".join(salloc[1:]))


def test_inside_an_allocation_no_other_is_asked_for(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    slurm.answers["scontrol"] = ["n1\nn2\n", "JobState=RUNNING Reason=None"]
    with granting(plan(), tmp_path) as granted:
        assert (granted.job, granted.own) == ("42", False)
    assert set(commands(slurm)) == {"scontrol"}
    slurm.answers["scontrol"] = ["n1\nn2\n"]
    with pytest.raises(UsageError, match="n3: not in the allocation 42"):
        granting(plan(hosts=(3,)), tmp_path).__enter__()


def ends_after(cases, monkeypatch, state="NODE_FAIL", plays=1):
    """The allocation ends during the case after that many, in the first plays alone."""
    first = FakePlay.wait

    def wait(self, seconds):
        if len(FakePlay.plans) <= plays and self.number == cases:
            (self.folder / "lost.json").write_text(json.dumps({"state": state}))
            return True
        return first(self, seconds)

    monkeypatch.setattr(FakePlay, "wait", wait)


def test_after_a_lost_host_another_allocation_is_for_what_is_left(slurm, world, store, monkeypatch, capsys):
    # slurmctld is away at first; when it answers, it knows.
    slurm.answers["scontrol"] = ["Unable to contact slurm controller", "JobState=NODE_FAIL Reason=NodeDown"]
    ends_after(1, monkeypatch, "UNKNOWN")
    run_id = measure.measure(plan(repeats=3), store)
    assert commands(slurm).count("salloc") == 2
    assert [len(played["cases"]) for played in FakePlay.plans] == [3, 2]
    assert [played["allocation"] for played in FakePlay.plans] == [{"SLURM_JOB_ID": "7"}] * 2
    assert {record.status for record in store.records(run_id)} == {"ok"}
    assert (
        "Slurm has ended job 7, NODE_FAIL: another allocation for the 2 cases left" in capsys.readouterr().err
    )


def test_cases_on_hosts_that_stay_lost_wait_for_them(slurm, world, store, monkeypatch):
    slurm.answers["sinfo"] = ["n1|idle|none\nn2|idle|none\nn3|down*|Not responding\n"]
    ends_after(1, monkeypatch)
    schedule = plan(hosts=(1, 2, 3), repeats=2)
    with pytest.raises(UnreachableError, match=r"n3: Slurm reports it as down\* \(Not responding\)"):
        measure.measure(schedule, store)
    (run,) = store.runs()
    left = {case.id for case in schedule.cases} - {record.case_id for record in store.records(run.run_id)}
    first = FakePlay.plans[0]["cases"].values()
    assert left == {case["id"] for case in list(first)[1:] if "n3" in case["hosts"]}
    assert "n3" not in FakePlay.plans[1]["hosts"]
    assert run.state == "interrupted"


@pytest.mark.parametrize(("state", "allocations"), [("TIMEOUT", 1), ("NODE_FAIL", 2)])
@pytest.mark.usefixtures("world")
def test_where_no_case_ends_there_is_an_end(slurm, store, monkeypatch, state, allocations):
    ends_after(0, monkeypatch, state, plays=9)
    with pytest.raises((CheckError, UnreachableError), match=f"ended before a case was done: {state}"):
        measure.measure(plan(repeats=3), store)
    assert commands(slurm).count("salloc") == allocations


def test_after_scancel_no_other_allocation_is_asked_for(slurm, world, store, monkeypatch):
    ends_after(1, monkeypatch, "CANCELLED")
    with pytest.raises(CheckError, match="job 7 was cancelled, not by hvlab") as caught:
        measure.measure(plan(repeats=3), store)
    assert "the same command" in caught.value.remedy
    assert commands(slurm).count("salloc") == 1
    assert store.run().state == "interrupted"


def test_a_host_may_be_lost_under_the_first_case(slurm, world, store, monkeypatch):
    ends_after(0, monkeypatch)
    run_id = measure.measure(plan(repeats=3), store)
    assert len({record.case_id for record in store.records(run_id)}) == 3


def test_slurmctld_may_be_away_under_the_first_case(slurm, world, store, monkeypatch, capsys):
    slurm.answers["scontrol"] = ["Unable to contact slurm controller", "JobState=RUNNING Reason=None"]
    ends_after(0, monkeypatch, "UNKNOWN")
    run_id = measure.measure(plan(repeats=3), store)
    assert len({record.case_id for record in store.records(run_id)}) == 3
    assert "Slurm did not answer: another allocation for the 3 cases left" in capsys.readouterr().err


def test_the_next_run_takes_back_what_one_could_not_give_back(slurm, world, store, monkeypatch):
    lost = measure.measure(plan(), store)
    store.enter(lost, "interrupted")
    (store.run_folder(lost) / "allocation.json").write_text(json.dumps({"hosts": ["n1"]}))
    slurm.asked.clear()
    measure.measure(plan(), store, restart=True)
    assert ["n1", "scancel", f"--name=hvlab-{lost}"] in slurm.asked
    assert commands(slurm).index("scancel") < commands(slurm).index("salloc")
    assert not (store.run_folder(lost) / "allocation.json").exists()
