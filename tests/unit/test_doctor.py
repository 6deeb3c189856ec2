"""hvlab doctor: logs as they come, the order of causes, what is printed, exit codes."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.cli import run
from hvlab.doctor import text
from hvlab.doctor.reading import diagnose


def ids(log):
    return [each.cause.id for each in diagnose(log.split("\n")).causes]


def words(log):
    return [line.text for line in text.read(log.split("\n")).lines]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[1,0]<stderr>:",
        "[1,mpirank:0,algo-1]<stdout>:",
        "[0]<stderr>:",
        "[rank1]: ",
        " 3: ",
        "Thu Aug 29 21:45:08 2019[1]<stdout>:",
        "2024-05-01T10:00:00.123456789Z ",
        "2024-05-01T10:00:00.123456789Z stderr F ",
        "May  1 10:00:00 n1 sshd[123]: ",
        "May  1 10:00:00 n1 kernel: [12345.678901] ",
        "[pod/job-launcher-x1/mpi] ",
        "worker-1  | ",
        "(RayTrainWorker pid=933, ip=10.0.0.2) ",
        "#12 34.56 ",
        "> ",
        "\x1b[0;31m",
        "\x1b]0;title\x07",
    ],
)
def test_what_stands_before_a_line_is_taken_away(prefix):
    assert words(f"{prefix}Host key verification failed.\x1b[0m\r") == ["Host key verification failed."]


def test_ranks_among_one_another_are_read_one_after_another():
    log = """\
[1,0]<stderr>:There are not enough
[1,1]<stderr>:epoch 1
[1,0]<stderr>:slots available in the
[1,2]<stderr>:epoch 1
[1,0]<stderr>:system to satisfy the 4 slots"""
    found = diagnose(log.split("\n")).causes
    assert [each.cause.id for each in found] == ["not-enough-slots"]
    assert [number for number, _ in found[0].lines] == [1, 3, 5]


def test_lines_cut_at_the_terminals_width_are_put_together():
    whole = "n1: error while doing something that takes long to tell: Host key verification failed and so on"
    log = "\n".join([whole[:80], whole[80:], "x" * 80, "end"])
    assert "failed" not in whole[:80].split()
    assert ids(log) == ["host-key"]


def test_json_of_ansible_is_read_line_by_line():
    log = r'fatal: [n1]: FAILED! => {"stderr": "E: x\r\nsudo: a password is required\r\n"}'
    assert ids(log)[0] == "sudo-password"


def test_the_root_comes_before_what_it_caused():
    log = """\
ORTE was unable to reliably start one or more daemons.
srun: error: n1: task 0: Exited with exit code 1
Host key verification failed."""
    assert ids(log) == ["host-key", "orte-unreliable", "srun-ended"]


def test_a_crash_in_mpi_init_under_srun_comes_before_the_peers_that_miss_it():
    log = """\
