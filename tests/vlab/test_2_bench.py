"""`hvlab bench` across machines: right figures, refusals, and what goes wrong while it runs."""

import json
import signal
import subprocess

import pytest

pytestmark = pytest.mark.bench

SMALL = ("--sizes", "1K:256K:16", "--iterations", "7", "--slots", "1")


def ranks(lab):
    """Return the ranks that run anywhere in the lab."""
    return [lab.on(host, "pgrep -af [c]ollective.py || true") for host in ("t1", "t2", "t3")]


@pytest.mark.parametrize("backend", ["mpi", "gloo", "ccl"])
def test_each_backend_carries_what_it_says(lab, backend):
    lab.hvlab("bench", "--restart", "--backend", backend, "--hosts", "1,3", *SMALL)
    records = lab.results_of("show")
    assert {row["proved_backend"] for row in records} == {backend}
    assert {row["world_size"] for row in records} == {1, 3}
    assert {row["status"] for row in records} == {"ok"}
    for row in records:
        if row["metric"] == "busbw" and row["world_size"] == 3:
            algbw = next(
                other["value"]
                for other in records
                if other["metric"] == "algbw"
                and (other["case_id"], other["params"]) == (row["case_id"], row["params"])
            )
            assert row["value"] == pytest.approx(algbw * 2 * 2 / 3)


@pytest.mark.parametrize("backend", ["mpi", "gloo", "ccl"])
def test_each_collective_is_proved(lab, backend):
    words = ("--workload", "broadcast,allgather,alltoall,reducescatter", "--hosts", "2", *SMALL)
    told = lab.hvlab("bench", "--restart", "--backend", backend, *words).stderr
    records = lab.results_of("show")
    assert {(row["proved_backend"], row["status"]) for row in records} == {(backend, "ok")}
    lacks = {"reducescatter"} if backend == "ccl" else set()
    assert {row["workload"] for row in records} == {
        "broadcast",
        "allgather",
        "alltoall",
        "reducescatter",
    } - lacks
    assert ("no reducescatter over ccl" in told) is bool(lacks)


def test_ddp_carries_what_it_says(lab):
    words = ("--workload", "allreduce,mnist", "--set", "epochs=1", "--hosts", "2", *SMALL)
    lab.hvlab("bench", "--restart", "--library", "ddp", *words)
    records = lab.results_of("show")
    assert {(row["backend"], row["proved_backend"], row["status"]) for row in records} == {
        ("ddp-gloo", "ddp-gloo", "ok")
    }
    assert {row["workload"] for row in records} == {"allreduce", "mnist"}
    assert {row["world_size"] for row in records} == {2}


def test_each_collective_of_ddp_under_both_launchers(lab):
    words = ("--workload", "allreduce,broadcast,allgather,alltoall,rnn", "--set", "steps=5")
    for launcher in ("mpirun", "horovodrun"):
        lab.hvlab(
            "bench",
            "--restart",
            "--library",
            "ddp",
            "--launcher",
            launcher,
            "--hosts",
            "1,3",
            *words,
            *SMALL,
        )
        assert {(row["proved_backend"], row["status"]) for row in lab.results_of("show")} == {
            ("ddp-gloo", "ok")
        }
    told = lab.hvlab("bench", "--restart", "--backend", "ddp-mpi", "--hosts", "2", *SMALL).stderr
    assert "was built without mpi" in told


OWN = ("python", "tests/vlab/own_training.py")


def test_a_training_of_ones_own(lab):
    words = ("--hosts", "2", "--slots", "1", "--workload", "command", "--unit", "images/s")
    lab.hvlab("bench", "--restart", "--backend", "mpi,gloo,ddp-gloo", *words, "--", *OWN, "it's two words")
    records = lab.results_of("show")
    proved = {(row["backend"], row["proved_backend"], row["world_size"], row["status"]) for row in records}
    assert proved == {(name, name, 2, "ok") for name in ("mpi", "gloo", "ddp-gloo")}
    rates = [row for row in records if row["metric"] == "throughput"]
    assert [row["unit"] for row in rates] == ["images/s"] * 3
    for row in rates:
        text = (lab.results / row["raw_path"] / "output.txt").read_text()
        assert 'name="it\'s two words" in files' in text
        assert f"images/sec: {row['value']}" in text
    stolen = {row["backend"] for row in records if row["metric"] == "stolen"}
    assert stolen == {"mpi", "gloo", "ddp-gloo"}


def test_a_training_of_ones_own_that_fails_names_the_host(lab):
    words = ("--hosts", "2", "--slots", "1", "--backend", "mpi")
    told = lab.hvlab("bench", "--restart", *words, "--", *OWN, "x", "fail", expect=1).stderr
    assert "rank 1 on t2 ended with exit status 3: out of luck" in told
    assert lab.on("t2", "ls ~hvlab/.hvlab/work") == ""


@pytest.mark.parametrize("backend", ["mpi", "gloo", "ddp-gloo"])
def test_a_training_of_ones_own_that_hangs_is_ended(lab, backend):
    words = ("--hosts", "2", "--slots", "1", "--backend", backend, "--timeout", "15")
    told = lab.hvlab("bench", "--restart", *words, "--", *OWN, "x", "hang", expect=1).stderr
    assert "ran over its 15 s and was ended" in told
    assert [lab.on(host, "pgrep -af [o]wn_training || true") for host in ("t1", "t2")] == ["", ""]


