"""What hvlab_horovod decides without torch; its ranks are tested where torch is."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from hvlab_horovod import launch, run
from hvlab_horovod.alias.horovod.common import buckets, place, stalls, threads
from hvlab_horovod.alias.horovod.common.agreement import Agreement, Message, Request, agree

A, B = Request("allreduce", [1], 0), Request("allreduce", [2], 0)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, place.Place()),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, place.Place()),
        (
            {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "7"},
            place.Place(3, 4, 1, 0, "a", 7),
        ),
        (
            {
                **{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "a"},
                **{"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            },
            place.Place(1, 2, 1, 2, "127.0.0.1", 20097),
        ),
        (
            {
                **{"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "2"},
                **{"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "gpu[03-07,9],b"},
            },
            place.Place(1, 2, 0, 0, "gpu03", 20219),
        ),
        # Intel MPI starts one process a node by srun. Kubernetes' operators give no local rank.
        (
            {
                **{"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"},
                **{"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "2"},
                **{"MASTER_ADDR": "a", "MASTER_PORT": "7"},
            },
            place.Place(1, 4, 0, 2, "a", 7),
        ),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "7"},
            place.Place(1, 2, -1, 0, "a", 7),
        ),
    ],
)
def test_place(environment, expected):
    assert place.find(environment) == expected


def test_no_meeting_place():
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    environment = {f"OMPI_COMM_WORLD_{name}": value for name, value in zip(names, "0201", strict=True)}
    with pytest.raises(RuntimeError, match="mpirun -x MASTER_ADDR"):
        place.find(environment)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a,b", "a"), ("a[1-2]", "a1"), ("a[3,5]-x,c", "a3-x"), ("a-b[01]", "a-b01")],
)
def test_first_node(nodes, first):
    assert place.first_node(nodes) == first


@pytest.mark.parametrize(
    ("messages", "ready"),
    [
        # Submitted in different orders: that of the first rank.
        ([Message({"a": A, "b": B}), Message({"b": B, "a": A})], ["a", "b"]),
        # What one rank lacks is for later.
        ([Message({"a": A, "b": B}, waits="b"), Message({"a": A}, waits="a")], ["a"]),
        # A rank that only polls may yet submit.
        ([Message({"a": A}, waits="a"), Message({"b": B})], []),
        # A rank that has joined takes part in what the others have.
        ([Message(joined=1.0), Message({"a": A}, waits="a")], ["a"]),
    ],
)
def test_agreement(messages, ready):
    agreement = agree([Message.decode(message.encode()) for message in messages], [0, 1])
    assert [one.name for one in agreement.ready] == ready
    assert not agreement.stuck
    assert not any(one.error for one in agreement.ready)


def test_ranks_that_wait_for_different_operations():
    stuck = agree([Message({"a": A}, waits="a"), Message({"b": B}, waits="b")], [0, 3]).stuck
    assert stuck.startswith("ranks wait for different operations: rank 0 for a, rank 3 for b")


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([Message({"a": A}), Message({"a": B})], r"a: rank 0 submits \[1\], rank 1 \[2\]"),
        (
            [
                Message({"a": Request("allreduce", [0, 1.0, [["float32", 1, [shape], "cpu"]]])})
                for shape in (2, 3)
            ],
            r"a: rank 0 submits \[2\], rank 1 \[3\];",
        ),
        (
            [
                Message({"a": Request("allreduce", [0, 1.0, [["float32", 1, [shape], "cpu"]]])})
                for shape in (3, 2, 2)
            ],
            r"a: ranks 1, 2 submit \[2\], rank 0 \[3\];",
        ),
        ([Message({"a": Request("broadcast")}), Message(joined=1.0)], "a: a rank has joined"),
    ],
)
def test_contradictions(messages, error):
    (ready,) = agree(messages, [*range(len(messages))]).ready
    with pytest.raises(ValueError, match=error):
        raise ValueError(ready.error)


@pytest.mark.parametrize(
    ("message", "waits"), [(Message({"a": A}, waits="a"), "a"), (Message(joined=1.0), r"hvd\.join\(\)")]
)
def test_a_rank_that_has_left_is_named(message, waits):
    stuck = agree([message, Message(leaves=True)], [0, 3]).stuck
    assert re.match(rf"rank 3 has left, and others wait: rank 0 for {waits};", stuck)


def test_ranks_leave_together():
    """A rank that is not waiting may have something to do before it leaves."""
    leaves = Message.decode(Message(leaves=True).encode())
    assert agree([leaves, leaves], [0, 1]).over
    assert agree([leaves, Message({"a": A})], [0, 1]) == Agreement([])


class Slow:
    """An exchange that takes some looks; ``wait`` as torch.distributed has it."""

    def __init__(self, looks):
        self.looks = looks

    def wait(self, _=None):
        self.looks -= 1
        if self.looks >= 0:
            raise RuntimeError("Operation timed out!")

    def is_completed(self):
        return False


class Store(dict):
    def set(self, key, value):
        self[key] = value

    def check(self, keys):
        return all(key in self for key in keys)


@pytest.mark.parametrize(("waits", "missing"), [([5], "1, 7"), ([5, 7], "1"), ([1, 5, 7], ""), ([1, 5], "")])
def test_the_first_rank_that_waits_names_the_others(monkeypatch, capsys, waits, missing):
    monkeypatch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "2")
    store = Store({f"stall.[1, 5, 7].3.{rank}": "" for rank in waits})
    stalls.wait(Slow(3), "allreduce.a", [1, 5, 7], 3, 5, store)
    # A rank that has joined may wait for long.
    stalls.wait(Slow(3), "", [1, 5, 7], 4, 5, store)
    said = capsys.readouterr().err
    named = re.findall(r"rank 5 has waited 2 s for allreduce\.a \[missing ranks: (.*)\]; what", said)
    assert named == [missing] * bool(missing)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (60, 0)),
        ({"STALL_SHUTDOWN_TIME_SECONDS": "5"}, (60, 60)),
        ({"STALL_CHECK_TIME_SECONDS": "0", "STALL_SHUTDOWN_TIME_SECONDS": "5"}, (0, 5)),
        ({"STALL_CHECK_DISABLE": "1", "STALL_SHUTDOWN_TIME_SECONDS": "5"}, (0, 0)),
    ],
)
def test_limits_of_a_stall(variables, expected):
    assert stalls.limits({f"HOROVOD_{name}": value for name, value in variables.items()}) == expected


def test_a_stall_ends(monkeypatch):
    monkeypatch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "0")
    monkeypatch.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2")
    with pytest.raises(RuntimeError, match=r"rank 0 has waited 2 s for step\.0 \[missing ranks: 1\];"):
        stalls.wait(Slow(9), "step.0", [0, 1], 1, 0, Store())


def test_rank_that_joins_last():
    assert agree([Message(joined=2.0), Message(joined=1.0)], [0, 1]).last == 0


MIB = 2**20


@pytest.mark.parametrize(
    ("order", "sizes", "kinds", "groups", "expected"),
    [
        # The first bucket is small, and each is closed by its last gradient.
        ([2, 1, 0], [MIB, MIB // 2, MIB // 2], "aaa", [], [[2, 1], [0]]),
        ([0, 1, 2], [9 * MIB, 9 * MIB, 2], "aaa", [], [[0], [1, 2]]),
        ([0, 1, 2, 3], [4, 4, 4, 4], "abab", [], [[0, 2], [1, 3]]),
        ([0, 1, 2, 3], [4, 4, 4, 4], "aaaa", [[0, 3]], [[1, 2], [0, 3]]),
    ],
)
def test_buckets(order, sizes, kinds, groups, expected):
    assert buckets.plan(order, dict(enumerate(sizes)), dict(enumerate(kinds)), groups, 25 * MIB) == expected


def test_groups_of_a_number():
    assert [list(part) for part in buckets.split(range(5), 2)] == [[0, 1], [2, 3, 4]]
    assert [list(part) for part in buckets.split(range(2), 5)] == [[0], [1]]


@pytest.mark.skipif(sys.platform != "linux", reason="schedules threads as Linux does")
@pytest.mark.parametrize(("name", "batch"), [("gloo_tcp_loop", True), ("gloo_other", False)])
def test_threads_that_receive_interrupt_nobody(name, batch):
    named, end = threading.Event(), threading.Event()

    def receive():
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        named.set()
        end.wait()

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        assert named.wait(10)
        threads.calm()
        assert (os.sched_getscheduler(thread.native_id) == os.SCHED_BATCH) is batch
    finally:
        end.set()
        thread.join()


def started(*words, environment=None):
    return launch.ranks(launch.parse(words), "192.0.2.1", 7, environment or {})


def test_ranks_by_ssh():
    first, *_, last = started(
        *("-np", "3", "-H", "a:2,b-1:2", "-p", "22", "--network-interface", "eth1", "--gloo"),
        *("python", "train.py", "--lr", "0.1; rm"),
        environment={"OMP_NUM_THREADS": "1", "HF_TOKEN": "x"},
    )
    assert last.host == "b-1"
    *ssh, command = last.argv
    assert ssh == [
        "ssh",
        "-tt",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=yes",
        "-p",
        "22",
        "--",
        "b-1",
    ]
    assert command.endswith("python train.py --lr '0.1; rm'")
    assert "OMP_NUM_THREADS=1" in command
    assert "HF_TOKEN" not in command
    assert "GLOO_SOCKET_IFNAME=eth1" in command
    assert [rank.environment["HOROVOD_LOCAL_RANK"] for rank in (first, last)] == ["0", "0"]
    assert last.environment["HOROVOD_HOSTNAME"] == "b-1"
    assert [rank.environment["HOROVOD_CROSS_SIZE"] for rank in (first, last)] == ["2", "2"]


def test_ranks_on_this_host():
    first, second = started("-np", "2", "python", "x.py", environment={"PYTHONPATH": "lib"})
    assert (first.host, first.argv) == ("", ("python", "x.py"))
    assert second.environment["PYTHONPATH"] == f"{launch.ALIAS}:lib"


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (("--timeline-filename", "t.json"), "TIMELINE", "t.json"),
        (("--no-stall-check",), "STALL_CHECK_DISABLE", "1"),
        (("--stall-check",), "STALL_CHECK_DISABLE", "0"),
        (("--stall-check-shutdown-time-seconds", "9"), "STALL_SHUTDOWN_TIME_SECONDS", "9"),
    ],
)
def test_options_that_the_ranks_read(words, name, value):
    (rank,) = started("-np", "1", "--gloo", *words, "python", "x.py")
    assert rank.environment[f"HOROVOD_{name}"] == value


def test_every_option_of_horovodrun_is_known(capsys):
    """By name, as its help has them; none is taken for another."""
    for name, values in {**launch.IGNORED, **dict.fromkeys(launch.REFUSED, 0)}.items():
        with contextlib.suppress(SystemExit):
            assert launch.parse(["-np", "1", name, *["1"] * values, "x"]).command == ["x"]
        assert "unrecognized" not in capsys.readouterr().err
    assert launch.parse(["-np", "1", "-prefix-timestamp", "--no-timeline-mark-cycles", "--", "x"]).timestamp


@pytest.mark.parametrize("words", [("-H", "a:1"), ("-H", "a:1,-oProxyCommand=x y:1"), ("-H", "a:x")])
def test_hosts_that_cannot_be(words):
    with pytest.raises(ValueError, match="what to do: -H"):
        started("-np", "2", *words, "x")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--mpi", "x"), "--mpi has no counterpart here; what to do: mpirun"),
        (("--min-np", "1", "x"), "what to do: torchrun --max-restarts"),
        ((), "no command"),
    ],
)
def test_refused_options(words, error, capsys):
    with pytest.raises(SystemExit):
        launch.parse(["-np", "2", *words])
    assert error in capsys.readouterr().err


def test_ignored_options():
    options = launch.parse(["-np", "2", "--cycle-time-ms", "3", "--autotune", "x"])
    assert (options.ignored, options.command) == (["--cycle-time-ms", "--autotune"], ["x"])


def test_hostfile(tmp_path):
    (tmp_path / "hosts").write_text("# lab\na slots = 1 max_slots=4\nb\n\nc:2\na slots=1\nd:0\n")
    options = launch.parse(["-np", "5", "--hostfile", str(tmp_path / "hosts"), "x"])
    assert launch.slots(options) == [("a", 2), ("b", 1), ("c", 2)]
    (tmp_path / "hosts").write_text("a gpus=2\n")
    with pytest.raises(ValueError, match=r"'a gpus=2'; what to do: .*/hosts: lines as `host slots=2`"):
        launch.slots(options)


def test_a_meeting_place_that_others_reach(monkeypatch):
    addresses = {"me": "127.0.1.1", "you": "192.0.2.7", "he": "127.0.0.1"}
    monkeypatch.setattr(run, "_address", addresses.__getitem__)
    assert run.find_meeting_place(["me"], ["me"])[0] == "127.0.0.1"
    assert run.find_meeting_place(["you", "me"], ["me"])[0] == "192.0.2.7"
    with pytest.raises(ValueError, match=r"he is 127\.0\.0\.1 here, which is not he"):
        run.find_meeting_place(["he", "me"], ["me"])
    with pytest.raises(ValueError, match="localhost means another host on each"):
        run.find_meeting_place(["localhost", "you"], ["localhost"])


def test_names_of_this_host(monkeypatch):
    monkeypatch.setattr(run, "_address", {"me": "127.0.0.1", "you": "192.0.2.7"}.__getitem__)
    assert [name for name in ("me", "you") if run.is_own(name)] == ["me"]


def started_here(*words, **options):
    argv = [sys.executable, "-m", "hvlab_horovod.run", *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("-np", "0", "x"), 2, b"with the number of ranks"),
        (("-np", "2", "no-such-command"), 127, b"this host cannot start the ranks: [Errno 2]"),
    ],
)
def test_what_cannot_start(words, code, error):
    process = started_here(*words)
    assert error in process.communicate(timeout=30)[1]
    assert process.returncode == code


def runs(pid):
    """Return whether a process runs, and is no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends children as Linux does")
