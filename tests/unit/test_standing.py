"""A job that stands still: from what hosts saw to the rank that holds it up."""

import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from hvlab.base import answers
from hvlab.base.errors import CheckError
from hvlab.checks import standing
from hvlab.cli import doctor_job
from hvlab.doctor.places import HostStanding
from hvlab.doctor.standing import judge
from hvlab.workloads import outcome
from tests.unit.labs import case, lab
from tests.unit.programs import program

HOROVOD = "/opt/hvlab/python/lib/python3.11/site-packages/horovod/torch/mpi_ops.py"
# As py-spy 0.4.3 showed real ranks of Horovod 0.28 and torch 2.13.
WAIT = [["synchronize", HOROVOD, 1285], ["allreduce", HOROVOD, 254], ["main", "/home/u/train.py", 40]]
BY_LINE_41 = [*WAIT[:2], ["average", "/home/u/train.py", 12], ["main", "/home/u/train.py", 41]]
BY_LINE_42 = [*BY_LINE_41[:3], ["main", "/home/u/train.py", 42]]
OTHER = [["synchronize", HOROVOD, 1285], ["broadcast", HOROVOD, 900], ["main", "/home/u/train.py", 44]]
LOADER = [
    ["_MultiProcessingDataLoaderIter._try_get_data", "/x/site-packages/torch/utils/data/dataloader.py", 1243],
    ["main", "/home/u/train.py", 31],
]
SAVE = [["save", "/x/site-packages/torch/serialization.py", 900], ["checkpoint", "/home/u/train.py", 50]]
FUNCTIONAL = "/x/site-packages/torch/distributed/_functional_collectives.py"
# torch 2.13 waits where a tensor of a functional collective is used.
LATER = [
    ["OpOverloadPacket.__call__", "/x/site-packages/torch/_ops.py", 1279],
    ["wait_tensor", FUNCTIONAL, 142],
    ["AsyncCollectiveTensor.trigger_wait", FUNCTIONAL, 1115],
    ["main", "/home/u/train.py", 27],
]
MATMUL = [["step", "/home/u/train.py", 33]]


def rank(number, stack=WAIT, **more):
    return {
        **{"rank": number, "local_rank": 0, "size": 3, "local_size": 1, "job": "PMIX_NAMESPACE=7"},
        **{"names": [str(100 + number), "42"], "pid": 100 + number, "program": "python train.py"},
        **{"states": "SSS", "moved": False, "cpu": 0.0, "below_cpu": 0.0, "io": 0, "disk_waits": []},
        **{"stopped": [], "unacknowledged": [], "stack": stack, "user": len(stack) - 1, "counters": {}},
        **{"why": "", "recorder": []},
        **more,
    }


def host(number, *ranks, **more):
    seen = {"host": f"n{number + 1}", "user": 0, "ptrace_scope": "0", "ranks": list(ranks), "ras": [{}, {}]}
    seen |= {"stall_lines": [], "kernel": [], "memory_kills": 0, "full_disks": [], "dead_links": []}
    seen |= {"addresses": [f"10.0.0.{number + 1}"], **more}
    return answers.load(json.dumps(seen), f"n{number + 1}", HostStanding)


def judged(odd=None, of_host=None, others=None, **how):
    """Return the judgement on three ranks, of which rank 1 on n2 is another."""
    ranks = [rank(0, **(others or {})), rank(1, **(odd or {})), rank(2, **(others or {}))]
    hosts = {
        f"n{at + 1}": host(at, each, **((of_host or {}) if at == 1 else {})) for at, each in enumerate(ranks)
    }
    return judge(hosts, {}, **how)[0]


def entry(sequence, sizes="[[4]]", name="gloo:all_reduce"):
    fields = {"collective_seq_id": sequence, "profiling_name": name, "input_sizes": json.loads(sizes)}
    return {"recorder": [{**fields, "state": "scheduled", "process_group": ["0", "default_pg"], "op_id": 1}]}