def test_trainings_on_each_host_alone_and_with_ranks(lab):
    words = ("--workload", "mnist", "--set", "epochs=1", "--slots", "1")
    lab.hvlab("bench", "--restart", "--backend", "serial,gloo", "--hosts", "each,2", *words)
    records = lab.results_of("show")
    assert {row["status"] for row in records} == {"ok"}
    observed = {(row["proved_backend"], ",".join(row["hosts"])) for row in records}
    assert observed == {("serial", "t1"), ("gloo", "t1"), ("gloo", "t2"), ("gloo", "t3"), ("gloo", "t1,t2")}
    timed = {row["params"]["host"] for row in records if row["metric"] == "host_compute_time"}
    assert timed == {"t1", "t2", "t3"}
    assert {"step_time", "throughput", "accuracy", "startup", "real"} <= {row["metric"] for row in records}


def test_two_settings_are_measured_in_turn(lab):
    sides = ("--ab", "cycle_time=1", "HOROVOD_CYCLE_TIME=5", "--repeats", "2")
    printed = lab.hvlab(
        "bench", "--restart", "--backend", "mpi", "--hosts", "1", *sides, *SMALL, "--format", "json"
    )
    answer = json.loads(printed.stdout)
    assert {(row["differ"]["a"], row["differ"]["b"]) for row in answer["rows"]} == {
        ("cycle_time=1", "cycle_time=1 HOROVOD_CYCLE_TIME=5")
    }
    assert {row["figures"]["verdict"]["kind"] for row in answer["rows"]} == {"too_few"}
    records = lab.results_of("show")
    assert {(row["params"]["side"], row["repeat"]) for row in records} == {
        ("A", 1),
        ("A", 2),
        ("B", 1),
        ("B", 2),
    }


def test_a_setting_that_costs_time_is_named(lab, tmp_path):
    slow = tmp_path / "slow.yml"
    slow.write_text("settings: {env: {HOROVOD_CYCLE_TIME: 50}}")
    words = ("--backend", "mpi", "--hosts", "1", "--set", "sizes=1K", "--set", "iterations=5")
    done = lab.hvlab("bisect", "lab", str(slow), *words)
    assert "Slower because of: HOROVOD_CYCLE_TIME nothing -> 50." in done.stdout


def test_nccl_is_refused_before_anything_runs(lab):
    before = lab.results_of("list")
    told = lab.hvlab("bench", "--backend", "nccl", expect=2).stderr
    assert "t1, t2, t3" in told
    assert "mpi, gloo, ccl" in told
    assert lab.results_of("list") == before


def test_a_dry_run_writes_nothing(lab):
    before = lab.results_of("list")
    rows = json.loads(
        lab.hvlab("bench", "--dry-run", "--format", "json", "--backend", "mpi,gloo", *SMALL).stdout
    )
    assert {row["argv"][0].rpartition("/")[2] for row in rows} == {"mpirun", "horovodrun"}
    assert lab.results_of("list") == before


@pytest.mark.parametrize("by_name", [False, True])
def test_an_interrupted_run_goes_on_where_it_was(lab, by_name):
    words = ("--backend", "gloo", "--hosts", "1,2,3", *SMALL)
    argv = lab.argv("bench", "--restart", *words)
    with subprocess.Popen(argv, env=lab.environment, stderr=subprocess.PIPE, text=True) as bench:
        assert any(line.startswith("[1/3]") for line in bench.stderr)
        bench.send_signal(signal.SIGINT)
        bench.communicate(timeout=120)
    assert bench.returncode == 130
    assert ranks(lab) == ["", "", ""]
    first = lab.results_of("list")[0]
    lab.hvlab("bench", *(("--resume", first["run_id"]) if by_name else words))
    last = lab.results_of("list")[0]
    assert (last["run_id"], last["cases"], last["ok"]) == (first["run_id"], 3, 3)


def test_ranks_that_hang_are_ended_everywhere(lab):
    argv = lab.argv(
        "bench",
        "--restart",
        "--backend",
        "mpi",
        "--hosts",
        "3",
        "--timeout",
        "20",
        *SMALL,
        "--iterations",
        "100000",
    )
    with subprocess.Popen(
        argv, env=lab.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as bench:
        stopped = ""
        # One command on the one host: ranks that wait for cores leave the controller little.
        while not stopped and bench.poll() is None:
            stopped = lab.on("t2", "pkill -STOP -f [c]ollective.py && echo stopped || true")
        bench.communicate(timeout=180)
    assert stopped
    assert bench.returncode == 1
    assert ranks(lab) == ["", "", ""]
    (record,) = lab.results_of("show")
    assert record["status"] == "failed"


def test_a_host_that_is_down_is_named(lab):
    lab.on("t3", "systemctl stop ssh.socket ssh.service 2>/dev/null || true")
    try:
        told = lab.hvlab("bench", "--restart", "--backend", "mpi", *SMALL, expect=3).stderr
        assert "t3" in told
    finally:
        lab.hvlab("lab up")


@pytest.mark.parametrize(
    ("fault", "largest"),
    [("loader", "waiting for data"), ("host", "Python and other host code"), ("slow", "waiting for t2")],
)
def test_where_the_time_of_a_step_goes(lab, fault, largest):
    words = ("--hosts", "2", "--slots", "1", "--backend", "mpi,ddp-gloo", "--explain")
    printed = lab.hvlab("bench", "--restart", *words, "--", "python", "tests/vlab/steps_training.py", fault)
    lines = [line for line in printed.stdout.splitlines() if line.startswith("step: ")]
    parts = [line.split(" ms, ")[1].split(" (recording")[0] for line in lines]
    assert [text.startswith(largest) for text in parts] == [True, True], lines


def test_a_narrow_link_is_communication(lab):
    lab.on("t2", "tc qdisc add dev host0 root tbf rate 50mbit burst 32k latency 400ms")
    try:
        test_where_the_time_of_a_step_goes(lab, "", "communication")
    finally:
        lab.on("t2", "tc qdisc del dev host0 root")
