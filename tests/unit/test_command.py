"""The user's own training: the program that runs it on each rank, and what is read from its output."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hvlab.cli import bench_output
from hvlab.workloads import argv, outcome
from hvlab.workloads.command import throughput
from hvlab.workloads.datasets import own_files
from tests.unit.labs import case
from tests.unit.programs import PROGRAMS

pytestmark = pytest.mark.slow

# What a script sees of Horovod here: enough for the observer, and a timeline that is written at its end, and
# not at all where Horovod is shut down before (TimelineWriter::Shutdown of 0.28.1).
HOROVOD = """
import atexit
class HorovodBasics:
    def init(self): atexit.register(self.shutdown)
    def shutdown(self): self.stop_timeline = None
    def rank(self): return 0
    def size(self): return 2
    def local_size(self): return 1
    def cross_size(self): return 2
    def mpi_enabled(self): return True
    def gloo_enabled(self): return False
    def start_timeline(self, path):
        self.timeline = path
        open(path, "w").close()
    def stop_timeline(self):
        with open(self.timeline, "w") as file:
            file.write('[\\n{"name": "process_name", "ph": "M", "pid": 0, "args": {"x": 1}},\\n')
            file.write('{"ph": "B", "name": "QUEUE", "ts": 1},{"ph": "E", "ts": 2},')
            file.write('{"ph": "B", "name": "MPI_ALLREDUCE", "ts": 3},{"ph": "B", "na')