@pytest.mark.parametrize(
    ("odd", "of_host", "found", "words"),
    [
        ({"states": "TTT"}, {}, "stopped", "allreduce (train.py:40)"),
        ({"states": "ttt"}, {}, "traced", "a debugger holds"),
        ({"stack": LOADER, "stopped": [7]}, {}, "worker", "its process 7 is stopped"),
        ({"job": "MASTER_PORT=2"}, {}, "split", "MASTER_PORT=2, the others at PMIX_NAMESPACE=7"),
        ({"stack": MATMUL, "ended": [9]}, {}, "elsewhere", "its process 9 has ended"),
        (
            {"stack": MATMUL, "blocked": ["locks_lock_inode_wait", "/data/x"]},
            {},
            "elsewhere",
            "a lock on /data/x",
        ),
        ({"stack": LOADER, "blocked": ["anon_pipe_read", "pipe:[7]"]}, {}, "loader", "waits for pipe:[7]"),
        ({"stack": LOADER}, {}, "loader", "_try_get_data (train.py:31)"),
        ({"stack": MATMUL}, {}, "elsewhere", "step (train.py:33)"),
        ({"stack": SAVE, "moved": True}, {"full_disks": ["/ckpt"]}, "full", "/ckpt"),
        ({"stack": SAVE, "disk_waits": ["rpc_wait_bit_killable"]}, {}, "disk", "rpc_wait_bit_killable"),
        ({"stack": OTHER}, {}, "behind", "broadcast (train.py:44)"),
        ({"counters": {"step": 6}}, {}, "behind", "step = 6"),
        ({}, {"dead_links": ["eth0"]}, "link", "eth0 is down"),
    ],
)
def test_the_rank_that_holds_a_job_up_is_named(odd, of_host, found, words):
    culprit = judged(odd, of_host).culprit
    assert (culprit.id, culprit.ranks, culprit.hosts) == (found, (1,), ("n2",))
    assert words in str(culprit)
    assert culprit.remedy


@pytest.mark.parametrize(
    ("odd", "others"),
    [
        ({}, {}),
        ({"moved": True}, {"moved": True}),
        ({"stack": LOADER}, {"moved": True}),
        ({"stack": LOADER, "moved": True}, {}),
        ({"stack": LOADER, "io": 2**20}, {}),
        ({"stack": LOADER, "below_cpu": 1.0}, {}),
        # On a host with too few cores; in threads that the main one waits for.
        ({"stack": MATMUL, "cpu": 0.2, "wanted_cpu": 0.9}, {}),
        ({"stack": MATMUL, "threads_cpu": 1.5}, {"threads_cpu": 0.9}),
        ({"stack": MATMUL, "cpu": 1.0}, {}),
        ({"stack": OTHER}, {"moved": True}),
        ({"stack": [], "user": None, "why": "Permission denied (os error 13)"}, {}),
    ],
)
def test_nothing_is_said_of_a_healthy_slow_job(odd, others):
    assert judged(odd, {}, others).culprit is None


def test_the_use_of_a_tensor_that_a_functional_collective_will_fill_is_a_wait():
    assert judged({"stack": MATMUL}, {}, {"stack": LATER, "user": 3}).groups[0] == (
        "2 ranks (0,2) wait in wait_tensor (train.py:27) on n1, n3"
    )


def test_one_call_from_two_lines_is_two_calls():
    """As in a training whose own function averages gradients and the loss."""
    own, others = ({"stack": stack, "user": 2} for stack in (BY_LINE_42, BY_LINE_41))
    culprit = judged(own, {}, others).culprit
    assert (culprit.id, culprit.ranks) == ("behind", (1,))
    assert culprit.why == "it came there by train.py:42, the others by train.py:41"


def test_a_cut_link_is_told_before_a_call_that_it_kept_ranks_from():
    addressed = [["10.0.0.2"], ["10.0.0.1"], []]
    stacks = [WAIT, WAIT, OTHER]
    hosts = {f"n{at + 1}": host(at, rank(at, stacks[at], unacknowledged=addressed[at])) for at in range(3)}
    assert judge(hosts, {})[0].culprit.id == "link"


# As mpirun 4.1.4, horovodrun 0.28 and torch 2.13 said it of three ranks in bench_stalls; torchrun's words are
# those of doctor/knowledge/torch.yml.
MPIRUN = "mpirun noticed that process rank 1 with PID 13 on node n2 exited on signal {} ({})."
HOROVODRUN = """[2]<stderr>:horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.
Process 1 exit with status code {}.
Terminating remaining workers after failure of Process 1.
Process 0 exit with status code 143."""
TORCHRUN = """Root Cause (first observed failure):
[0]:
  time      : 2024-03-05_07:01:51
  host      : n2
  rank      : 1 (local_rank: 0)
  exitcode  : {} (pid: 69811)"""
