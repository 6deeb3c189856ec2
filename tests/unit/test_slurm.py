"""Slurm: what its commands answer, as recorded of Slurm 22.05, and what hvlab makes of it."""

import json
from dataclasses import replace

import pytest

from hvlab.base.errors import CheckError, UnreachableError, UsageError
from hvlab.bench.schedule import Schedule
from hvlab.workloads.launchers import slurm, slurm_queue
from tests.unit.labs import VARIANTS, lab, spec
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
    assert slurm.partition(there) == ("sinfo", "--noheader", "--format=%P %l")
    assert slurm.longest("short 10:00\nlong* 2-00:00:00\n") == 2 * 24 * 60
    assert slurm.has_time_limit(lab(lab_slurm_options="--account=x --time=60"))
    with pytest.raises(UsageError, match=r"lab_slurm_options .* cannot be read"):
        slurm.request(lab(lab_slurm_options="--comment='two"), ("n1",), "R")


def test_the_labs_own_memory_and_partition_count():
    there = lab(lab_slurm_options=["--mem-per-cpu=4G", "-p", "long"])
    words = slurm.request(there, ("n1",), "R")
    assert "--mem=0" not in words
    assert [word for word in words if word.startswith("--partition")] == ["--partition=long"]
    assert "--partition=long" in slurm.partition(there)
    assert "--mem=0" in slurm.request(lab(lab_slurm_options=["--mem-bind=local"]), ("n1",), "R")


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ([], True),
        (["--account=x", "--time-min=5", "--tmp=1G"], True),
        (["--time=60"], False),
        (["--time", "60"], False),
        ("-t60", False),
        (["--time 60"], False),
    ],
)
def test_the_time_is_hvlabs_unless_the_lab_has_its_own(options, given):
    there = lab(lab_slurm_options=options)
    assert ("--time=25" in slurm.request(there, ("n1",), "R", minutes=25)) is given
    assert slurm.has_time_limit(there) is not given


@pytest.mark.parametrize(
    ("estimate", "case", "longest", "minutes"),
    [
        (0, 60, None, 10),
        (61, 900, None, 18),
        (7200, 900, None, 255),
        (7200, 900, 120, 120),
        (600, 1800, 1440, 50),
    ],
)
def test_the_time_is_twice_the_estimate_and_one_case_within_what_the_partition_gives(
    estimate, case, longest, minutes
):
    assert slurm.minutes(estimate, case, longest) == minutes


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("infinite\n", None),
        ("1-02:30:00\n1-02:30:00\n", 1590),
        ("2:00:00\n", 120),
        ("30:00\n", 30),
        ("slurm_load_partitions: Unable to contact slurm controller (connect failure)\n", None),
    ],
)
def test_how_long_a_partition_gives_as_sinfo_prints_it(text, minutes):
    assert slurm.longest(text) == minutes


def mixed(backend, hosts, slots):
    """Return the schedule of a lab whose third host has no GPU."""
    there = lab(slots=8, gpu=("n1", "n2"), horovod_variants=VARIANTS)
    return Schedule.of(spec(backend, launcher="srun", hosts=hosts, slots=slots), there)


def test_gpus_are_asked_for_where_all_hosts_run_ranks_on_them():
    on_gpus = mixed("nccl", (1, 2), (1, 4))
    assert "--gres=gpu:4" in on_gpus.allocation(on_gpus.cases)
    uneven = replace(on_gpus, cases=mixed("nccl", (1,), (4,)).cases + mixed("nccl", (2,), (1,)).cases)
    assert "--gres=gpu:4" in uneven.allocation(uneven.cases)
    both = replace(on_gpus, cases=on_gpus.cases + mixed("mpi", (3,), (1,)).cases)
    words = both.allocation(both.cases)
    assert "--nodelist=n1,n2,n3" in words
    assert "--exclusive" in words
    assert not [word for word in words if word.startswith("--gres")]


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
        (
            f"salloc: error: QOSMaxWallDurationPerJobLimit\n{FAILED} Job violates accounting/QOS policy "
            "(job submit limit, user's size and/or time limits)\n",
            UsageError,
            "name a shorter --time",
        ),
        (
            f"salloc: error: QOSMaxSubmitJobPerUserLimit\n{FAILED} Job violates accounting/QOS policy "
            "(job submit limit, user's size and/or time limits)\n",
            CheckError,
            "squeue --me",
        ),
        (f"{FAILED} Socket timed out on send/recv operation\n", UnreachableError, "sdiag"),
        (f"{FAILED} Invalid generic resource (gres) specification\n", UsageError, "sinfo -o '%N %G'"),
        (f"{FAILED} Invalid feature specification\n", UsageError, "sinfo -o '%N %f'"),
        (f"{FAILED} Invalid license specification\n", UsageError, "show licenses"),
        (f"{FAILED} Invalid wckey specification\n", UsageError, "--wckey"),
        (f"{FAILED} Access denied to requested reservation\n", UsageError, "show reservation"),
        (f"{FAILED} Requested reservation is invalid\n", UsageError, "show reservation"),
        (f"{FAILED} Requested reservation not usable now\n", UsageError, "show reservation"),
        (f"{FAILED} More processors requested than permitted\n", UsageError, "fewer slots"),
        (f"{FAILED} Node count specification invalid\n", UsageError, "more hosts"),
        (f"{FAILED} Memory required by task is not available\n", UsageError, "less memory"),
        ("salloc: error: something new\n", CheckError, "sinfo"),
    ],
)
def test_a_refusal_names_host_answer_and_remedy(stderr, kind, remedy):
    error = slurm.explain_refusal("n1", stderr, 1, {})
    assert type(error) is kind
    assert str(error).startswith("n1: Slurm grants no hosts: ")
    said = [line.rpartition("error: ")[2].rpartition("failed: ")[2] for line in stderr.splitlines()]
    assert any(words in str(error) for words in said)
    assert remedy in error.remedy