"""
SCRIPT = """
import sys
from pathlib import Path
from types import SimpleNamespace
import horovod.common.basics as basics
basics.HorovodBasics().init()
print("arguments", sys.argv[1:])
print("images/sec: 12.5")
sys.exit(int(sys.argv[1]))
"""
CASE = {"started_at": 100.0, "ended_at": 103.5, "rc": 0, "timed_out": False, "error": None, "reaped": {}}
RESULT = {
    "checks": [],
    "world": {"size": 2, "placement": []},
    "device": "cpu",
    "command": {"seconds": 2.5},
    "proof": {"activities": ["MPI_ALLREDUCE"]},
    "state": {"horovod": {"mpi_enabled": 1}, "versions": {"torch": "2.13"}},
}


@pytest.mark.parametrize(
    ("text", "pattern", "value"),
    [
        ("images/sec: 12.5", "", 12.5),
        ("Iter #9: 10.1 img/sec per GPU\nTotal img/sec on 2 GPU(s): 20.2 +-0.1\n", "", 20.2),
        ("1,024.5 samples/s\nEpoch 2: 1,100 samples/s\nbye", "", 1100.0),
        ("throughput (tokens): 3e4", "", 3e4),
        ("0.3,500 images/sec", "", 3500.0),
        ("host,12,images/sec", "", 12.0),
        ("loss: 0.5", "", None),
        ("8.0 img/sec per GPU", "", None),
        ("speed=7.5;", r"speed=(?P<value>[0-9.]+)", 7.5),
        ("images/sec: 12.5", r"speed=(?P<value>[0-9.]+)", None),
    ],
)
def test_the_throughput_that_a_script_prints(text, pattern, value):
    assert throughput(text, pattern) == value


@pytest.mark.parametrize("text", ["speed=0", "speed=nan", "speed=-"])
def test_a_value_that_is_none(text):
    with pytest.raises(ValueError, match="no positive number"):
        throughput(text, r"speed=(?P<value>\S+)")


@pytest.fixture
def started(tmp_path):
    """Start the program as a rank does, with a script of the user; return how that ended and its folder."""
    project = tmp_path / "project"
    (project / "horovod/common").mkdir(parents=True)
    (project / "horovod/__init__.py").write_text('__version__ = "0.28.1"\n')
    (project / "horovod/common/__init__.py").write_text("")
    (project / "horovod/common/basics.py").write_text(HOROVOD)
    (project / "train it.py").write_text(SCRIPT)

    def start(*words, rank=0, hosts=2, before=(), **more):
        line = own_files.format_chosen(words, ["."], project)
        _, copied = own_files.pack(line, cache=tmp_path / "cache")
        command = " ".join(f"'{word}'" for word in words)
        options = ["--workload", "command", "--world-size", "2", "--hosts", str(hosts), "--command", command]
        options += ["--copy", str(copied), "--output", str(tmp_path / "case/result.json")]
        names = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": 0}
        env = {**os.environ, "HOME": str(tmp_path), **{name: str(value) for name, value in names.items()}}
        argv = [*before, sys.executable, str(PROGRAMS / "command.py"), *options]
        done = subprocess.run(argv, env=env | more, capture_output=True, text=True, check=False, timeout=60)
        return done, tmp_path / "case"

    return start


def test_a_script_is_run_and_watched(started, tmp_path):
    done, folder = started("python", "train it.py", "0", "two words", "it`s $HOME")
    assert done.returncode == 0
    _, counted = done.stderr.split("hvlab: cores: ")
    assert json.loads(counted)["own_s"] > 0
    assert "arguments ['0', 'two words', 'it`s $HOME']" in done.stdout
    assert (folder / "output.txt").read_text() == done.stdout
    result = json.loads((folder / "result.json").read_text())
    assert (result["checks"], result["world"]["size"]) == ([], 2)
    assert result["proof"]["activities"] == ["MPI_ALLREDUCE", "QUEUE"]
    assert result["state"]["horovod"]["mpi_enabled"] == 1
    assert result["state"]["versions"]["horovod"] == "0.28.1"
    assert list((tmp_path / ".hvlab/work").iterdir()) == []


def test_a_secret_in_a_command_is_not_in_its_result(started):
    done, folder = started("env", "HF_TOKEN=hf-aaaa", "python", "train it.py", "0")
    assert done.returncode == 0
    assert "hf-aaaa" not in (folder / "result.json").read_text()


def test_folders_of_other_hosts_and_of_running_ranks_stay(started, tmp_path):
    """Hosts may share the home: only what a dead process of this host left is removed."""
    work = tmp_path / ".hvlab/work"
    here = f"{os.uname().nodename}-{Path('/proc/self/ns/pid').stat().st_ino}"
    kept = {f"elsewhere-{here.rpartition('-')[2]}-999999999", "999999999", f"{here}-{os.getpid()}"}
    for name in (*kept, f"{here}-999999999"):
        (work / name / "files").mkdir(parents=True)
    done, _ = started("python", "train it.py", "0")
    assert done.returncode == 0
    assert {path.name for path in work.iterdir()} == kept


def test_what_a_killed_rank_of_the_same_number_left_does_not_matter(started, tmp_path):
    here = f"{os.uname().nodename}-{Path('/proc/self/ns/pid').stat().st_ino}"
    # The shell makes the folder, and becomes the program.
    (tmp_path / "left.sh").write_text(f'mkdir -p "$HOME/.hvlab/work/{here}-$$/evidence"\nexec "$@"\n')
    done, _ = started("python", "train it.py", "0", before=("sh", str(tmp_path / "left.sh")))
    assert done.returncode == 0


def test_files_that_go_with_the_working_folder_are_listed(started, tmp_path):
    script = 'open("model.pt", "w"); import os; os.mkdir("logs"); open("logs/a", "w")'
    script += '; import runpy; runpy.run_path("train it.py")'
    done, folder = started("python", "-c", script, "0")
    assert done.returncode == 0
    assert json.loads((folder / "result.json").read_text())["command"]["removed"] == ["logs/a", "model.pt"]


def test_what_a_command_leaves_running_is_ended(started, tmp_path):
    script = 'import runpy, subprocess; left = subprocess.Popen(["sleep", "60"]); '
    script += 'print(f"left {left.pid}", flush=True); runpy.run_path("train it.py")'
    done, _ = started("python", "-c", script, "0")
    assert done.returncode == 0
    left = done.stdout.partition("left ")[2].split()[0]
    # It may wait for its parent to notice.
    file = Path(f"/proc/{left}/stat")
    assert not file.exists() or file.read_text().split()[2] == "Z"


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a process may use the machine's only CPU")
def test_workers_of_oneccl_get_cpus_that_the_rank_may_use(started, monkeypatch):
    monkeypatch.delenv("CCL_WORKER_AFFINITY", raising=False)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        done, _ = started("sh", "-c", "echo on $CCL_WORKER_AFFINITY")
    finally:
        os.sched_setaffinity(0, before)
    assert f"on {min(before)}\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "rank", "told"),
    [
        (("python", "train it.py", "3"), 1, "hvlab: rank 1 on {node} ended with exit status 3: "),
        (("no-such-program",), 0, "hvlab: rank 0 on {node} ended with exit status 127: no-such-program"),
    ],
)
def test_a_command_that_fails_names_rank_and_host(started, words, rank, told):
    done, folder = started(*words, rank=rank)
    assert done.returncode == (3 if rank else 127)
    assert told.format(node=os.uname().nodename) in done.stderr
    assert not (folder / "result.json").exists()


@pytest.mark.parametrize(
    ("words", "hosts", "told"),
    [
        (("true",), 2, "rank 0 never called Horovod's init(): nothing proves who carried the data"),
        (
            ("python", "train it.py", "0"),
            1,
            "asked for 2 ranks, 2 a host, on 1 hosts; Horovod says 2, 1 and 2",
        ),
    ],
)
def test_ranks_without_proof_fail(started, words, hosts, told):
    done, folder = started(*words, hosts=hosts)
    assert done.returncode == 1
    assert json.loads((folder / "result.json").read_text())["checks"] == [told]


def ended(tmp_path, result=None, *, output="images/sec: 12.5\n", stderr="", backend="mpi", **changes):
    asked = {"command": "python train.py", "copy": "00aa / train.py", **changes.pop("params", {})}
    (tmp_path / "case.json").write_text(json.dumps(CASE | changes))
    if result is not None:
        (tmp_path / "result.json").write_text(json.dumps(RESULT | result))
    (tmp_path / "output.txt").write_text(output)
    (tmp_path / "stderr").write_text(stderr)
    return outcome(case(backend, workload="command", **asked), tmp_path)


def test_the_figures_of_a_command(tmp_path):
    found = ended(tmp_path, {}, params={"unit": "images/s"})
    assert (found.error, found.proved_backend, found.world_size) == (None, "mpi", 2)
    assert {figure.metric: (figure.value, figure.unit) for figure in found.figures} == {
        "real": (3.5, "s"),
        "training_time": (2.5, "s"),
        "throughput": (12.5, "images/s"),
    }
    assert found.versions == {"torch": "2.13", "files": "00aa"}


@pytest.mark.parametrize(
    ("result", "changes", "told"),
    [
        ({"proof": {"activities": ["GLOO_ALLREDUCE"]}}, {}, "asked for mpi, but gloo carried it"),
        ({}, {"params": {"pattern": "x(?P<value>.)"}}, "rank 0 printed no line that matches the pattern"),
        (
            None,
            {
                "rc": 3,
                "stderr": "[0]<stderr>:x\n[1]<stderr>:hvlab: rank 1 on n2 ended with exit status 3: b | c\n",
            },
            "rank 1 on n2 ended with exit status 3: b | c",
        ),
        (
            None,
            {
                "rc": 1,
                "stderr": "hvlab: rank 0 on n1 ended with exit status 1: HorovodInternalError: Horovod has "
                "been shut down.\nhvlab: rank 1 on n2 ended with exit status 3: out of luck\n",
            },
            "rank 1 on n2 ended with exit status 3: out of luck",
        ),
        (
            None,
            {"rc": 1, "stderr": "hvlab: rank 0 on n1 ended with exit status 1: No module named 'pkg'\n"},
            "No module named 'pkg'; files of yours that the command line does not name need --copy",
        ),
        (None, {"rc": 1, "timed_out": True}, "ran over its 900 s and was ended"),
        (
            {"proof": {"groups": ["nccl"]}},
            {"backend": "ddp-gloo"},
            "asked for ddp-gloo, but ddp-nccl carried it",
        ),
    ],
)
def test_why_a_command_does_not_count(tmp_path, result, changes, told):
    assert told in str(ended(tmp_path, result, **changes).error)


def test_a_script_on_gpus_may_send_from_cpus_too(tmp_path):
    proof = {"proof": {"activities": ["NCCL_ALLREDUCE", "MPI_ALLREDUCE"]}, "device": "cuda"}
    found = ended(tmp_path, proof, backend="nccl")
    assert (found.error, found.proved_backend) == (None, "nccl")


def test_what_a_rank_is_given(tmp_path):
    line = "python train.py --name 'two words'"
    words = argv(case("ddp-gloo", workload="command", command=line, copy="00aa /home/me train.py", unit="x"))
    assert words[0] == "command.py"
    assert dict(zip(words[1::2], words[2::2], strict=True)) == {
        "--workload": "command",
        "--world-size": "2",
        "--hosts": "2",
        "--command": line,
        "--copy": "~/.hvlab/data/00aa",
        "--ddp": "gloo",
    }


def test_the_files_that_went_are_named(tmp_path, capsys):
    for number, names in enumerate((["b.pt", "a.pt"], ["a.pt", "logs/1", "logs/2"], [])):
        (tmp_path / f"c{number}").mkdir()
        command = RESULT["command"] | {"removed": names}
        (tmp_path / f"c{number}/result.json").write_text(json.dumps(RESULT | {"command": command}))
    records = [SimpleNamespace(case_id=f"c{number}", workload="command") for number in range(4)]
    bench_output.print_lost_files(records[2:], tmp_path)
    assert capsys.readouterr().err == ""
    bench_output.print_lost_files(records[:2], tmp_path)
    told = "removed with the working folder: b.pt, a.pt, logs/1 and 1 more; to keep files, write them to an"
    assert capsys.readouterr().err == f"{told} absolute path\n"