GIVEN = "Rank {} is running collective: CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[{}]"
MISMATCH = (
    f"[rank{{}}]: RuntimeError: Detected mismatch between collectives on ranks. {GIVEN}), but {GIVEN})."
)
KILLED = ["[20.1] Memory cgroup out of memory: Killed process 4711 (python)"]


@pytest.mark.parametrize(
    ("log", "kernel", "found"),
    [
        (MPIRUN.format(9, "Killed"), [], ("killed", (1,), ("n2",))),
        (MPIRUN.format(9, "Killed"), KILLED, ("memory", (1,), ("n2",))),
        (MPIRUN.format(11, "Segmentation fault"), [], ("crashed", (1,), ("n2",))),
        # Gloo aborts the rank beside the one whose tensor is too large.
        (MPIRUN.format(6, "Aborted"), [], None),
        (HOROVODRUN.format(137), [], ("killed", (1,), ("n2",))),
        (HOROVODRUN.format(137), KILLED, ("memory", (1,), ("n2",))),
        (HOROVODRUN.format(1), [], None),
        (TORCHRUN.format(-9), [], ("killed", (1,), ("n2",))),
        (TORCHRUN.format(1), [], None),
        ("srun: error: n2: task 1: Out Of Memory", [], ("killed", (1,), ("n2",))),
        (
            MISMATCH.format(0, 0, 4, 1, 8) + "\n" + MISMATCH.format(2, 2, 4, 1, 8),
            [],
            ("shapes", (1,), ("n2",)),
        ),
    ],
)
def test_the_log_of_a_job_that_ended_names_who_ended_it(log, kernel, found):
    hosts = {"n1": host(0), "n2": host(1, kernel=kernel), "n3": host(2)}
    jobs = judge(hosts, {}, log=log)
    assert [(job.culprit.id, job.culprit.ranks, job.culprit.hosts) for job in jobs] == [found] * bool(found)
    assert all("{" not in job.culprit.remedy and str(job.culprit) for job in jobs)


@pytest.mark.parametrize(
    ("unanswered", "found"),
    [
        # As under Horovod's Gloo: the one message that was lost on the way.
        ([["10.0.0.2"], ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]], ("n2",)),
        ([[], ["10.0.0.1", "10.0.0.3"], []], ("n2",)),
        ([["10.0.0.2", "10.0.0.3"], ["10.0.0.1"], ["10.0.0.1"]], ("n1",)),
        ([[], [], []], ("n2", "n1")),
        # Firewalls that drop it everywhere.
        ([["10.0.0.2", "10.0.0.3"], ["10.0.0.1", "10.0.0.3"], ["10.0.0.1", "10.0.0.2"]], ("n2", "n1")),
    ],
)
def test_of_two_ends_the_one_that_answers_nobody_is_cut_off(unanswered, found):
    lost = [[], ["10.0.0.1"], []]
    hosts = {
        f"n{at + 1}": host(at, rank(at, unacknowledged=lost[at]), unanswered=unanswered[at])
        for at in range(3)
    }
    culprit = judge(hosts, {})[0].culprit
    assert (culprit.id, sorted(culprit.hosts)) == ("link", sorted(found))


@pytest.mark.parametrize(("error", "found"), [(ConnectionRefusedError, True), (TimeoutError, False)])
def test_a_host_that_refuses_a_connection_answers(monkeypatch, error, found):
    def connect(_where, timeout):
        raise error(timeout)

    own = program(monkeypatch, "standing")
    monkeypatch.setattr(own.socket, "create_connection", connect)
    assert own.answers("10.0.0.1") == found


