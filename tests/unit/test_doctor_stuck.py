"""A job that stands still, of which only text is in hand: who waits where, by what programs print of it."""

import json
import re
import socket
import threading

import pytest
from click.testing import CliRunner

from hvlab.cli.doctor import command
from hvlab.doctor import last_words, recorders
from hvlab.doctor.reading import LOST, diagnose
from tests.unit.programs import program
from tests.unit.test_standing import ras

TIMED_OUT = (
    "[rank{0}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={1}, OpType={2}, Timeout(ms)=600000) ran for 600060 milliseconds"
)
LATE = "[Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 2000000 ms"
MISMATCH = (
    "Detected mismatch between collectives on ranks. Rank 1 is running collective: {}, "
    "but Rank 2 is running collective: {}."
)
FINGERPRINT = "CollectiveFingerPrint(SequenceNumber={}OpType={})"
STALL = "{} by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.".format(
    "One or more tensors were submitted to be reduced, gathered or broadcasted"
)
STALLED = f"[1,0]<stderr>:{STALL}\n[1,0]<stderr>:Stalled ranks:"
# github.com/NVIDIA/nccl docs/examples/08_ras/01_fault_detection, of 2.30.7, and its user guide.
MISSED = """Errors
======

INCOMPLETE
  Missing communicator data from 2 job processes

#0-0 (1bdb83b038775869) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 6 -- GPU 2 managed by process 3748989 on node node1
  Rank 7 -- GPU 3 managed by process 3748990 on node node1

Warnings
========

"""
BEHIND = """#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation {}
  Rank 7 has launched up to operation {} -- GPU 3 managed by process 1650386 on node node1

"""
# Here the others are listed.
AHEAD = """  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node 10.137.190.124
  Rank 13 -- GPU 5 managed by process 323033 on node 10.137.190.124
"""
# github.com/areal-project/AReaL issue 1245: the run was right.
CLEAN_END = """[rank0]:[W724 19:26:06.0 NCCL.cpp:1479] Warning: destroy_process_group() was not \
called before program exit, which can leak resources.
[rank1]:[W724 19:26:07.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=30): failed to recv
Exception raised from recvBytes at /pytorch/c10d/Utils.hpp:678 (most recent call first):
[rank1]:[W724 19:26:07.2 NCCL.cpp:1662] [PG ID 0 Rank 1] Failed to check the "should dump" flag on \
TCPStore, (maybe TCPStore server has shut down too early), with error: failed to recv, got 0 bytes"""
SAID = {
    "a watchdog of each rank, of more than a log as text keeps": (
        "\n".join(TIMED_OUT.format(rank, 1580, "ALLREDUCE") for rank in range(40) if rank != 7),
        "nccl-timeout",
        ["ranks 0-6,8-39 waiting in ALLREDUCE 1580"],
    ),
    "ranks that wait in different collectives": (
        TIMED_OUT.format(0, 619725, "_ALLGATHER_BASE")
        + "\n"
        + TIMED_OUT.format(3, 619727, "_REDUCE_SCATTER_BASE"),
        "nccl-timeout",
        ["rank 0 waiting in _ALLGATHER_BASE 619725", "rank 3 waiting in _REDUCE_SCATTER_BASE 619727"],
    ),
    "a watchdog's end": (
        "[rank5]:[E901 05:20:03.446595912 ProcessGroupNCCL.cpp:1899] [PG ID 0 PG GUID 0(default_pg) Rank 5] "
        "Process group watchdog thread terminated with exception: [Rank 5] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=460631, OpType=ALLREDUCE, NumelIn=1)\n",
        "nccl-timeout",
        ["rank 5 waiting in ALLREDUCE 460631"],
    ),
    # github.com/huggingface/open-r1 issue 620.
    "lines wrapped by a terminal": (
        "".join(
            f"{line[:100]}\n{line[100:]}\n"
            for line in (TIMED_OUT.format(rank, 4, "BROADCAST") for rank in (2, 3, 4, 5, 6))
        ),
        "nccl-timeout",
        ["ranks 2-6 waiting in BROADCAST 4"],
    ),
    # github.com/NVIDIA/nccl issue 1610.
    "a rank and its number in its group": (
        TIMED_OUT.format(12, 87, "ALLTOALL").replace("[Rank 12]", "[Rank 0]"),
        "nccl-timeout",
        ["rank 12 waiting in ALLTOALL 87"],
    ),
    "a watchdog before torch 2.0": (
        "[E NCCL.cpp:587] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)",
        "nccl-timeout",
        ["rank 3 of a group waiting in ALLREDUCE"],
    ),
    "a rank that timed out first": (
        "Received a dump signal due to a collective timeout from  rank 34 and we will try our best to dump",
        "nccl-timeout",
        ["told of a timeout: rank 34"],
    ),
    "a monitored barrier": (
        "\n".join(f"[Rank 0]: Rank {rank} failed to pass monitoredBarrier in 2 ms" for rank in (4, 5, 6, 7))
        + f"\n{LATE}",
        "nccl-timeout",
        ["ranks 4-7 did not come to the barrier"],
    ),
    "a monitored barrier whose rank 0 is silent": (
        "Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv "
        "from rank 0. Please check rank 0 logs for faulty rank.",
        "gloo-peer-gone",
        ["rank 3 reached the barrier", "no answer from rank 0", LOST],
    ),
    "fingerprints without shapes": (
        MISMATCH.format(FINGERPRINT.format(1, "BARRIER"), FINGERPRINT.format(0, "BARRIER")),
        "nccl-sizes-differ",
        ["rank 1 in BARRIER 1", "rank 2 in BARRIER 0"],
    ),
    "torch's analyser": (
        "Not all ranks joining collective 3 at entry 2\ngroup info: 0:default_pg\n"
        "collective: nccl:all_reduce\nmissing ranks: {1}\ninput sizes: [[4, 5]]",
        "flight-recorder",
        ["rank 1 did not join nccl:all_reduce 3"],
    ),
    "its culprits": (
        "error msg: "
        + ", ".join(
            f"Culprit rank {rank}; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[1025]]' "
            "does not match found input sizes: '[[4]]'"
            for rank in (22, 110)
        ),
        "flight-recorder",
        ["ranks 22,110: Expected input sizes: '[[1025]]' does not match found input sizes: '[[4]]'"],
    ),
    "RAS without two ranks": (
        MISSED,
        "ras-missing",
        ["rank 6: process 3748989 on node1"],
    ),
    "two answers of RAS with the same counts": (
        BEHIND.format(64, 60) * 2,
        "ras-behind",
        [
            "rank 7 has launched up to operation 60: process 1650386 on node1",
            "7 ranks have launched up to operation 64",
        ],
    ),
    "Horovod's missing ranks": (
        f"{STALL}\nStalled ops:\nGather_0 [missing ranks: 3, 6]\nReduce_1 [missing ranks: 3, 6]",
        "horovod-stall",
        ["missing: ranks 3,6"],
    ),
    "its newer words": (
        f"{STALLED}\n[1,0]<stderr>:2: [a.1, a.2 ...]\n[1,0]<stderr>:6: [a.1]",
        "horovod-stall",
        ["missing: ranks 2,6"],
    ),
    "its oldest words": (
        f"WARNING: {STALL} Stalled ops: Loss_0 [ready ranks: 3], grad/a [ready ranks: 2, 0, 1], "
        "grad/b [ready ranks: 0, 1, 2]",
        "horovod-stall",
        ["rank 3 waiting in Loss_0", "ranks 0-2 waiting in grad/a"],
    ),
}