def test_what_a_site_says_of_its_own_rules_is_shown():
    """A job_submit plugin says why, then salloc names the error without words for it."""
    said = f"salloc: error: Please name a project: --comment=PROJECT\n{FAILED} Unspecified error\n"
    error = slurm.explain_refusal("n1", said, 1, {})
    assert "no hosts: Please name a project: --comment=PROJECT; Job submit/allocate failed:" in str(error)


def test_a_job_that_ended_with_its_node_before_it_began_names_the_node():
    stderr = "salloc: Granted job allocation 13\nsalloc: Relinquishing job allocation 13\n"
    error = slurm.explain_refusal(
        "n1", stderr, 1, slurm_queue.read_unfit("n1|idle|none\nn2|down*|Not responding\n")
    )
    assert type(error) is UnreachableError
    assert str(error) == "n2: Slurm reports it as down* (Not responding)"
    assert "hvlab verify -l n2" in error.remedy


def test_the_job_that_was_granted():
    assert (
        slurm.read_granted_job("salloc: Pending job allocation 2\nsalloc: Granted job allocation 2\n") == "2"
    )
    with pytest.raises(CheckError, match="no job"):
        slurm.read_granted_job("salloc: hello\n")


SINFO = "n1|idle|none\nn1|idle|none\nn2|mixed|none\nn3|drained|bad disk\nn4|down*|Not responding\n"


def test_nodes_that_take_no_jobs():
    unfit = slurm_queue.read_unfit(SINFO)
    assert {host: node.observed for host, node in unfit.items()} == {
        "n3": "n3: Slurm reports it as drained (bad disk)",
        "n4": "n4: Slurm reports it as down* (Not responding)",
    }


# As Slurm 22.05 to 26.05 print them: node_state_string in src/common/slurm_protocol_defs.c.
PASSES = (
    "idle idle* idle~ idle# idle% idle! idle@ idle^ idle$ idle- mixed mixed* mixed- mixed$ allocated "
    "allocated+ completing completing* reserved planned blocked unknown unknown* reboot reboot^ reboot* "
    "down^ down@ down# drained@ drained^ draining@ powered_down powering_up powering_down power_down"
)
STAYS = (
    "down down* down$ down~ down% drained drained* drained$ drained~ draining draining* draining$ fail fail* "
    "failing failing* inval maint maint*"
)


def test_states_that_pass():
    assert [state for state in PASSES.split() if slurm_queue.read_unfit(f"n1|{state}|none\n")] == []


def test_a_state_that_stays_is_an_error_with_a_remedy():
    for state in STAYS.split():
        error = slurm_queue.unusable(slurm_queue.read_unfit(f"n1|{state}|none\n"))
        assert str(error) == f"n1: Slurm reports it as {state}"
        assert "leave it out with -l" in error.remedy
        assert type(error) is (UnreachableError if "down" in state else CheckError), state


def test_a_node_that_registered_with_less_than_slurm_conf_says_names_both():
    error = slurm_queue.unusable(
        slurm_queue.read_unfit("n1|inval|Low RealMemory (reported:7000 < 100.00%)\n")
    )
    assert "Low RealMemory" in str(error)
    assert "compare `slurmd -C` there with its line in slurm.conf, then bring it back" in error.remedy