# Gloo's words are those of torch 2.13, Horovod's of 0.28.
TOO_LARGE = """[1,{0}]<stderr>:terminate called after throwing an instance of 'gloo::EnforceNotMet'
[1,{0}]<stderr>:  what():  [enforce fail at pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4
[1,{1}]<stderr>:    work = group.allreduce([tensor], opts)
[1,{2}]<stderr>:    work = group.allreduce([tensor], opts)
mpirun noticed that process rank {0} with PID 13 on node n{3} exited on signal 6 (Aborted)."""
COMPARED = (
    "[{}]<stderr>:horovod.common.exceptions.HorovodInternalError: Mismatched ALLREDUCE tensor shapes: "
    "One rank sent a tensor of shape [4], but another rank sent a tensor of shape [8]."
)
# As named-ranks.patch has it say.
NAMED = (
    f"{COMPARED} Tensor allreduce.noname.1: rank 1 submits ALLREDUCE of float32 [8], "
    "ranks 0, 2 submit ALLREDUCE of float32 [4]; what to do: the same type, shape and operation on all ranks"
)
SUBMITTED = "[rank0]: ValueError: gradient: {}; what to do: the same type, shape and options on all ranks"
WAITING = (
    "ranks wait for different operations: rank 0 for gradient, rank 1 for loss, rank 2 for gradient; "
    "what to do: call the same operations with the same names on all ranks before waiting for one"
)
PARAMS = (
    "[rank{0}]: RuntimeError: [{0}]: params[0] in this process with sizes [9, 4] "
    "appears not to match sizes of the same param in process 0."
)
COUNTED = "[rank{}]: RuntimeError: DDP expects same model across all ranks, but Rank {} has {} params, while "


def lines(*words):
    return "\n".join(words)


@pytest.mark.parametrize(
    ("log", "hosts", "found", "words"),
    [
        (
            TOO_LARGE.format(0, 1, 2, 1),
            3,
            ("differ", (0, 1), ("n1", "n2")),
            "rank 1's tensor is too large or rank 0's too small",
        ),
        (TOO_LARGE.format(2, 0, 1, 3), 3, ("differ", (0, 2), ("n1", "n3")), "rank 0 sent rank 2 8 bytes"),
        # The ranks do not fill the hosts in their order.
        (TOO_LARGE.format(0, 1, 2, 2), 3, ("differ", (0, 1), ()), "rank 1 sent rank 0"),
        (lines(*map(COMPARED.format, range(3))), 3, ("differ", (), ()), "allreduce [4], another [8]"),
        (
            lines(*map(NAMED.format, range(3))),
            3,
            ("shapes", (1,), ("n2",)),
            "float32 [8], the others ALLREDUCE",
        ),
        (lines(*map(COMPARED.format, range(2))), 2, ("differ", (0, 1), ("n1", "n2")), "[4], another [8]"),
        (
            lines(SUBMITTED.format("ranks 0, 2 submit [4], rank 1 [8]"), "[rank1]: x", "[rank2]: x"),
            3,
            ("shapes", (1,), ("n2",)),
            "[8], the others [4]",
        ),
        (
            lines(*(f"[rank{at}]: RuntimeError: {WAITING}" for at in range(3))),
            3,
            ("behind", (1,), ("n2",)),
            "at loss, the others at gradient",
        ),
        (
            lines(SUBMITTED.format("rank 0 submits [4], rank 1 [8]"), "[rank1]: x"),
            2,
            ("differ", (0, 1), ("n1", "n2")),
            "rank 1 [8]",
        ),
        (lines(PARAMS.format(1), "[rank0]: x", "[rank2]: x"), 3, ("shapes", (1,), ("n2",)), "[9, 4]"),
        (lines(PARAMS.format(1), PARAMS.format(2), "[rank0]: x"), 3, ("shapes", (0,), ("n1",)), "[9, 4]"),
        (lines(PARAMS.format(1), "[rank0]: x"), 2, ("differ", (0, 1), ("n1", "n2")), "[9, 4]"),
        # More lines are alike than a log keeps.
        (
            lines("[rank0]: x", *(PARAMS.format(at) for at in range(1, 16))),
            2,
            ("shapes", (0,), ("n1",)),
            "[9, 4]",
        ),
        # Four ranks on two hosts.
        (lines(PARAMS.format(2), *(f"[rank{at}]: x" for at in range(4))), 2, ("shapes", (2,), ("n2",)), ""),
        # Not all ranks are in the log: where rank 2 ran is not known.
        (PARAMS.format(2), 3, ("shapes", (2,), ()), "[9, 4]"),
        (
            lines(
                COUNTED.format(0, 0, 3) + "rank 1 has inconsistent 4 params.",
                COUNTED.format(1, 1, 4) + "rank 0 has inconsistent 3 params.",
                COUNTED.format(2, 2, 3) + "rank 1 has inconsistent 4 params.",
            ),
            3,
            ("shapes", (1,), ("n2",)),
            "4 params, the others 3 params",
        ),
        (MISMATCH.format(0, 0, 4, 1, 8), 2, ("differ", (0, 1), ("n1", "n2")), "rank 0 [4]; rank 1 [8]"),
    ],
)
def test_the_log_of_other_shapes_names_rank_and_host_or_all_that_it_may_be(log, hosts, found, words):
    seen = {f"n{at + 1}": host(at) for at in range(hosts)}
    (job,) = judge(seen, {}, log=log)
    assert (job.culprit.id, job.culprit.ranks, job.culprit.hosts) == found
    assert words in job.culprit.why
    assert ("in this order" in job.culprit.where) == (len(found[2]) > ("PID" in log))