@pytest.mark.parametrize(("log", "cause", "says"), SAID.values(), ids=SAID)
def test_who_waits_where_is_told(log, cause, says):
    found = diagnose(log.splitlines()).causes[0]
    assert (found.cause.id, list(found.says)) == (cause, says)


@pytest.mark.parametrize(
    "log",
    [
        f"{STALLED}\n[1,0]<stderr>:6: [a.1]\n[1,0]<stdout>:[step 84000] loss=1.4",
        BEHIND.format(64, 60),
        BEHIND.format(64, 60) + BEHIND.format(74, 60),
        AHEAD,
        CLEAN_END,
    ],
)
def test_what_passes_is_no_failure(log):
    assert not diagnose(log.splitlines()).causes


@pytest.mark.parametrize(
    ("log", "ranks", "homes"),
    [
        (LATE, [4, 5, 6, 7], {}),
        (MISSED, [6, 7], {6: "node1", 7: "node1"}),
        (MISMATCH.format(FINGERPRINT.format(1, "BARRIER"), FINGERPRINT.format(0, "BARRIER")), [1, 2], {}),
        (TIMED_OUT.format(3, 7, "ALLREDUCE"), None, {}),
        (f"{STALL}\nx [missing ranks: 3]", None, {}),
    ],
)
def test_the_log_of_a_job_that_ended_names_who_did_not_come(log, ranks, homes):
    found = last_words.read(log)
    assert (found and found.ranks, found.homes if found else {}) == (ranks, homes)


