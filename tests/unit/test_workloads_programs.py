"""The programs that run on the nodes and need no Horovod: the reaper and the supervisor of a case."""

import ast
import errno
import io
import json
import os
import platform
import shlex
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.programs import PROGRAMS, program

pytestmark = pytest.mark.slow

# A run of its own for each process: two test runs on one machine do not end each other's ranks.
RUN = f"T{os.getpid()}"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
WRITES = (
    "import os, sys; print(os.environ['X'], os.environ['HVLAB_CASE']); open('result.json', 'w').write('{}'); "
    "sys.exit(3)"
)


def sleeper(
    mark: str, code: str = "import time; print('up', flush=True); time.sleep(60)"
) -> subprocess.Popen:
    started = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"HVLAB_CASE": mark}, stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    started.stdout.readline()
    started.stdout.close()
    return started


def reap(mark: str, tmp: str = str(PROGRAMS)) -> list[dict]:
    done = subprocess.run(
        [sys.executable, PROGRAMS / "reap.py", mark],
        capture_output=True,
        check=True,
        text=True,
        env=os.environ | {"TMPDIR": tmp},
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(("mark", "ended"), [("{}/a", True), ("{}", True), ("{}/ab", False), ("T", False)])
def test_only_what_belongs_to_the_case_or_run_is_ended(mark, ended):
    mine = sleeper(f"{RUN}/a")
    try:
        assert [item["pid"] for item in reap(mark.format(RUN))] == ([mine.pid] if ended else [])
        assert (mine.poll() is None) is not ended
    finally:
        mine.kill()
        mine.wait()


def test_a_name_that_the_kernel_cut_off_within_a_character_keeps_nothing_alive():
    name = "train训练模型任务".encode()[:15]
    mine = sleeper(
        f"{RUN}/named",
        f"import time; open('/proc/self/comm', 'wb').write({name!r})\n"
        "print('up', flush=True); time.sleep(60)",
    )
    try:
        assert [item["pid"] for item in reap(f"{RUN}/named")] == [mine.pid]
    finally:
        mine.kill()
        mine.wait()


@pytest.mark.parametrize("name", ["orted", "mpirun", "prted", "prterun", "bash"])
def test_the_daemon_of_open_mpi_above_a_rank_is_ended_too(name):
    daemon = sleeper(
        "",
        f"import os, subprocess, time; open('/proc/self/comm', 'w').write('{name}')\n"
        f"subprocess.Popen(['sleep', '60'], env=os.environ | {{'HVLAB_CASE': '{RUN}/daemon'}})\n"
        "print('up', flush=True); time.sleep(60)",
    )
    try:
        ended = [item["pid"] for item in reap(f"{RUN}/daemon")]
        assert (daemon.pid in ended) is (name != "bash")
        assert len(ended) == 1 + (name != "bash")
    finally:
        daemon.kill()
        daemon.wait()


def test_what_does_not_listen_is_killed():
    mine = sleeper(f"{RUN}/stubborn", STUBBORN)
    assert reap(f"{RUN}/stubborn")[0]["signal"] == "SIGKILL"
    assert mine.wait(timeout=5) == -9


def test_session_folders_of_open_mpi_go_once_nothing_uses_mpi(tmp_path):
    host = platform.node().partition(".")[0]
    own, another = (tmp_path / f"ompi.{name}.{os.getuid()}/pid.1" for name in (host, "elsewhere"))
    for folder in (own, another):
        folder.mkdir(parents=True)
    rank = sleeper(
        "", "import os; os.execvpe('sh', ['sh', '-c', 'echo up; exec sleep 60'], {'PMIX_RANK': '0'})"
    )
    try:
        reap(f"{RUN}/none", str(tmp_path))
        assert own.exists()
    finally:
        rank.kill()
        rank.wait()
    reap(f"{RUN}/none", str(tmp_path))
    assert not own.parent.exists()
    assert another.exists()


def test_the_reaper_needs_a_name():
    done = subprocess.run([sys.executable, PROGRAMS / "reap.py", "/"], capture_output=True, check=False)
    assert done.returncode == 2


def case_program(
    home: Path, argv: list[str], *, timeout: float = 30, case: str = f"{RUN}/a", **more: Any
) -> subprocess.CompletedProcess[bytes]:
    job = {
        "case": case,
        "argv": argv,
        "env": {"X": "1"},
        "hosts": ["here"],
        "self": "here",
        "timeout": timeout,
        "python": sys.executable,
        "reach": ["ssh"],
        "certificate": "c\n",
        **more,
    }
    return subprocess.run(
        [sys.executable, PROGRAMS / "case.py"],
        input=json.dumps(job).encode(),
        capture_output=True,
        check=False,
        env=os.environ | {"HOME": str(home)},
    )


def run_case(home: Path, argv: list[str], **changes: Any) -> dict[str, bytes]:
    (home / ".ssh").mkdir(exist_ok=True)
    done = case_program(home, argv, **changes)
    assert done.returncode == 0, done.stderr
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]


def test_a_case_hands_over_its_files(tmp_path):
    files = run_case(tmp_path, [sys.executable, "-c", WRITES])
    assert set(files) == {"argv.json", "env.json", "case.json", "stdout", "stderr", "result.json"}
    assert files["stdout"] == f"1 {RUN}/a\n".encode()
    ended = json.loads(files["case.json"])
    assert (ended["rc"], ended["timed_out"], ended["error"]) == (3, False, None)
    assert (tmp_path / ".ssh/id_ed25519-cert.pub").read_text() == "c\n"