def test_a_log_says_nothing_of_the_job_that_was_asked_for_and_runs():
    hosts = {"n1": host(0, rank(0)), "n2": host(1, rank(1)), "n3": host(2, rank(2))}
    log = MPIRUN.format(9, "Killed")
    assert [bool(job.culprit) for job in judge(hosts, {}, log=log)] == [False, True]
    assert [bool(job.culprit) for job in judge(hosts, {}, log=log, which="42")] == [False]


def test_the_chatter_of_a_library_that_waits_is_no_reading():
    """As Horovod's Gloo did in six seconds."""
    odd = {"stack": LOADER, "io": 737_248, "threads_cpu": 1.1}
    assert judged(odd, {}, {"io": 484_120, "threads_cpu": 0.9}).culprit.id == "loader"


def test_of_as_many_ranks_in_two_calls_either_may_be_wrong():
    both = {f"n{at + 1}": host(at, rank(at, OTHER if at else WAIT, size=2)) for at in (0, 1)}
    assert "the others may be wrong" in judge(both, {})[0].culprit.why


def test_two_whole_jobs_of_one_program_are_two():
    jobs = [rank(at % 2, job=f"MASTER_PORT={at // 2}", size=2) for at in range(4)]
    assert [job.culprit for job in judge({"n1": host(0, *jobs)}, {})] == [None, None]


def test_ranks_that_all_stand_in_one_line_are_noted():
    assert "no rank came further" in judged().notes[0]


@pytest.mark.parametrize(
    ("user", "scope", "words"),
    [(1000, "1", "ptrace_scope is 1: ask as root"), (0, "3", "until a reboot"), (0, "0", "CAP_SYS_PTRACE")],
)
def test_stacks_that_are_refused_are_told_with_a_remedy(user, scope, words):
    odd = {"stack": [], "user": None, "why": "Permission Denied: Try running again with elevated permissions"}
    assert words in judged(odd, {"user": user, "ptrace_scope": scope}).notes[0]


def test_a_case_over_its_time_names_the_rank_that_computes():
    assert judged({"stack": MATMUL, "cpu": 1.0}, over=True).culprit.id == "computes"


@pytest.mark.parametrize(
    ("kernel", "found"), [([], "missing"), (["Out of memory: Killed process 9"], "memory")]
)
def test_a_rank_without_a_process_is_missed(kernel, found):
    hosts = {"n1": host(0, rank(0)), "n2": host(1, kernel=kernel), "n3": host(2, rank(2))}
    culprit = judge(hosts, {})[0].culprit
    assert (culprit.id, culprit.ranks, culprit.hosts) == (found, (1,), ("n2",))


def test_of_a_job_that_just_ends_no_rank_is_blamed_for_another():
    """As horovodrun ended the rest while hosts looked."""
    hosts = {"n1": host(0, rank(0)), "n2": host(1, kernel=KILLED), "n3": host(2, rank(2, states="SSX"))}
    culprit = judge(hosts, {})[0].culprit
    assert (culprit.id, culprit.ranks, culprit.hosts) == ("memory", (), ("n2",))
    (job,) = judge(hosts, {}, log=HOROVODRUN.format(137))
    assert (job.culprit.ranks, job.culprit.hosts) == ((1,), ("n2",))


