"""Benchmarks whose ranks Slurm starts on virtual hosts: one allocation for a run, one step for a case."""

import json
import re
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.slurm

SMALL = ("--restart", "--sizes", "1K,64K", "--iterations", "6")
ONE = (*SMALL, "--backend", "mpi", "--hosts", "1", "--slots", "1")
LONG = "import horovod.torch as h, time, torch; h.init(); h.allreduce(torch.ones(1)); time.sleep({})"


@pytest.fixture
def lab(slurm):
    return slurm


@pytest.fixture(autouse=True)
def nothing_is_left_in_the_queue(lab):
    yield
    assert queue(lab) == []


def queue(lab):
    # A job that completes has only its epilog left, which takes seconds on a busy machine.
    return lab.on("c1", "squeue --noheader --states=PENDING,RUNNING --format=%i,%j,%T").split()


def training(seconds):
    return ("--", "python", "-c", LONG.format(seconds))


def refused(lab, *words, expect):
    return " ".join(lab.hvlab("bench", *words, expect=expect).stderr.split())


@contextmanager
def partition(lab, text):
    """The lab with another partition."""
    file = lab.inventory / "group_vars/all.yml"
    kept = file.read_text("utf-8")
    file.write_text(f"{kept}{text}\n", "utf-8")
    try:
        yield
    finally:
        file.write_text(kept, "utf-8")


def test_it_starts_ranks(lab):
    lab.hvlab("bench", *SMALL, "--backend", "mpi,gloo", "--hosts", "3", "--slots", "1")
    rows = lab.results_of("show")
    assert {(row["launcher"], row["backend"], row["proved_backend"], row["status"]) for row in rows} == {
        ("srun", "mpi", "mpi", "ok"),
        ("srun", "gloo", "gloo", "ok"),
    }


def test_it_starts_ranks_over_every_backend(lab):
    lab.hvlab("bench", *SMALL, "--backend", "mpi,gloo,ccl", "--hosts", "1,3", "--slots", "1,2")
    records = lab.results_of("show")
    assert {(row["launcher"], row["status"]) for row in records} == {("srun", "ok")}
    assert all(row["backend"] == row["proved_backend"] for row in records)
    placed = {(row["backend"], len(row["hosts"]), row["slots_per_host"]) for row in records}
    assert placed == {(name, n, slots) for name in ("mpi", "gloo", "ccl") for n in (1, 3) for slots in (1, 2)}
    assert all(row["world_size"] == len(row["hosts"]) * row["slots_per_host"] for row in records)


def test_beside_mpirun_in_one_run(lab):
    lab.hvlab(
        "bench", *ONE[:-4], "--hosts", "3", "--slots", "1", "--ab", "launcher=mpirun", "launcher=srun",
        "--repeats", "2",
    )  # fmt: skip
    assert {(row["launcher"], row["status"]) for row in lab.results_of("show")} == {
        ("mpirun", "ok"),
        ("srun", "ok"),
    }


def test_a_rank_that_fails_is_named(lab):
    script = "import horovod.torch as h, os; h.init(); os._exit(3 if h.rank() == 1 else 0)"
    words = ("--backend", "mpi", "--hosts", "2", "--slots", "1", "--restart")
    lab.hvlab("bench", *words, "--", "python", "-c", script, expect=1)
    (record,) = lab.results_of("show")
    assert "rank 1 on c2 ended with exit status 3" in record["error"]


def test_wrong_requests_are_refused_with_a_remedy(lab):
    with partition(lab, "lab_slurm_partition: nope"):
        said = refused(lab, *ONE, expect=2)
    assert "Invalid partition name specified" in said
    assert "lab_slurm_partition" in said
    lab.on("c1", "scontrol update nodename=c3 state=drain reason='bad disk'")
    try:
        said = refused(lab, *ONE[:-3], "3", "--slots", "1", expect=1)
    finally:
        lab.on("c1", "scontrol update nodename=c3 state=resume")
    assert "c3: Slurm reports it as drained (bad disk)" in said


def test_partitions_that_the_user_has_no_right_to(lab):
    lab.on("c1", "scontrol create PartitionName=groups Nodes=ALL AllowGroups=adm State=UP")
    lab.on("c1", "scontrol create PartitionName=accounts Nodes=ALL AllowAccounts=physics State=UP")
    try:
        with partition(lab, "lab_slurm_partition: groups"):
            assert "User's group not permitted to use this partition" in refused(lab, *ONE, expect=2)
        with partition(lab, "lab_slurm_partition: accounts"):
            said = refused(lab, *ONE, expect=2)
    finally:
        lab.on("c1", "scontrol delete PartitionName=groups; scontrol delete PartitionName=accounts")
    assert "would wait for ever: Job's account not known, so it can't use this partition" in said


def test_the_time_that_is_asked_for_fits_the_partition(lab):
    lab.on("c1", "scontrol create PartitionName=brief Nodes=ALL MaxTime=5 State=UP")
    try:
        with partition(lab, "lab_slurm_partition: brief"):
            lab.hvlab("bench", *ONE)
    finally:
        lab.on("c1", "scontrol delete PartitionName=brief")


