"""Slurm: what its commands answer, as recorded of Slurm 22.05, and what hvlab makes of it."""

import json

import pytest

from hvlab.errors import CheckError, UnreachableError, UsageError
from hvlab.launchers import slurm
from tests.unit.labs import lab
from tests.unit.programs import program

FAILED = "salloc: error: Job submit/allocate failed:"
SHOWN = (
    "JobId=11 JobName=hvlab-T UserId=hvlab(1000) QOS=(null) JobState={state} Reason={reason} "
    "Dependency=(null) RunTime=00:01:01 TimeLimit=00:01:00 NodeList=n[2-3]\n"
)


def test_an_allocation_asks_for_whole_hosts_of_the_labs_partition():
    there = lab(lab_slurm_partition="long", lab_slurm_options=["--account=x", "--time=60"])
    assert slurm.request(there, ("n1", "n3"), "R", gpus=2) == (
        *("salloc", "--no-shell", "--job-name=hvlab-R", "--partition=long", "--nodes=2", "--nodelist=n1,n3"),
        *("--exclusive", "--mem=0", "--gres=gpu:2", "--account=x", "--time=60"),
    )
    assert "--partition=hvlab" in slurm.request(lab(), ("n1",), "R")


def test_options_may_be_one_line_and_a_partition_empty():
    there = lab(lab_slurm_partition="", lab_slurm_options="--account=x --comment='two words'")
    words = slurm.request(there, ("n1",), "R")
    assert words[-2:] == ("--account=x", "--comment=two words")
    assert not [word for word in words if word.startswith("--partition")]
    with pytest.raises(UsageError, match=r"lab_slurm_options .* cannot be read"):
        slurm.request(lab(lab_slurm_options="--comment='two"), ("n1",), "R")


@pytest.mark.parametrize(
    ("stderr", "kind", "remedy"),
    [
        (
            f"salloc: error: invalid partition specified: nope\n{FAILED} Invalid partition name specified\n",
            UsageError,
            "lab_slurm_partition",
        ),
        (
            f"{FAILED} User's group not permitted to use this partition\n",
            UsageError,
            "ask who runs the cluster",
        ),
        (f"{FAILED} Invalid node name specified\n", UsageError, "sinfo -N"),
        (
            f"{FAILED} Required partition not available (inactive or drain)\n",
            UsageError,
            "lab_slurm_partition",
        ),
        (
            f"{FAILED} Unable to contact slurm controller (connect failure)\n",
            UnreachableError,
            "slurmctld",
        ),
        (
            "salloc: error: Slurm job queue full, sleeping and retrying.\n"
            f"{FAILED} Resource temporarily unavailable\n",
            CheckError,
            "MaxJobCount",
        ),
        ("salloc: error: something new\n", CheckError, "sinfo"),
    ],
)
def test_a_refusal_names_host_answer_and_remedy(stderr, kind, remedy):
    error = slurm.refused("n1", stderr, 1, {})
    assert type(error) is kind
    assert str(error).startswith("n1: Slurm grants no hosts: ")
    assert stderr.splitlines()[-1].rpartition("error: ")[2].rpartition("failed: ")[2] in str(error)
    assert remedy in error.remedy


def test_a_job_that_ended_with_its_node_before_it_began_names_the_node():
    stderr = "salloc: Granted job allocation 13\nsalloc: Relinquishing job allocation 13\n"
    error = slurm.refused("n1", stderr, 1, slurm.unfit("n1|idle|none\nn2|down*|Not responding\n"))
    assert type(error) is UnreachableError
    assert str(error) == "n2: Slurm has it as down* (Not responding)"
    assert "hvlab verify -l n2" in error.remedy


def test_the_job_that_was_granted():
    assert slurm.granted("salloc: Pending job allocation 2\nsalloc: Granted job allocation 2\n") == "2"
    with pytest.raises(CheckError, match="no job"):
        slurm.granted("salloc: hello\n")


SINFO = "n1|idle|none\nn1|idle|none\nn2|mixed|none\nn3|drained|bad disk\nn4|down*|Not responding\n"