def test_the_record_of_a_case_over_its_time_keeps_the_answer(tmp_path):
    own = {"job": "HVLAB_CASE=R/case", "size": 2}
    seen = {
        "n1": host(0, rank(0, **own)),
        "n2": host(1, rank(1, LOADER, **own)),
        "n3": "no answer within 30 s",
    }
    (tmp_path / "standing.json").write_text(json.dumps(seen))
    (tmp_path / "case.json").write_text(json.dumps({"timed_out": True, "rc": 1}))
    error = outcome(case(), tmp_path).error
    assert "ran over its 900 s and was ended: rank 1 on n2: " in error
    assert "its loader gives no batch" in error
    assert "what to do: look at the workers" in error


def test_the_record_of_a_case_with_other_shapes_names_who_sent_them(tmp_path):
    (tmp_path / "stderr").write_text(TOO_LARGE.format(0, 1, 2, 1))
    (tmp_path / "case.json").write_text(json.dumps({"timed_out": False, "rc": 134}))
    error = outcome(case(hosts=(3,), slots=(1,)), tmp_path).error
    assert error.startswith("ranks 0-1 on n1, n2: ")
    assert "rank 1 sent rank 0 8 bytes where it expected 4" in error


def test_a_host_that_does_not_answer_is_named():
    culprit = judge({"n1": host(0, rank(0)), "n3": host(2, rank(2))}, {"n2": "timed out"})[0].culprit
    assert (culprit.id, culprit.ranks, culprit.hosts) == ("silent", (1,), ("n2",))


def test_what_nobody_acknowledges_points_at_the_host_in_the_middle():
    addressed = [["10.0.0.2"], ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]]
    hosts = {f"n{at + 1}": host(at, rank(at, unacknowledged=own)) for at, own in enumerate(addressed)}
    assert judge(hosts, {})[0].culprit.hosts == ("n2",)


@pytest.mark.parametrize(
    ("own", "found", "words"),
    [
        (entry(4), "behind", "it came to collective 4, the others to 5"),
        (entry(5, "[[8]]"), "shapes", "[[8]], the others [[4]]"),
        (entry(5, name="gloo:broadcast"), "behind", "gloo:broadcast, the others gloo:all_reduce"),
    ],
)
def test_the_flight_recorder_names_rank_and_shape(own, found, words):
    culprit = judged(own, {}, entry(5)).culprit
    assert (culprit.id, culprit.ranks) == (found, (1,))
    assert words in culprit.why


def test_of_two_ranks_the_flight_recorder_blames_none():
    hosts = {"n1": host(0, rank(0, size=2, **entry(5))), "n2": host(1, rank(1, size=2, **entry(5, "[[8]]")))}
    culprit = judge(hosts, {})[0].culprit
    assert (culprit.id, culprit.ranks, culprit.hosts) == ("differ", (0, 1), ("n1", "n2"))
    assert "rank 0 [[4]]; rank 1 [[8]]" in culprit.why


@pytest.mark.parametrize(("which", "number"), [("", 1), ("42", 1), ("101", 1), ("43", 0)])
def test_a_job_is_named_by_a_pid_or_its_launcher(which, number):
    assert len(judge({"n1": host(0, rank(0), rank(1), rank(2))}, {}, which=which)) == number