def test_maintenance_ends_by_itself():
    error = slurm_queue.unusable(slurm_queue.read_unfit("n1|maint|none\n"))
    assert error.remedy.startswith("see until when: `scontrol show reservation`, then wait, or leave it out")
    job = slurm_queue.waiting("8|PENDING|ReqNodeNotAvail, Reserved for maintenance\n")
    assert slurm_queue.hopeless(job, {}) is None
    assert "a shorter --time" in job.hint
    assert slurm_queue.waiting("8|PENDING|Resources\n").hint == ""


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("QOSMaxWallDurationPerJobLimit", "name a shorter --time"),
        ("AssocMaxWallDurationPerJobLimit", "name a shorter --time"),
        ("QOSMaxNodePerJobLimit", "ask for fewer hosts, or name another --qos"),
        ("AssocMaxNodePerJobLimit", "ask for fewer hosts, or name another --account"),
        ("AssocMaxCpuPerJobLimit", "ask for fewer hosts"),
        ("QOSMaxCpuPerJobLimit", "ask for fewer hosts"),
        ("QOSMaxGRESPerJob", "ask for fewer hosts"),
        ("AssocMaxGRESPerNode", "ask for fewer slots"),
        ("QOSMaxMemoryPerNode", "smaller --mem"),
        ("AssocMaxMemPerNode", "smaller --mem"),
        ("QOSMaxCpuPerNode", "name another --qos"),
        ("AssocMaxCpuMinutesPerJobLimit", "ask for fewer hosts, name a shorter --time"),
        ("QOSMaxGRESMinutesPerJob", "name a shorter --time"),
        ("AssocMaxBillingMinutesPerJob", "name a shorter --time"),
        ("QOSMaxUnknownPerJob", "ask for fewer hosts"),
        ("QOSMinGRES", "ask for more hosts"),
        ("QOSMinCpuNotSatisfied", "ask for more hosts"),
        ("MaxMemPerLimit", "--mem"),
        ("InvalidAccount", "[--account=NAME]"),
        ("InvalidQOS", "[--qos=NAME]"),
        ("DependencyNeverSatisfied", "--dependency"),
        ("ReservationDeleted", "--reservation"),
    ],
)
def test_a_limit_of_one_job_is_an_error_that_says_how_to_keep_it(reason, remedy):
    error = slurm_queue.hopeless(slurm_queue.waiting(f"8|PENDING|{reason}\n"), {})
    assert type(error) is UsageError
    assert str(error) == f"job 8 would wait for ever: {reason}"
    assert remedy in error.remedy


# Other jobs end, somebody gives a resource back, or usage decays.
@pytest.mark.parametrize(
    "reason",
    [
        *("None", "Priority", "Resources", "BeginTime", "Licenses", "Reservation", "Constraints", "Cleaning"),
        *("QOSMaxJobsPerUserLimit", "QOSMaxNodePerUserLimit", "QOSMaxGRESPerUser", "QOSGrpNodeLimit"),
        *("AssocGrpGRES", "AssocGrpCPUMinutesLimit", "AssocGrpBillingRunMinutes", "AssocMaxJobsLimit"),
        *("MaxGRESPerAccount", "MaxCpuRunMinsPerUser", "QOSUsageThreshold", "ReqNodeNotAvail"),
        "ReqNodeNotAvail, May be reserved for other job",
    ],
)
def test_what_passes_is_waited_for(reason):
    job = slurm_queue.waiting(f"8|PENDING|{reason}\n")
    assert slurm_queue.hopeless(job, slurm_queue.read_unfit("n1|idle|none\nn2|blocked|none\n")) is None


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
        ("(ReqNodeNotAvail, Reserved for maintenance)", "n3|maint|none\n", CheckError),
        ("NodeDown", SINFO, UnreachableError),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "n3|drained|bad disk\n",
            CheckError,
        ),
        # slurmctld was restarted, and has not heard from its nodes yet.
        ("ReqNodeNotAvail, UnavailableNodes:n[3-4]", "n3|unknown|none\nn4|idle*|none\n", None),
        # By the time that somebody looks, the node is back.
        ("ReqNodeNotAvail, UnavailableNodes:n3", "n3|idle|none\n", None),
    ],
)
def test_a_job_that_waits_for_ever_is_told_from_one_that_waits(reason, nodes, kind):
    job = slurm_queue.waiting(f"8|PENDING|{reason}\n")
    error = slurm_queue.hopeless(job, slurm_queue.read_unfit(nodes))
    assert type(error) is (kind or type(None))
    assert error is None or error.remedy


def test_hosts_and_time_that_a_partition_does_not_have():
    remedy = slurm_queue.hopeless(slurm_queue.waiting("15|PENDING|PartitionConfig\n"), {}).remedy
    assert "-l" in remedy
    assert "--time" in remedy


def test_how_long_a_job_waited():
    error = slurm_queue.too_long(slurm_queue.waiting("8|PENDING|Resources\n"), 61.2, 60.0)
    assert str(error) == "job 8 waited 61 s in the queue (Resources); --queue-limit is 60 s"
    assert slurm_queue.waiting("") is None


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


def test_jobs_and_nodes_of_a_hidden_partition_are_shown_too():
    """Without --all a user sees none of them, not even the own jobs."""
    assert "--all" in slurm.queue("R")
    assert "--all" in slurm_queue.nodes(["n1"])


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
            shown = left if "--all" in argv else {}
            return 0, "".join(f"{step}|{name}\n" for step, name in shown.items())
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