def test_a_run_right_after_slurmctlds_start_waits_for_the_nodes(lab):
    lab.on("c1", "systemctl restart slurmctld")
    lab.hvlab("bench", *SMALL, "--backend", "mpi", "--hosts", "2", "--slots", "1")


def test_slurmctld_may_be_away_for_a_while(lab):
    words = ("--backend", "mpi", "--hosts", "2", "--slots", "1", "--repeats", "3", "--restart")
    with subprocess.Popen(
        lab.argv("bench", *words, *training(3)), env=lab.environment, stderr=subprocess.PIPE, text=True
    ) as bench:
        grants = 0
        for line in bench.stderr:
            grants += line.startswith("Slurm grants")
            # Once: a second time without a case between them ends the run.
            if line.startswith("Slurm grants") and grants == 1:
                lab.on("c1", "systemctl stop slurmctld && sleep 20; systemctl start slurmctld")
        assert bench.wait(timeout=300) == 0
    assert {row["status"] for row in lab.results_of("show")} == {"ok"}


def test_a_host_with_another_munge_key_is_named(lab):
    key = "/etc/munge/munge.key"
    lab.on("c2", f"cp -a {key} /root/ && head -c 128 /dev/urandom > {key} && systemctl restart munge")
    try:
        said = refused(lab, *ONE[:-3], "2", "--slots", "1", expect=3)
    finally:
        lab.on("c2", f"cp -a /root/munge.key {key} && systemctl restart munge slurmd")
        lab.on(
            "c1", "for i in $(seq 90); do [ $(sinfo -hNn c2 -o %T) = idle ] && exit; sleep 1; done; exit 1"
        )
    assert "c2: Slurm reports it as down* (Not responding)" in said
    assert "hvlab verify -l c2" in said


def test_the_queue_is_waited_for_so_long(lab):
    lab.on("c1", "runuser -u hvlab -- salloc --no-shell -N1 -w c1 --exclusive -J other")
    try:
        said = refused(lab, *ONE, "--queue-limit", "3", expect=1)
    finally:
        lab.on("c1", "scancel --name=other")
    assert "in the queue (Resources); --queue-limit is 3 s" in said


def test_after_an_interruption_it_resumes(lab):
    words = ("--backend", "mpi", "--hosts", "2", "--slots", "1", "--repeats", "2", *training(8))
    bench = subprocess.Popen(
        lab.argv("bench", "--restart", *words), env=lab.environment, stderr=subprocess.PIPE, text=True
    )
    for line in bench.stderr:
        if line.startswith("[1/2]"):
            break
    time.sleep(3)
    bench.send_signal(signal.SIGINT)
    assert bench.wait(timeout=120) == 130
    bench.stderr.close()
    assert queue(lab) == []
    lab.hvlab("bench", *words)
    assert {(row["repeat"], row["status"]) for row in lab.results_of("show")} == {(1, "ok"), (2, "ok")}


def test_a_step_that_stays_is_cancelled(lab):
    words = ("--backend", "mpi", "--hosts", "2", "--slots", "1", "--repeats", "2", "--restart", *training(10))
    bench = subprocess.Popen(lab.argv("bench", *words), env=lab.environment, stderr=subprocess.DEVNULL)
    wait = "for i in $(seq 60); do pgrep -x srun > /dev/null && exit; sleep 1; done; exit 1"
    lab.on("c1", f"{wait}")
    lab.on("c1", "sleep 3; pkill -KILL -x srun")
    assert bench.wait(timeout=180) == 1
    assert {row["repeat"]: row["status"] for row in lab.results_of("show")} == {1: "failed", 2: "ok"}


def test_inside_an_allocation_that_is_there(lab):
    granted = lab.on("c1", "runuser -u hvlab -- salloc --no-shell -N2 -w c1,c2 --exclusive -J mine 2>&1")
    job = re.search(r"Granted job allocation (\d+)", granted)[1]
    own = dict(lab.environment, SLURM_JOB_ID=job, SLURM_JOB_NODELIST="c[1-2]")
    try:
        done = subprocess.run(
            lab.argv("bench", *ONE), env=own, capture_output=True, text=True, check=True, timeout=300
        )
        assert "Slurm grants" not in done.stderr
        assert [line.split(",")[0] for line in queue(lab)] == [job]
    finally:
        lab.on("c1", f"scancel {job}")
    assert {row["status"] for row in lab.results_of("show")} == {"ok"}


def test_a_lost_node_gives_another_allocation_for_what_is_left(lab):
    words = ("--backend", "mpi", "--hosts", "1,3", "--slots", "1", "--repeats", "3", "--restart")
    said = []
    with subprocess.Popen(
        lab.argv("bench", *words, *training(6)), env=lab.environment, stderr=subprocess.PIPE, text=True
    ) as bench:
        for line in bench.stderr:
            said.append(line)
            if line.startswith("[1/6]"):
                lab.on("c1", "scontrol update nodename=c3 state=down reason=lost")
            if "another allocation for" in line:
                # It may have come back on its own.
                lab.on("c1", "scontrol update nodename=c3 state=resume || true")
        assert bench.wait(timeout=300) == 0, "".join(said)
    assert any("NODE_FAIL" in line for line in said)
    rows = lab.results_of("show")
    assert len({row["case_id"] for row in rows}) == 6
    assert json.dumps([row["status"] for row in rows]).count("ok") == len(rows)