def test_nodes_that_take_no_jobs():
    unfit = slurm.unfit(SINFO)
    assert {host: node.seen for host, node in unfit.items()} == {
        "n3": "n3: Slurm has it as drained (bad disk)",
        "n4": "n4: Slurm has it as down* (Not responding)",
    }


@pytest.mark.parametrize(
    ("reason", "nodes", "kind"),
    [
        ("Resources", SINFO, None),
        ("Priority", SINFO, None),
        ("PartitionConfig", "", UsageError),
        ("PartitionTimeLimit", "", UsageError),
        ("PartitionDown", "", UsageError),
        (
            "Job's account not known, so it can't use this partition (acc allows physics)",
            "",
            UsageError,
        ),
        ("ReqNodeNotAvail, UnavailableNodes:n3", "n3|drained|bad disk\n", CheckError),
        ("ReqNodeNotAvail, UnavailableNodes:n3", SINFO, UnreachableError),
        # slurmctld was started anew, and has not heard of its nodes yet.
        ("ReqNodeNotAvail, UnavailableNodes:n[3-4]", "n3|unknown|none\nn4|idle*|none\n", None),
        # By the time that somebody looks, the node is back.
        ("ReqNodeNotAvail, UnavailableNodes:n3", "n3|idle|none\n", None),
    ],
)
def test_a_job_that_waits_for_ever_is_told_from_one_that_waits(reason, nodes, kind):
    job = slurm.waiting(f"8|PENDING|{reason}\n")
    error = slurm.hopeless(job, slurm.unfit(nodes))
    assert type(error) is (kind or type(None))
    assert error is None or error.remedy


def test_hosts_and_time_that_a_partition_does_not_have():
    remedy = slurm.hopeless(slurm.waiting("15|PENDING|PartitionConfig\n"), {}).remedy
    assert "-l" in remedy
    assert "--time" in remedy


def test_how_long_a_job_waited():
    error = slurm.too_long(slurm.waiting("8|PENDING|Resources\n"), 61.2, 60.0)
    assert str(error) == "job 8 waited 61 s in the queue (Resources); --queue-limit is 60 s"
    assert slurm.waiting("") is None


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (SHOWN.format(state="RUNNING", reason="None"), "RUNNING"),
        (SHOWN.format(state="NODE_FAIL", reason="NodeDown"), "NODE_FAIL"),
        (SHOWN.format(state="COMPLETING", reason="TimeLimit"), "TIMEOUT"),
        (SHOWN.format(state="COMPLETING", reason="None"), "COMPLETING"),
        ("slurm_load_jobs error: Invalid job id specified\n", "GONE"),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", "UNKNOWN"),
        ("", "UNKNOWN"),
    ],
)
def test_the_state_of_an_allocation(text, state):
    assert slurm.state(text) == state


def test_hosts_outside_of_the_allocation_that_hvlab_runs_in():
    assert slurm.outside("7", ("n1", "n2"), ("n2", "n1", "n3")) is None
    error = slurm.outside("7", ("n1", "n4"), ("n1", "n2"))
    assert "n4: not in the allocation 7" in str(error)
    assert error.remedy == "limit the hosts: -l n1,n2"