@pytest.mark.parametrize(
    ("first", "last", "ranks"),
    [
        ("", "  Missing communicator data from 1 rank\n  The missing rank: 21\n", [21]),
        ("", MISSED, [6, 7]),
        (BEHIND.format(64, 60), BEHIND.format(64, 60), [7]),
        (BEHIND.format(64, 60), BEHIND.format(65, 61), None),
        (AHEAD, AHEAD, None),
        (
            *[
                BEHIND.format(64, 60).replace(
                    "has launched up to operation 60", "has not launched any operations"
                )
            ]
            * 2,
            [7],
        ),
    ],
)
def test_ras_in_words_names_who_is_missing_or_behind(first, last, ranks):
    found = recorders.ras({"n1": {"ras": [{"here": first}, {"here": last}], "addresses": []}}, [])
    assert (found and found[1]) == ranks


@pytest.mark.parametrize(
    ("counts", "changes", "causes", "ranks"),
    [
        ([(9, 8, 9)] * 2, {}, ["ras-behind"], [1]),
        ([(9, 8, 9), (19, 18, 19)], {}, [], None),
        ([(9, 8, 9)], {}, [], None),
        ([(9, 9, 9)], {"missing": (1, 2)}, ["ras-missing"], [1, 2]),
        ([(9, 9, 9)], {"error": 6}, ["ras-error"], [1]),
    ],
)
@pytest.mark.parametrize("indent", [2, None])
def test_ras_as_json_in_a_file_says_the_same(counts, changes, causes, ranks, indent):
    log = "\nMon Nov 30\n".join(json.dumps(ras(each, **changes), indent=indent) for each in counts)
    log = re.sub(r'("nvml_dev": 0),(\s*"status": {\s*"unresponsive)', r"\1\2", log)
    found = last_words.read(log)
    assert [each.cause.id for each in diagnose(log.splitlines()).causes] == causes
    assert (found and found.ranks) == ranks
    assert not found or found.homes == {rank: f"10.0.0.{rank + 1}" for rank in ranks}


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("padb", [1, 2]), ("STAT", [2]), ("padb with numbers", None), ("pdsh", None), ("several gdb", None)],
)
def test_the_ranks_that_do_not_wait_with_the_others_are_named_by_their_stacks(name, ranks):
    found = last_words.read(STACKS[name][0])
    assert (found and found.ranks) == ranks


def test_ras_without_a_comma_is_read(monkeypatch):
    """As 2.28.9 wrote it: github.com/ray-project/ray/pull/64928."""
    rank = '{\n"rank": 1,\n"nvml_dev": 1\n"status": {\n"unresponsive": true\n}\n}'
    said = '{"communicators": [{"missing_ranks": [' + rank + "]}]}"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            link, _ = listener.accept()
            with link, link.makefile("rb") as lines:
                for reply in ("SERVER PROTOCOL 2\n", "OK\n", said):
                    lines.readline()
                    link.sendall(reply.encode())

        thread = threading.Thread(target=answer)
        thread.start()
        found = program(monkeypatch, "standing").ask_ras(*listener.getsockname())
        thread.join()
    assert found["communicators"][0]["missing_ranks"][0]["status"]["unresponsive"]