def test_what_a_case_keeps_of_its_environment_is_what_others_may_read(tmp_path):
    argv = [sys.executable, "-c", "import os; print(os.environ['X'])"]
    shown = {"argv": ["python"], "env": {"X": "***"}}
    files = run_case(tmp_path, argv, shown=shown)
    assert files["stdout"] == b"1\n"
    assert {name: json.loads(files[f"{name}.json"]) for name in shown} == shown


def test_what_was_left_of_an_earlier_try_is_gone(tmp_path):
    run_case(tmp_path, [sys.executable, "-c", "open('result.json', 'w')"])
    assert "result.json" not in run_case(tmp_path, ["true"])


ODD = """
import os
os.makedirs("checkpoints/1"); open("checkpoints/1/model.pt", "w"); os.mkfifo("pipe")
os.symlink("gone", "log.part"); os.symlink(os.environ["HOME"] + "/.ssh", "keys")
open("result.json", "w").write("{}")
"""


def test_a_case_that_leaves_more_than_files_is_handed_over_and_may_run_again(tmp_path):
    plain = {"argv.json", "env.json", "case.json", "stdout", "stderr", "result.json"}
    for _ in range(2):
        files = run_case(tmp_path, [sys.executable, "-c", ODD])
        assert set(files) == plain
        assert json.loads(files["case.json"])["rc"] == 0
    assert set(run_case(tmp_path, ["true"])) == plain - {"result.json"}
    assert sorted(path.name for path in (tmp_path / ".hvlab/runs" / RUN / "a").iterdir()) == sorted(
        plain - {"result.json"}
    )
    assert (tmp_path / ".ssh/id_ed25519-cert.pub").exists()


def test_hosts_that_do_not_answer_are_waited_for_together(monkeypatch):
    case = program(monkeypatch, "case")
    answers = "case $0 in n5) echo []; ;; *) exec sleep 60; esac"
    job = {"case": f"{RUN}/a", "hosts": ["n1", "n2", "n3", "n4", "n5"], "self": "n0", "python": "python3"}
    before = time.monotonic()
    reaped = case.on_hosts(job | {"reach": ["sh", "-c", answers]}, ["reap.py", job["case"]], 1)
    assert time.monotonic() - before < 10
    assert reaped == dict.fromkeys(["n1", "n2", "n3", "n4"], "no answer within 1 s") | {"n5": []}


def test_without_ssh_the_other_hosts_are_named_and_this_one_is_cleared(monkeypatch):
    case = program(monkeypatch, "case")
    mark = f"{RUN}/alone"
    mine = sleeper(mark)
    try:
        job = {"case": mark, "hosts": ["n1", "here"], "self": "here", "python": sys.executable}
        reaped = case.on_hosts(job | {"reach": ["/no/such/ssh"]}, ["reap.py", job["case"]], 30)
        assert reaped["n1"] == "/no/such/ssh: No such file or directory"
        assert [item["pid"] for item in reaped["here"]] == [mine.pid]
    finally:
        mine.kill()
        mine.wait()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_home_without_locks_keeps_no_host_from_measuring(monkeypatch, tmp_path, number):
    """Homes on Lustre without the mount option flock, or NFS without lockd: none knows who else measures."""
    case = program(monkeypatch, "case")

    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(case.fcntl, "flock", flock)
    with (tmp_path / "lock").open("a+") as lock:
        assert case.take(lock, "R/case") is None


def test_a_case_over_its_time_is_ended_with_its_children(tmp_path):
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STUBBORN!r}])"
    before = time.monotonic()
    ended = json.loads(
        run_case(tmp_path, [sys.executable, "-c", child], timeout=0.5, case=f"{RUN}/late")["case.json"]
    )
    assert ended["timed_out"]
    assert time.monotonic() - before < 20
    assert reap(f"{RUN}/late") == []


def test_ranks_are_ended_too_where_the_launcher_calls_its_own_end_a_success(tmp_path):
    """As Open MPI's mpirun does after SIGTERM."""
    rank = shlex.join([sys.executable, "-c", STUBBORN])
    launcher = ["bash", "-c", f"trap 'exit 0' TERM; setsid {rank} & wait"]
    ended = json.loads(run_case(tmp_path, launcher, timeout=0.5, case=f"{RUN}/mute")["case.json"])
    assert (ended["rc"], ended["timed_out"]) == (0, True)
    assert len(ended["reaped"]["here"]) == 1
    assert reap(f"{RUN}/mute") == []


def test_a_host_without_its_keys_says_what_brings_them_back(tmp_path):
    done = case_program(tmp_path, ["true"])
    assert done.returncode == 78
    assert done.stderr.decode().splitlines() == [
        "~/.ssh cannot be used (No such file or directory): "
        "`hvlab provision -t lab_user,ssh_trust` brings its keys back"
    ]


def test_a_launcher_that_is_not_there(tmp_path):
    ended = json.loads(run_case(tmp_path, ["/no/such/mpirun"])["case.json"])
    assert ended["error"] == "/no/such/mpirun: No such file or directory"


def test_programs_are_written_for_old_pythons():
    for path in PROGRAMS.glob("*.py"):
        assert ast.parse(path.read_text(), path, feature_version=(3, 8)).body, path
