"""hvlab doctor: logs as they come, the order of causes, what is printed, exit codes."""

import bz2
import gzip
import json
import lzma
import random
import re
import subprocess
import sys
import time
from itertools import count, islice, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.cli import doctor_log, run
from hvlab.doctor import knowledge, reading, text
from hvlab.doctor.reading import diagnose
from tests.unit.fuzzing import MANY


def ids(log):
    return [each.cause.id for each in diagnose(log.split("\n")).causes]


def words(log):
    return [line.text for line in text.read(log.split("\n")).lines]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[1,0]<stderr>:",
        "[1,0][n1:4010]<stderr>:",
        "[prterun-n1-99@1,0]<stderr>: ",
        "[prterun-n1-99@1,0][n1:4010]<stdout>: ",
        "train-launcher-x7k2p mpi ",
        "train-worker-0 mpi-worker ",
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
        "2024-05-01 10:00:00,123 - INFO - ",
        "2024-05-01 10:00:00,123 - launch.run - ERROR - ",
        "[2024-05-01 10:00:00,123] [INFO] [launch.py:103:main] ",
        "[2024-05-01, 10:00:00 UTC] {subprocess.py:93} INFO - ",
        "2024-05-01 10:00:00.123 | INFO     | __main__:main:12 - ",
        "\x1b[0;31m",
        "\x1b]0;title\x07",
    ],
)
def test_what_stands_before_a_line_is_taken_away(prefix):
    assert words(f"{prefix}Host key verification failed.\x1b[0m\r") == ["Host key verification failed."]


@pytest.mark.parametrize("prefix", ["[1,0]<stderr>:", "2024-05-01T10:00:00Z ", "worker-1  | ", "> "])
def test_an_empty_line_is_none_behind_a_prefix_either(prefix):
    assert words(f"{prefix}\n{prefix}end") == ["end"]