0: An MPI communication peer process has unexpectedly disconnected.
2: [n3:21] *** Process received signal ***
2: [n3:21] Signal: Segmentation fault (11)
2: [n3:21] Failing at address: (nil)
2: [n3:21] [ 5] /opt/openmpi/lib/libmpi.so.40(ompi_mpi_init+0x6e5)[0x7f]
srun: error: n3: task 2: Segmentation fault"""
    assert ids(log)[0] == "slurm-early-mpi-init"
    assert "peer-disconnected" in ids(log)


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (
            "[rank1]: Traceback (most recent call last):\n[rank1]: KeyError: 'rate'",
            "script-exception",
        ),
        ("n2:21: *** Process received signal ***\nn2:21: Signal: Segmentation fault (11)", "rank-segfault"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=101.0.", "slurm-memory"),
    ],
)
def test_what_ended_one_rank_comes_before_the_time_that_the_others_waited(first, cause):
    late = "[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8)"
    end = "Primary job  terminated normally, but 1 process returned\na non-zero exit code."
    assert ids(f"{first}\n{late}\n{end}")[0] == cause


def test_a_play_without_hosts_is_no_cause_where_others_ran():
    play = "PLAY [Add GPUs] ****\nskipping: no hosts matched"
    recap = "PLAY RECAP ****\nn1                         : ok=46   changed=15   unreachable=0    failed=0"
    assert ids(play) == ["ansible-no-hosts"]
    assert not ids(f"{play}\n{recap}")


def test_a_line_that_is_noise_is_no_cause():
    log = "n1:1:1 [0] NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object file: No such file"
    found = diagnose([log])
    assert not found.causes
    assert [each.cause.id for each in found.harmless] == ["nccl-no-plugin"]


def test_the_same_from_many_ranks_is_told_once():
    log = [f"[1,{rank}]<stderr>:CUDA out of memory. Tried to allocate {rank} GiB" for rank in range(64)]
    (found,) = diagnose(log).causes
    assert len(found.lines) == 4
    assert found.count == 12


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "job.log"

    def write(content):
        path.write_bytes(content)
        return str(path)

    return write


def test_table(log, capsys):
    assert (
        run(["doctor", "--log", log(b"a\nRead -1, expected 5, errno = 1\nHost key verification failed.\n")])
        == 1
    )
    out = capsys.readouterr().out
    assert out.startswith("1. the host key is unknown, so ssh refuses the host\n  line 3: Host key verif")
    assert "\n  why: " in out
    assert "\n  what to do: " in out
    assert "\n  source: https://" in out
    assert "harmless:\n  a container does not allow single-copy transfers (line 2)" in out


def test_json(log, capsys):
    assert run(["doctor", "--format", "json", "--log", log(b"Host key verification failed.\n")]) == 1
    told = json.loads(capsys.readouterr().out)
    (cause,) = told["causes"]
    assert cause["id"] == "host-key"
    assert cause["lines"] == [{"number": 1, "text": "Host key verification failed."}]
    assert {"title", "why", "remedy", "source", "count"} < set(cause)
    assert told["harmless"] == []


@pytest.mark.parametrize(
    "content", [b"", b"all is well\n", b"\xff\xfe\x00", b"Read -1, expected 5, errno = 1\n"]
)
def test_exit_code_0_where_nothing_is_known_or_all_is_harmless(log, capsys, content):
    assert run(["doctor", "--log", log(content)]) == 0
    assert "nothing known" in capsys.readouterr().out


def test_exit_code_2_where_there_is_no_such_file(tmp_path, capsys):
    assert run(["doctor", "--log", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert run(["doctor", "--log", str(tmp_path / "none"), "--fix"]) == 2


def test_escapes_of_the_log_do_not_reach_the_terminal(log, capsys):
    run(["doctor", "--log", log(b"\x1b]0;x\x07\x1b[2JHost key verification\x08 failed.\x9b31m\n")])
    assert not [c for c in capsys.readouterr().out if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]


@pytest.mark.parametrize(
    "log",
    [
        "x" * 24_000_000,
        " " * 24_000_000,
        "error: " * 3_000_000,
        "\n".join(f"epoch {n} loss {n}" for n in range(300_000)),
        "[" * 200_000,
        "\n".join(["a" * 80] * 20_000),
        " \n" * 500_000,
    ],
    ids=["one line", "blanks", "words", "progress", "brackets", "full lines", "empty lines"],
)
def test_hostile_logs_take_seconds(log):
    begun = time.process_time()
    diagnose(log.split("\n"))
    assert time.process_time() - begun < 10


@given(st.lists(st.text(max_size=200), max_size=20))
def test_any_text_is_read(lines):
    diagnose(lines)


def test_the_end_of_a_very_large_log_is_read():
    noise = [
        f"{chr(97 + n % 26) * (n % 90)} {chr(97 + n % 23) * (n % 71)} {'q' * (n % 61)}" for n in range(40_000)
    ]
    (found,) = diagnose([*noise, "Host key verification failed."]).causes
    assert found.lines[0][0] == 40_001