@pytest.mark.parametrize("number", range(4))
def test_a_rank_of_gloo_is_told_which_it_is(monkeypatch, number):
    given = {
        **{"SLURM_PROCID": str(number), "SLURM_NTASKS": "4", "SLURM_LOCALID": str(number % 2)},
        **{"SLURMD_NODENAME": f"n{number // 2}", "HVLAB_SLOTS": "2"},
    }
    assert program(monkeypatch, "meeting").rank(given) == {
        **{"HOROVOD_RANK": str(number), "HOROVOD_SIZE": "4"},
        **{"HOROVOD_LOCAL_RANK": str(number % 2), "HOROVOD_LOCAL_SIZE": "2"},
        **{"HOROVOD_CROSS_RANK": str(number // 2), "HOROVOD_CROSS_SIZE": "2"},
        "HOROVOD_HOSTNAME": f"n{number // 2}",
    }


def test_slurms_own_variables_say_which_rank_it_is_unless_a_launcher_does(monkeypatch):
    slurms = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}
    horovods = {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0"}
    launched = program(monkeypatch, "launched")
    assert launched.place(slurms) == (3, 4, 1)
    assert launched.place(slurms | horovods) == (1, 2, 0)


def test_a_step_that_stays_is_cancelled_and_no_other(monkeypatch, capsys):
    steps = program(monkeypatch, "steps")
    left = {"7.3": "hvlab-R/case", "7.4": "mine", "7.extern": "extern"}
    asked = []

    def answer(argv):
        asked.append(list(argv))
        if argv[0] == "scancel":
            for step in argv[1:]:
                del left[step]
        if argv[0] == "squeue":
            return 0, "".join(f"{step}|{name}\n" for step, name in left.items())
        return 0, SHOWN.format(state="RUNNING", reason="None")

    monkeypatch.setattr(steps, "answer", answer)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr("sys.argv", ["steps.py", "hvlab-R/case"])
    assert steps.main() == 0
    assert json.loads(capsys.readouterr().out) == {"job": "7", "state": "RUNNING", "cancelled": ["7.3"]}
    assert list(left) == ["7.4", "7.extern"]


@pytest.mark.parametrize(
    ("stderr", "state"),
    [
        (
            "srun: error: Unable to confirm allocation for job 7: Unable to contact slurm controller "
            "(connect failure)\nsrun: Check SLURM_JOB_ID environment variable. Expired or invalid job 7\n",
            "UNKNOWN",
        ),
        ("srun: error: n2: task 1: Exited with exit code 3\n", "RUNNING"),
    ],
)
def test_a_step_that_srun_could_not_ask_for_has_never_begun(tmp_path, monkeypatch, capsys, stderr, state):
    steps = program(monkeypatch, "steps")
    (tmp_path / "stderr").write_text(stderr)
    monkeypatch.chdir(tmp_path)
    text = SHOWN.format(state="RUNNING", reason="None")
    monkeypatch.setattr(steps, "answer", lambda argv: (0, "" if argv[0] == "squeue" else text))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr("sys.argv", ["steps.py", "hvlab-R/case"])
    assert steps.main() == 0
    assert json.loads(capsys.readouterr().out)["state"] == state


@pytest.mark.parametrize(("ends", "state"), [("2020-01-01T00:00:00", "TIMEOUT"), ("Unknown", "RUNNING")])
def test_an_allocation_whose_time_is_over_starts_no_more_steps(monkeypatch, ends, state):
    steps = program(monkeypatch, "steps")
    text = SHOWN.format(state="RUNNING", reason="TimeLimit") + f" EndTime={ends} Deadline=N/A"
    monkeypatch.setattr(steps, "answer", lambda argv: (0, text))
    assert steps.state("7") == state


def test_no_step_is_looked_for_in_an_allocation_that_is_gone(monkeypatch, capsys):
    steps = program(monkeypatch, "steps")
    monkeypatch.setattr(steps, "answer", lambda argv: (1, "error: Invalid job id specified"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr("sys.argv", ["steps.py", "hvlab-R/case"])
    steps.main()
    assert json.loads(capsys.readouterr().out) == {"job": "7", "state": "GONE", "cancelled": []}


FAKE_HOROVOD = """#!/bin/sh
echo 4711
cat
echo "the input has ended" >&2
"""


def test_the_meeting_place_is_served_while_srun_runs(monkeypatch, tmp_path, capfd):
    meeting = program(monkeypatch, "meeting")
    python = tmp_path / "python"
    python.write_text(FAKE_HOROVOD)
    python.chmod(0o755)
    shown = "echo $HOROVOD_GLOO_RENDEZVOUS_ADDR:$HOROVOD_GLOO_RENDEZVOUS_PORT $HVLAB_SLOTS; exit 3"
    assert meeting.start(str(python), "n1:2,n2:2", "lo", ["sh", "-c", shown]) == 3
    said = capfd.readouterr()
    assert said.out == "127.0.0.1:4711 2\n"
    assert said.err == "the input has ended\n"


def test_without_a_meeting_place_no_rank_is_started(monkeypatch, tmp_path, capfd):
    meeting = program(monkeypatch, "meeting")
    assert meeting.start("/bin/false", "n1:2", "lo", ["echo", "started"]) == 1
    assert capfd.readouterr().out == ""