PY_SPY = """Process {0}: python train.py
Python v3.11.9 (/usr/bin/python3.11)

Thread {0} (idle): "MainThread"
    {1}
    main (train.py:31)
Thread 9{0} (active): "Thread-1"
    wait (threading.py:324)

"""
RULE = "-" * 17
GATHER = "all_gather (torch/distributed/c10d.py:2709)"
STACKS = {
    "py-spy": (
        "".join(PY_SPY.format(pid, GATHER) for pid in range(20, 36))
        + PY_SPY.format(36, "get (queue.py:170)\n    __next__ (fairseq/data/iterators.py:648)"),
        [
            "process {}: waiting in all_gather (distributed/c10d.py:2709) (16 of 17)".format(
                ", ".join(map(str, range(20, 36)))
            ),
            "process 36: __next__ (data/iterators.py:648) (1 of 17)",
        ],
    ),
    "a collective in another thread": (
        f'Thread 42 (idle): "MainThread"\n    backward (_tensor.py:522)\nThread 79 (active)\n    {GATHER}',
        ["stack 1: waiting in all_gather (distributed/c10d.py:2709)"],
    ),
    "processes that no line names": (
        f'Thread 42 (idle): "MainThread"\n    {GATHER}\nThread 43 (idle): "MainThread"\n    get (q.py:1)',
        [
            "stack 1: waiting in all_gather (distributed/c10d.py:2709) (1 of 2)",
            "stack 2: get (q.py:1) (1 of 2)",
        ],
    ),
    "faulthandler": (
        "Process 3 timed out with traceback:\nCurrent thread 0x00007ff3363ff700 (most recent call first):\n"
        '  File "threading.py", line 890 in _bootstrap\n\nThread 0x00007ff4 (most recent call first):\n'
        '  File "torch/distributed/distributed_c10d.py", line 2477 in barrier\n  File "t.py", line 8 in main',
        ["process 3: waiting in barrier (distributed/distributed_c10d.py:2477)"],
    ),
    # The outermost frame is first: github.com/apache/spark pull 53705.
    "pystack": (
        "Traceback for thread 2175 (python3.12) [] (most recent call last):\n"
        '    (Python) File "/x/job/train.py", line 9, in main\n        step()\n'
        '    (Python) File "/x/job/train.py", line 5, in step\n        load()\n',
        ["stack 1: step (job/train.py:5)"],
    ),
    "gdb's py-bt": (
        "Traceback (most recent call first):\n  Waiting for the GIL\n"
        '  File "/x/ddtrace/sampler.py", line 88, in sample\n    with self._lock:\n'
        '  File "/x/ddtrace/tracer.py", line 251, in start_span\n',
        ["stack 1: sample (ddtrace/sampler.py:88)"],
    ),
    "no stack but an exception": (
        'Traceback (most recent call last):\n  File "/x/job/train.py", line 9, in main\n    step()\n',
        [],
    ),
    "ranks that write at the same time": (
        "".join(
            f"[1,{rank}]<stderr>:{line}\n"
            for line in ("Timeout (0:01:00)!", "Thread 0x00007ff4 (most recent call first):")
            for rank in (0, 1)
        )
        + '[1,0]<stderr>:  File "/x/torch/distributed/c10d.py", line 7 in barrier\n'
        + '[1,1]<stderr>:  File "t.py", line 8 in load\n[1,0]<stderr>:  File "t.py", line 9 in main\n',
        ["[1,0]: waiting in barrier (distributed/c10d.py:7) (1 of 2)", "[1,1]: load (t.py:8) (1 of 2)"],
    ),
    "gdb": (
        "Rank 0\n#0  mca_btl_sm_fbox_read_header (hdr=0x7fa7) at ../../btl_sm_fbox.h:114\n"
        "#1  0x00007f in PMPI_Reduce (sendbuf=0x1,\n    root=0) at preduce.c:139\n=== Rank 1 ===\n"
        "Thread 2 (Thread 0x7fe9 (LWP 4)):\n#0  0x7f in hvd::(anonymous namespace)::Loop () from /x.so",
        [
            "rank 0: waiting in PMPI_Reduce (1 of 2)",
            "rank 1: hvd::(anonymous namespace)::Loop (1 of 2)",
        ],
    ),
    # As www.open-mpi.org/community/lists/devel/2011/01/8860.php has it.
    "padb": (
        f"""> Stack trace(s) for thread: 1
> {RULE}
> [0-63] (64 processes)
> {RULE}
> main() at ?:?
>  IMB_gather() at ?:?
>      {RULE}
>      [0,3-63] (62 processes)
>      {RULE}
>      PMPI_Gather() at pgather.c:175
>        mca_pml_ob1_recv() at pml_ob1_irecv.c:104
>      {RULE}
>      [1-2] (2 processes)
>      {RULE}
>      load() at mesh.c:302
> Stack trace(s) for thread: 2
> {RULE}
> [0-63] (64 processes)
> {RULE}
> start_thread() at ?:?
>   poll() at ?:?""",
        [
            "rank 0,3-63: waiting in PMPI_Gather (pgather.c:175) (62 of 64)",
            "rank 1-2: load (mesh.c:302) (2 of 64)",
        ],
    ),
    "padb with numbers": (
        f"Stack trace(s) for thread: 1\n  1: {RULE}\n  1: Branch 1 of 1, 10 processes, 100% of total [0-9]\n"
        f"  1: {RULE}\n  1: main() at ?:?\n  2:  PMPI_Barrier() at pbarrier.c:62\n  3:   poll() at ?:?",
        ["rank 0-9: waiting in PMPI_Barrier (pbarrier.c:62) (10 of 10)"],
    ),
    # github.com/open-mpi/ompi pull 7735.
    "DDT": (
        "Processes,Threads,Function\n14,14,main (osu_iallgather.c:110)\n14,14,  PMPI_Wait (pwait.c:74)\n"
        "2,2,    opal_progress (opal_progress.c:231)\n82,82,main (osu_iallgather.c:117)\n82,82,  read",
        ["82 processes: read (82 of 96)", "14 processes: waiting in PMPI_Wait (pwait.c:74) (14 of 96)"],
    ),
    # github.com/llnl/STAT issue 39; it also writes 6:[0-1,3-4,8-9] as the label.
    "STAT": (
        """digraph G {
 7 [pos="0,0", label="", function="main", source="/u/app.c", line="50", module="(null)"];
 2 [pos="0,0", label="PMPI_Barrier"];
 3 [pos="0,0", label="", function="do_io", source="/u/src/io.c", line="12"];
 7 -> 2 [label="6:[0-1,3-4,8-9]"]
 7 -> 3 [label="(null)", bv="[2]", count="(null)"]
}""",
        ["rank 0-1,3-4,8-9: waiting in PMPI_Barrier (6 of 7)", "rank 2: do_io (src/io.c:12) (1 of 7)"],
    ),
    "dshbak": (
        "".join(
            f"{RULE}\n{hosts}\n{RULE}\nTraceback for thread 21 (python3) [] (most recent call last):\n"
            f'    (Python) File "/x/torch/distributed/c10d.py", line 9, in {name}\n'
            for hosts, name in (("n[01-02,07]", "all_reduce"), ("n04", "_load"))
        ),
        [
            "n01, n02, n07: waiting in all_reduce (distributed/c10d.py:9) (3 of 4)",
            "n04: _load (distributed/c10d.py:9) (1 of 4)",
        ],
    ),
    "pdsh": (
        "".join(f"n{at}: {line}\n" for at in (1, 2) for line in PY_SPY.format(2, GATHER).splitlines()),
        [
            "process 2 on n1, process 2 on n2: waiting in all_gather (distributed/c10d.py:2709) (2 of 2)",
        ],
    ),
    "several gdb": (
        "PID 6:\n\n#0  0x2a in poll () from /lib64/libc.so.6\n#1  0x2b in PMPI_Barrier () from /x.so\n"
        "Process: 7\n(gdb) #0 0x2a in read () from /lib64/libc.so.6\n"
        "Rank 3`s backtrace taken at random:\nThread 1.4 (Thread 0x7f (LWP 3145)):\n#0  0x7f in main ()",
        [
            "process 6: waiting in PMPI_Barrier (1 of 3)",
            "process 7: read (1 of 3)",
            "rank 3: main (1 of 3)",
        ],
    ),
    "no stack": (
        'frame #0: c10::Error::Error(std::string) + 0x98\nThread pool (idle)\n  File "a.py", line 3, in b',
        [],
    ),
}


@pytest.mark.parametrize(("log", "told"), STACKS.values(), ids=STACKS)
def test_stacks_are_grouped_by_where_they_stand(log, told, tmp_path):
    assert list(diagnose(log.splitlines()).stacks) == told
    (tmp_path / "job.log").write_text(log)
    said = CliRunner().invoke(command, [str(tmp_path / "job.log")])
    assert (said.exit_code, "stacks:\n  " in said.output) == (0, bool(told))
    document = CliRunner().invoke(command, [str(tmp_path / "job.log"), "--format", "json"]).output
    assert json.loads(document)["stacks"] == told