# The form of docs/userguide/source/troubleshooting/ras.rst of github.com/NVIDIA/nccl.
def ras(counts, *, missing=(), error=0):
    status = {"init_state": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    ranks = [
        {
            **{"rank": at, "host": f"10.0.0.{at + 1}", "pid": 100 + at, "cuda_dev": 0, "nvml_dev": 0},
            "status": {**status, "async_error": error if at == 1 else 0},
            "collective_counts": {"Broadcast": 1, "AllReduce": count},
        }
        for at, count in enumerate(counts)
        if at not in missing
    ]
    gone = [
        {
            **{"rank": at, "host": f"10.0.0.{at + 1}", "pid": 100 + at, "cuda_dev": 0, "nvml_dev": 0},
            "status": {"unresponsive": True, "considered_dead": False},
        }
        for at in missing
    ]
    one = {"hash": "0xae94423cfbb2ef4a", "size": 3, "ranks": ranks, "missing_ranks": gone}
    return {"nccl_version": "2.29.1", "communicators_count": 1, "communicators": [one]}


@pytest.mark.parametrize(
    ("first", "last", "found", "words"),
    [
        (ras([9, 8, 9]), ras([9, 8, 9]), "behind", "it has launched 8 AllReduce, the others 9"),
        (ras([9, 8, 9]), ras([19, 18, 19]), None, ""),
        (ras([9, 9, 9]), ras([9, 9, 9]), None, ""),
        (ras([9, 9, 9]), ras([9, 9, 9], missing=(1,)), "behind", "not responsive"),
        (ras([9, 9, 9]), ras([9, 9, 9], error=6), "error", "number 6"),
    ],
)
def test_the_counts_of_ras_decide_and_not_its_summary(first, last, found, words):
    culprit = judged({}, {"ras": [{"localhost:28028": first}, {"localhost:28028": last}]}).culprit
    assert (culprit and culprit.id) == found
    assert culprit is None or (culprit.ranks == (1,) and words in culprit.why)


# What src/ras/client_support.cc answers; before 2.28.7 it does not know the format.
@pytest.mark.parametrize(
    ("set_format", "status", "expected"),
    [
        ("OK", json.dumps(ras([1, 1, 1])), ras([1, 1, 1])),
        ("ERROR: Unknown command SET FORMAT json", "The missing rank: 1\n", "The missing rank: 1\n"),
    ],
)
def test_ras_is_asked_in_its_own_protocol(monkeypatch, set_format, status, expected):
    listener = socket.create_server(("127.0.0.1", 0))
    said = []

    def answer():
        link, _ = listener.accept()
        with link, link.makefile("rb") as lines:
            for reply in ("SERVER PROTOCOL 2\n", set_format + "\n", status):
                said.append(lines.readline())
                link.sendall(reply.encode())

    thread = threading.Thread(target=answer)
    thread.start()
    with listener:
        assert program(monkeypatch, "standing").ask_ras(*listener.getsockname()) == expected
        thread.join()
    assert said == [b"CLIENT PROTOCOL 2\n", b"SET FORMAT json\n", b"VERBOSE STATUS\n"]


def frames(step, left):
    """Return py-spy's frames of a rank whose loader waits with a time limit, in a step of its loop."""
    places = [
        ("wait", "/usr/lib/python3.11/multiprocessing/connection.py", {"timeout": left}),
        (
            "_try_get_data",
            "/x/lib/python3.11/site-packages/torch/utils/data/dataloader.py",
            {"timeout": "5.0"},
        ),
        ("main", "/home/u/train.py", {"step": step}),
    ]
    return [
        {
            "name": name,
            "filename": file,
            "line": 7,
            "locals": [{"name": key, "repr": at} for key, at in own.items()],
        }
        for name, file, own in places
    ]


def test_a_wait_with_a_time_limit_is_no_progress(monkeypatch):
    filter_frames = program(monkeypatch, "standing").filter_frames
    steps = (("5", "4.2"), ("5", "0.3"), ("6", "4.2"))
    before, later, next_step = (filter_frames(frames(*own)) for own in steps)
    assert before["print"] == later["print"] != next_step["print"]
    assert before["counters"] == {"step": 5}


CHILD = "import subprocess; subprocess.run(['sleep', '60'])"


@pytest.mark.parametrize(
    ("argv", "named"), [(["cat"], "standard input"), ([sys.executable, "-c", CHILD], r"sleep \d+")]
)
def test_the_kernel_tells_what_a_process_waits_for(monkeypatch, argv, named):
    standing = program(monkeypatch, "standing")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            end = time.monotonic() + 10
            found = ""
            while not re.fullmatch(named, found) and time.monotonic() < end:
                children = standing.text(f"/proc/{process.pid}/task/{process.pid}/children").split()
                found = standing.blocked(process.pid, [*map(int, children)])[1]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert re.fullmatch(named, found)


def test_a_process_that_finds_no_core_is_busy(monkeypatch):
    standing = program(monkeypatch, "standing")
    files = {"/proc/7/task/7/schedstat": "1000000000 2000000000 5\n"}
    monkeypatch.setattr(standing, "text", lambda path: files[path])
    monkeypatch.setattr(standing.glob, "glob", lambda _: [*files])
    assert standing.wanted(7) == 3


def test_a_dump_is_read_without_its_classes(monkeypatch, tmp_path):
    standing = program(monkeypatch, "standing")
    plain, hostile = tmp_path / "plain", tmp_path / "hostile"
    entries = [{**entry(number)["recorder"][0], "is_p2p": False} for number in (1, 2)]
    plain.write_bytes(pickle.dumps({"version": "2.10", "entries": entries}))
    hostile.write_bytes(pickle.dumps({"entries": [print]}))
    assert [each["collective_seq_id"] for each in standing.dump(str(plain))] == [2]
    assert standing.dump(str(hostile)) == []


def test_horovods_stall_lines_name_the_missing_ranks():
    lines = ["[1,0]<stderr>:Stalled ranks:", "[1,0]<stderr>:1: [a, b]"]
    both = {
        f"n{at + 1}": host(at, rank(at, WAIT if at else OTHER, size=2), stall_lines=lines) for at in (0, 1)
    }
    assert judge(both, {})[0].culprit.ranks == (1,)


@pytest.mark.parametrize(("own", "found"), [(True, True), (False, False)])
def test_root_runs_no_program_that_another_users_rank_names(monkeypatch, tmp_path, own, found):
    standing = program(monkeypatch, "standing")
    spy = tmp_path / "py-spy"
    spy.touch(mode=0o755)
    monkeypatch.setattr(standing.sys, "executable", "/nowhere/python3")
    monkeypatch.setattr(standing, "TRUSTED", ())
    uid = standing.os.getuid() + (not own)
    assert (standing.spy_of({"uid": uid, "env": {"PATH": str(tmp_path)}}) == str(spy)) == found


def test_what_is_no_pipe_is_not_written(monkeypatch, tmp_path):
    standing = program(monkeypatch, "standing")
    monkeypatch.setattr(standing.time, "sleep", lambda _: None)
    (tmp_path / "secret").write_text("root's")
    (tmp_path / "fr3.pipe").symlink_to(tmp_path / "secret")
    env = {"TORCH_FR_DUMP_PIPE_FILE": str(tmp_path / "fr"), "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "none")}
    own = {"env": env, "rank": 3, "pid": standing.os.getpid(), "uid": standing.os.getuid()}
    assert standing.read_flight_recorder(own) == []
    assert (tmp_path / "secret").read_text() == "root's"


def test_kills_for_memory_are_counted_in_both_kinds_of_control_groups(monkeypatch):
    standing = program(monkeypatch, "standing")
    files = {
        "/proc/7/cgroup": "4:memory:/job/7\n0::/job\n",
        "/sys/fs/cgroup/memory/job/7/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        "/sys/fs/cgroup/job/memory.events": "oom 0\noom_kill 2\n",
    }
    monkeypatch.setattr(standing, "text", lambda path: files.get(path, ""))
    assert standing.memory_kills([{"pid": 7}]) == 3


def test_ranks_of_this_host_are_told_from_their_environment(monkeypatch):
    identity = program(monkeypatch, "standing").identity
    own = identity({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_NAMESPACE": "7"})
    assert (own["rank"], own["size"], own["job"]) == (3, 8, "PMIX_NAMESPACE=7")
    assert identity({"HOME": "/root"}) is None


def test_the_program_answers_in_the_shape_that_is_read(monkeypatch, capsys):
    standing = program(monkeypatch, "standing")
    monkeypatch.setattr("sys.argv", ["standing.py", "0", "1"])
    monkeypatch.setattr(standing, "kernel_lines", list)
    assert standing.main() == 0
    assert answers.load(capsys.readouterr().out, "here", HostStanding)["host"]


def test_a_job_that_runs_nowhere_is_no_answer(monkeypatch):
    monkeypatch.setattr(standing, "ask", lambda *_, **__: ({}, {}))
    doctor_job.examine(lab(1), "", [], seconds=2, output_format="table")
    with pytest.raises(CheckError, match=r"no rank of 2523 runs on n1"):
        doctor_job.examine(lab(1), "2523", [], seconds=2, output_format="table")
    log = [f"[rank{at}]: torch.OutOfMemoryError: CUDA out of memory." for at in (0, 1)]
    with pytest.raises(CheckError, match=r"no rank of a job runs on n1.*; its log says: ."):
        doctor_job.examine(lab(1), "", log, seconds=2, output_format="table")