@pytest.mark.parametrize(
    "quotes",
    ["''", "\u2018\u2019", "\u00e2\u20ac\u02dc\u00e2\u20ac\u2122"],
    ids=["plain", "typographic", "read as latin-1"],
)
def test_compilers_quote_as_the_language_of_the_shell_does(quotes):
    open_, close = quotes[: len(quotes) // 2], quotes[len(quotes) // 2 :]
    assert words(f"x.cc:1:2: error: {open_}is_same_v{close} is not a member of {open_}std{close}") == [
        "x.cc:1:2: error: 'is_same_v' is not a member of 'std'"
    ]


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


def test_what_a_rank_writes_in_several_goes_is_one_line():
    assert words("[1,0]<stderr>:Fatal Python error: [1,0]<stderr>:Segmentation fault[1,0]<stderr>:") == [
        "Fatal Python error: Segmentation fault"
    ]
    assert words("[1,0]<stderr>:step 1[1,1]<stderr>:step 2") == ["step 1[1,1]<stderr>:step 2"]


def test_what_ansible_tells_of_a_host_in_several_lines_stays_together():
    told = "n1 | FAILED => failed to transfer file to /ping:\n\nusage: sftp [-1246Cpqrv] [-B buffer_size]"
    assert ids(told) == ids(f"an earlier line\n{told}") == ["unknown-flag"]
    assert words("first\nn1  | second\nthird") == ["first", "third", "second"]


def test_hosts_before_every_line_are_taken_away():
    assert words("n1: There are not enough\nn2: epoch\nn1: slots available") == [
        "There are not enough",
        "slots available",
        "epoch",
    ]
    assert words("n1: There are\nnot enough") == ["n1: There are", "not enough"]


@pytest.mark.parametrize(
    "around",
    [
        [],
        ["x" * 80, "end"],
        ["x" * 80, "a longer line " * 20],
        ["a longer line " * 20],
        [f"[1,0]<stderr>:{'y' * 66}", "[1,0]<stderr>:end", "a longer line " * 20],
    ],
)
@pytest.mark.parametrize("prefix", ["", "[1,0]<stderr>:"])
@pytest.mark.parametrize("width", [80, 92])
def test_lines_cut_at_the_terminals_width_are_put_together(around, prefix, width):
    line = f"{prefix}n1: error".ljust(width - 16, ".") + ": Host key verification failed and so on"
    log = "\n".join([line[:width], line[width:], *around])
    assert "verification" not in log
    assert ids(log) == ["host-key"]


def test_a_line_that_only_has_a_terminals_width_stays_as_it_is():
    noise = "[n1:1] mca_base_component_repository_open: unable to open x: cannot open (ignored)".ljust(90)
    found = diagnose([noise, "Host key verification failed.", "a longer line " * 20])
    assert [each.lines[0][0] for each in found.causes] == [2]
    assert [each.cause.id for each in found.harmless] == ["component-ignored"]


def test_lines_of_one_width_that_others_follow_are_not_cut():
    warning = "transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : client reregistration"
    alike = [f"gpu1:{pid}:5386 [0] {warning}" for pid in (5021, 5023)]
    assert [len(line) for line in alike] == [100, 100]
    found = diagnose([*alike, "error: unrecognized arguments: --local-rank=0"]).causes
    assert [each.cause.id for each in found] == ["local-rank-argument"]
    limit = "srun: fatal: cpus-per-task set by two different environment variables SLURM_CPUS_PER_TASK=3 != "
    limit += "SLURM_TRES_PER_TASK=cpu=1"
    assert len(limit) == 120
    for after in ("[DEPRECATION WARNING]: Instead of sudo/sudo_user, use become", "  -c FILE  the settings"):
        assert ids(f"{limit}\n{after}") == ["slurm-options"]


def test_what_lines_say_only_if_put_together_rules_no_cause_out():
    built = "Building kernel modules\n  : [######] 100%\nERROR: Unable to load the kernel module 'nvidia.ko'."
    assert ids(built) == ids(f"{'x' * 85}\n{built}") == ["driver-not-loaded"]


def test_what_ssh_says_does_not_go_on_a_line_of_a_terminals_width():
    warning = "Warning: Permanently added 'n1,2001:db8::1' (ECDSA) to the list of known hosts."
    long = warning.replace("n1", "n1".ljust(120 - len(warning) + 2, "x"))
    assert len(long) == 120
    unknown = "ssh: Could not resolve hostname n2: Name or service not known"
    assert ids(f"{long}\n{unknown}\nend") == ["name-not-resolved"]


def test_an_exception_that_is_not_known_is_named_only_where_nothing_else_is():
    unknown = "mylib.FooError: bar went wrong"
    assert ids(unknown) == ["python-exception"]
    assert ids(f"Host key verification failed.\n{unknown}") == ["host-key"]


def test_noise_that_was_cut_is_no_cause():
    whole = (
        "[n1:1] mca_base_component_repository_open: unable to open mca_btl_usnic: libfabric.so.1: "
        "cannot open shared object file: No such file or directory (ignored)"
    )
    found = diagnose([whole[:90], whole[90:], "a longer line " * 20])
    assert not found.causes
    assert [each.cause.id for each in found.harmless] == ["component-ignored"]


@pytest.mark.parametrize(
    "log",
    [
        "Failed to import flash_attn (No module named 'flash_attn')\ntraining finished",
        "CMake Warning at CMakeLists.txt:9 (find_package):\n"
        '  By not providing "FindGTest.cmake" in CMAKE_MODULE_PATH\n'
        "-- Configuring done\n[100%] Built target horovod",
        "Package libnl-3.0 was not found in the pkg-config search path.\nconfig.status: creating Makefile",
        "/etc/profile.d/x.sh: line 3: tput: command not found\ntraining finished",
        "/home/u/.bashrc: line 12: module: command not found\ntraining finished",
        "Error response from daemon: No such container: bench\nEpoch 1/2 loss 0.5",
        "Error: No such object: bench\nEpoch 1/2 loss 0.5",
        "WARNING: Failed to find dkms on the system!\n"
        "Installation of the NVIDIA Accelerated Graphics Driver for Linux-x86_64 is now complete.",
        "warning  libmamba Download error (28) Timeout was reached [https://x/y], retrying\nfinished",
        "INFO:    Using fakeroot command combined with root-mapped namespace\n"
        "INFO:    fakeroot command not found\nINFO:    Build complete: a.sif",
        'Warning: would violate PodSecurity "restricted:latest": allowPrivilegeEscalation\njob created',
        "slurmctld: update_node: node n1 reason set to: maintenance\n"
        "slurmctld: sched: Allocate JobId=12 NodeList=n2",
        "I0409 21:14:19 kubelet.go:1794] skipping pod synchronization - [container runtime is down]\n"
        "I0409 21:14:24 kubelet_node_status.go:73] Successfully registered node n1",
        "   Retrying (Retry(total=4, connect=None)) after connection broken\nSuccessfully installed a-1.0",
    ],
)
def test_what_a_run_or_a_build_that_ends_well_says_is_no_cause(log):
    assert ids(log) == []


def test_a_small_tmp_of_a_host_comes_before_what_pmix_and_open_mpi_say_of_it():
    log = """\
[f2:32022] PMIX ERROR: OUT-OF-RESOURCE in file dstore_segment.c at line 207
[f2:32022] PMIX ERROR: OUT-OF-RESOURCE in file dstore_base.c at line 661
[f2:32022] PMIX ERROR: OUT-OF-RESOURCE in file server/pmix_server.c at line 3423
[f2:32028] PMIX ERROR: OUT-OF-RESOURCE in file client/pmix_client.c at line 277
[f2:32028] OPAL ERROR: Error in file pmix3x_client.c at line 112
*** An error occurred in MPI_Init
[f2:32022] PMIX ERROR: ERROR in file gds_ds21_lock_pthread.c at line 98"""
    assert ids(log)[0] == "session-dir-full"


def test_json_of_ansible_is_read_line_by_line():
    log = r'fatal: [n1]: FAILED! => {"stderr": "E: x\r\nsudo: a password is required\r\n"}'
    assert ids(log)[0] == "sudo-password"


def test_what_a_program_printed_into_json_is_read_as_its_own_log():
    printed = (
        "starting"
        r"\nMay  1 10:00:00 n1 slurmd[77]: error: Node configuration differs from hardware: CPUs=2:4(hw)"
        r"\nbash: line 3: exec: \"horovodrun\": executable file not found in $PATH"
    )
    log = f'fatal: [n1]: FAILED! => {{"stderr": "{printed}"}}'
    found = diagnose([log]).causes
    assert [each.cause.id for each in found][:2] == ["slurm-node-hardware", "horovodrun-not-found"]
    assert text.read([log]).lines[1].speaker == "slurm"


@pytest.mark.parametrize("after", ["", r"\n" + "word " * 30_000])
def test_what_stands_far_in_a_long_line_of_json_is_read(after):
    steps = r"\n".join(f"step {chr(97 + n % 26) * (n % 50)} is done" for n in range(6000))
    log = rf'fatal: [n1]: FAILED! => {{"stdout": "{steps}\nsudo: a password is required{after}"}}'
    assert len(log) > 150_000
    assert ids(log)[0] == "sudo-password"


def test_the_end_of_a_very_long_line_is_read():
    assert ids("word " * 100_000 + "Host key verification failed.") == ["host-key"]


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
    assert told["harmless"] == told["suspects"] == []


@pytest.mark.parametrize(
    "content", [b"", b"all is well\n", b"\xff\xfe\x00", b"Read -1, expected 5, errno = 1\n"]
)
def test_exit_code_0_where_nothing_is_known_or_all_is_harmless(log, capsys, content):
    assert run(["doctor", "--log", log(content)]) == 0
    assert "nothing known" in capsys.readouterr().out


def test_a_log_of_which_nothing_is_known_shows_what_looks_like_errors(log, capsys):
    path = log(b"fine\nstep 1\nthe frobnicator failed: x\n\nERROR 77: bad\nbye\n")
    assert run(["doctor", path]) == 0
    told = capsys.readouterr().out
    assert told.startswith("nothing known in 5 lines; the last lines that look like errors:\n")
    assert "\n  line 3: the frobnicator failed: x\n  line 5: ERROR 77: bad\n  what to do: " in told
    assert run(["doctor", path, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["suspects"] == [
        {"number": 3, "text": "the frobnicator failed: x"},
        {"number": 5, "text": "ERROR 77: bad"},
    ]
    assert run(["doctor", log(b"all is well\n")]) == 0
    assert "nothing known in 1 line; no line looks like an error\n" in capsys.readouterr().out
    assert run(["doctor", path, "--log", path]) == 2


def test_beside_a_bare_failure_stand_the_other_errors(log, capsys):
    text = "my_solver: assertion `x > 0' failed at solver.c:33\n错误：磁盘已满\nAborted (core dumped)\n"
    assert run(["doctor", log(text.encode())]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("1. no cause found; the failure is: ")
    assert (
        "errors:\n  line 1: my_solver: assertion `x > 0' failed at solver.c:33\n  line 2: 错误：磁盘已满\n"
        in printed
    )
    assert run(["doctor", log(text.encode()), "--format", "json"]) == 1
    assert [each["number"] for each in json.loads(capsys.readouterr().out)["suspects"]] == [1, 2]


def test_exit_code_2_where_there_is_no_such_file(tmp_path, capsys):
    assert run(["doctor", "--log", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert run(["doctor", "--log", str(tmp_path / "none"), "--fix"]) == 2


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_log_is_read(log, capsys, pack):
    assert run(["doctor", "--log", log(pack(b"Host key verification failed.\n"))]) == 1
    assert "line 1: Host key verification failed." in capsys.readouterr().out


NOISE = random.Random(1).randbytes(200_000)  # noqa: S311 - the same each time


@pytest.mark.parametrize("damaged", [lambda whole: whole[:-8], lambda whole: whole[:-8] + bytes(8)])
def test_a_damaged_packed_log_is_read_as_far_as_it_goes(log, capsys, damaged, monkeypatch):
    monkeypatch.setattr(doctor_log, "_BLOCK", 64 * 1024)
    whole = gzip.compress(b"Host key verification failed.\n" + NOISE)
    assert run(["doctor", "--log", log(damaged(whole))]) == 1
    assert "is damaged" in capsys.readouterr().err


def test_a_damaged_bzip2_is_told_as_that(log, capsys):
    whole = bytearray(bz2.compress(NOISE[:100_000]))
    whole[50_000] ^= 0xFF
    assert run(["doctor", "--log", log(bytes(whole))]) == 0
    assert "is damaged" in capsys.readouterr().err


def test_zstd_is_named(log, capsys):
    assert run(["doctor", "--log", log(b"\x28\xb5\x2f\xfd rest")]) == 2
    assert "zstd -dc FILE" in capsys.readouterr().err


@pytest.fixture
def smaller(monkeypatch):
    """Keep a quarter of what is kept of a log."""
    for name in ("_HEAD", "_TAIL"):
        monkeypatch.setattr(doctor_log, name, getattr(doctor_log, name) // 4)


def test_the_two_ends_of_what_never_ends_are_read(smaller, monkeypatch, capsys):
    monkeypatch.setattr(doctor_log, "_MOST", 8 * 1024**2)
    assert run(["doctor", "--log", "/dev/zero"]) == 0
    told = capsys.readouterr().err
    assert "only the first 8 MiB are read" in told
    assert "4 MiB in its middle are left out" in told


def test_the_end_of_a_large_file_is_read(smaller, log, capsys):
    noise = b"epoch 1 loss 1\n" * 400_000
    assert run(["doctor", "--log", log(noise + b"Host key verification failed.\n")]) == 1
    assert "in its middle are left out" in capsys.readouterr().err


def test_a_log_needs_no_ansible(log):
    code = "import sys; from hvlab.cli import run; run(['doctor', '--log', sys.argv[1]]); "
    code += "assert not {'ansible', 'paramiko'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code, log(b"killed\n")], check=True, stdout=subprocess.DEVNULL)


def test_closed_standard_input_and_folders_are_refused(tmp_path):
    hvlab = [sys.executable, "-m", "hvlab", "doctor", "--log"]
    for argument, said in {"-": "standard input is closed", str(tmp_path): "Is a directory"}.items():
        done = subprocess.run(
            ["sh", "-c", '"$@" <&-', "sh", *hvlab, argument], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert said in done.stderr
        assert "what to do: " in done.stderr


def test_escapes_of_the_log_do_not_reach_the_terminal(log, capsys):
    run(["doctor", "--log", log(b"\x1b]0;x\x07\x1b[2JHost key verification\x08 failed.\x9b31m\n")])
    assert not [c for c in capsys.readouterr().out if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]


# Characters of a log without an end: 24 MB with the profile fuzz.
LARGE = 24_000_000 if MANY else 400_000


@pytest.mark.parametrize(
    "lines",
    [
        (" ".join(f"{n:x}{chr(103 + n % 20) * (n % 9)}" for n in range(at, at + 10)) for at in count(0, 10)),
        ["x" * LARGE],
        [" " * LARGE],
        ["error: " * (LARGE // 7)],
        (f"epoch {n} loss {n}" for n in count()),
        ["[" * 200_000],
        repeat("a" * 80),
        repeat(" "),
    ],
    ids=[
        "distinct words",
        "one line",
        "blanks",
        "words",
        "progress",
        "brackets",
        "full lines",
        "empty lines",
    ],
)
def test_no_log_is_read_for_ever(lines):
    """On a slow machine the slowest takes 2 s of CPU time; what backtracks takes hours."""
    log = list(islice(lines, LARGE // 80))
    begun = time.process_time()
    diagnose(log)
    assert time.process_time() - begun < 10 + LARGE / 200_000


def test_every_repeat_of_every_pattern_has_an_end():
    """Wherever one has none, what nearly matches takes time that grows with its square or cube."""
    for entry in knowledge.CAUSES:
        for sign in (*entry.patterns, *entry.needed, *entry.excluded):
            # Taken out: escapes, then classes.
            plain = re.sub(r"\[[^\]]+\]", "_", re.sub(r"\\.", "_", sign.pattern.pattern))
            # The + after an end gives nothing back.
            assert not re.search(r"(?<!\})[+*]|\{\d+,\}", plain), (entry.id, sign.pattern.pattern)
            ends = map(int, re.findall(r",(\d+)\}", plain))
            # What begins with the text is tried once.
            assert max(ends, default=0) <= 6000 or r"\A" in sign.pattern.pattern, entry.id


def test_the_answer_says_that_the_search_was_stopped(monkeypatch, log, capsys):
    monkeypatch.setattr(reading, "_MOST_S", -1.0)
    assert run(["doctor", "--log", log(b"Host key verification failed.\n")]) == 0
    assert "stopped: this log takes too long to search" in capsys.readouterr().out


def test_marks_that_turn_a_line_around_are_taken_out():
    assert words("Host key\u202e verification\x9b31m failed.") == ["Host key verification failed."]


@given(st.lists(st.text(max_size=200), max_size=20))
def test_any_text_is_read(lines):
    diagnose(lines)


def test_the_end_of_a_very_large_log_is_read(monkeypatch):
    for name in ("_HEAD", "_TAIL"):
        monkeypatch.setattr(text, name, getattr(text, name) // 32)
    noise = [
        f"{chr(97 + n % 26) * (n % 90)} {chr(97 + n % 23) * (n % 71)} {'q' * (n % 61)}" for n in range(1250)
    ]
    assert sum(map(len, noise)) > text._HEAD + text._TAIL
    (found,) = diagnose([*noise, "Host key verification failed."]).causes
    assert found.lines[0][0] == 1251


def test_two_messages_of_slurm_are_two_lines_though_the_first_is_as_wide_as_a_terminal():
    first = "sbatch: error: No available node hour balance for this user and account".ljust(100, ".")
    assert (
        ids(f"{first}\nsbatch: error: Batch job submission failed: Unspecified error")[0]
        == "slurm-job-submit"
    )


@pytest.mark.parametrize(
    "line",
    [
        "mpi_ops.cc:18:10: fatal error: 'mpi.h' file not found",
        'ops.cu(12): error: cannot open source file "mpi.h"',
        "ops.c(3): fatal error C1083: Cannot open include file: 'mpi.h': No such file or directory",
    ],
)
def test_a_header_is_missed_in_the_words_of_every_compiler(line):
    assert ids(line)[0] == "mpi-headers"