@pytest.mark.parametrize("sent", [signal.SIGHUP, signal.SIGKILL])
def test_ranks_end_with_their_launcher(sent):
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    # Under nohup SIGHUP would be ignored.
    process = started_here(
        *("-np", "1", sys.executable, "-S", "-c", program),
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),
    )
    rank = int(process.stdout.readline().rpartition(b":")[2])
    process.send_signal(sent)
    process.communicate(timeout=20)
    deadline = time.monotonic() + 20
    while runs(rank):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lines_and_progress_bars():
    program = r"""import sys; sys.stdout.buffer.write(b"1%\r2%\r\nodd \xff\r\r3%")"""
    said, _ = started_here("-np", "1", sys.executable, "-S", "-c", program).communicate(timeout=30)
    parts = (b"1%\r", b"2%\n", b"odd \xff\r", b"\r", b"3%")
    assert said == b"".join(b"[0]<stdout>:" + part for part in parts)


def test_a_reader_that_has_enough():
    program = "for number in range(50000): print(number)"
    with started_here("-np", "1", sys.executable, "-S", "-c", program) as process:
        assert process.stdout.readline() == b"[0]<stdout>:0\n"
        process.stdout.close()
        assert (process.wait(30), process.stderr.read()) == (0, b"")


def test_a_rank_that_fails_ends_the_others(tmp_path):
    program = "import os, sys, time; os.environ['HOROVOD_RANK'] == '1' and sys.exit(7); time.sleep(60)"
    argv = [sys.executable, "-m", "hvlab_horovod.run", "-np", "2", sys.executable, "-S", "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, "rank 1 on this host ended with 7" in done.stderr) == (7, True)


@pytest.mark.parametrize("words", [("x.py",), ("-m", "x")])
def test_alias_is_first_for_a_script_and_its_children(words, tmp_path):
    (tmp_path / "x.py").write_text(
        "import sys, os, horovod; print(horovod.__version__, os.environ['PYTHONPATH'], sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-m", "hvlab_horovod", *words, "7"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(launch.ALIAS.parents[1])},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.startswith(f"0.28.1+torch.distributed {launch.ALIAS}")
    assert done.stdout.endswith("['7']\n")


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("import horovod.tensorflow.keras", "install Horovod"),
        ("from horovod import keras", "install Horovod"),
        ("from horovod.runner import run", "start the script by hvlab-run"),
        ("import horovod; horovod.run(print, np=2)", "start the script by hvlab-run"),
    ],
)
def test_modules_without_counterpart(line, remedy):
    program = f"import sys; sys.path.insert(0, {str(launch.ALIAS)!r}); {line}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert re.search(rf"hvlab_horovod has no horovod\.\w+[:;].*what to do: {remedy}", done.stderr)
