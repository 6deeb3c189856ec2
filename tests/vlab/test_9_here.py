"""A user of a cluster, without root, ssh or an inventory: hvlab inside a job of Slurm."""

import json
import shlex
import subprocess

import pytest

from hvlab.base.paths import lab_runtime_dir
from tests.vlab.labs import PROJECT

pytestmark = pytest.mark.slurm
PYTHON = "/opt/hvlab/horovod/cpu/bin/python3"
FILES = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]


@pytest.fixture(scope="module")
def user(slurm):
    """The lab user, who has installed hvlab in the home that all hosts share."""
    home = lab_runtime_dir("vslurm") / "shared/home/hvlab"
    files = subprocess.run(FILES, cwd=PROJECT, capture_output=True, check=True).stdout
    packed = subprocess.run(
        ["tar", "--create", "--null", "--files-from=-"],
        cwd=PROJECT, input=files, capture_output=True, check=True,
    ).stdout  # fmt: skip
    (home / "source").mkdir()
    subprocess.run(["tar", "--extract"], cwd=home / "source", input=packed, check=True)
    slurm.on("c1", "chown -R hvlab: /home/hvlab/source; apt-get -qq install -y python3-venv >/dev/null 2>&1")
    slurm.on("c1", as_user("python3 -m venv venv && venv/bin/pip install --quiet './source[hosts,tune]'"))
    return slurm


def as_user(line):
    return shlex.join(["runuser", "--login", "hvlab", "--command", line])


def job(lab, *words, hosts=2, options="", expect=0):
    """Run hvlab in a job, and return what it wrote."""
    script = f"#!/bin/sh\nexec ~/venv/bin/hvlab {shlex.join(words)}\n"
    (lab_runtime_dir("vslurm") / "shared/home/hvlab/job.sh").write_text(script)
    submit = f"sbatch --wait --nodes={hosts} --exclusive --output=out {options} job.sh"
    line = f"rm -f out; {submit} >/dev/null; echo $?; cat out"
    status, _, text = lab.on("c1", as_user(line)).partition("\n")
    assert int(status) == expect, text
    return text


def bench(lab, *words, **how):
    small = ("--sizes", "1K,64K", "--iterations", "6", "--restart")
    return job(lab, "bench", "--here", "--python", PYTHON, *small, *words, **how)


def left(lab):
    """What runs of a bench on the hosts, and what it left in the home."""
    running = [
        lab.on(host, "pgrep --list-full --uid hvlab 'srun|python|timeout' || true") for host in ("c1", "c2")
    ]
    kept = lab.on("c1", "ls -A /home/hvlab/.hvlab").split()
    return "".join(running).strip(), [name for name in kept if name.startswith("job-")]


def test_every_backend_is_measured_and_proved(user):
    asked = ("--backend", "mpi,gloo,ddp-gloo", "--hosts", "1,2", "--slots", "2")
    bench(user, *asked, options="--ntasks-per-node=2")
    shown = user.on("c1", as_user("venv/bin/hvlab results show --format json"))
    records = json.loads(shown)
    assert {(row["backend"], len(row["hosts"]), row["status"]) for row in records} == {
        (name, count, "ok") for name in ("mpi", "gloo", "ddp-gloo") for count in (1, 2)
    }
    assert {row["launcher"] for row in records} == {"srun"}
    assert all(row["proved_backend"] == row["backend"] for row in records)
    assert all(row["world_size"] == 2 * len(row["hosts"]) for row in records)
    assert records[0]["stack"]["openmpi"] == "4.1.4"
    assert left(user) == ("", [])
    assert "html" in user.on("c1", as_user("venv/bin/hvlab report"))


def test_ranks_start_on_other_hosts_too_whatever_the_job_asked_for(user):
    bench(
        user,
        "--backend",
        "mpi",
        "--hosts",
        "each",
        options="--ntasks-per-node=2 --cpus-per-task=1 --mem=200M",
    )
    records = json.loads(user.on("c1", as_user("venv/bin/hvlab results show --format json")))
    assert {(*row["hosts"], row["slots_per_host"]) for row in records} == {
        (host, slots) for host in ("c1", "c2") for slots in (1, 2)
    }


def test_the_ranks_python_may_be_a_script(user):
    # As one that starts a container: without Slurm's commands.
    script = f'#!/bin/sh\nPATH=/nowhere exec {PYTHON} "$@"\n'
    user.on("c1", as_user(f"printf %s {shlex.quote(script)} > python.sh && chmod 755 python.sh"))
    argv = ("bench", "--here", "--python", "/home/hvlab/python.sh", "--backend", "mpi,gloo", "--hosts", "2")
    job(user, *argv, "--slots", "1", "--sizes", "1K", "--iterations", "6", "--restart")
    records = json.loads(user.on("c1", as_user("venv/bin/hvlab results show --format json")))
    assert {(row["proved_backend"], row["status"]) for row in records} == {("mpi", "ok"), ("gloo", "ok")}


def test_a_failing_rank_is_named(user):
    fails = "import horovod.torch as h, sys; h.init(); sys.exit(3 if h.rank() else 0)"
    argv = ("bench", "--here", "--python", PYTHON, "--backend", "mpi", "--hosts", "2", "--slots", "1")
    text = job(user, *argv, "--", "python", "-c", fails, expect=1)
    assert "rank 1 on c2 ended with exit status 3" in text


def test_what_is_wrong_is_named(user):
    assert "/home/hvlab/venv/bin/python3 has neither torch nor Horovod" in job(
        user, "bench", "--here", expect=2
    )
    said = job(user, "bench", "--here", "--python", "/nowhere/python", expect=1)
    assert "c1, c2: /nowhere/python" in said
    assert "No such file or directory" in said
    outside = user.on("c1", as_user("venv/bin/hvlab bench --here"), expect=2)
    assert outside == ""


# Soft ones: with a hard one Slurm's prolog drains the node.
FAULTS = (
    "umount /dev/shm; mount -t tmpfs -o size=128m tmpfs /dev/shm && head -c 100M /dev/zero > /dev/shm/full; "
    "mount -t tmpfs -o size=100m tmpfs /var/tmp && head -c 97M /dev/zero > /var/tmp/full"
)
SHAPED = {"rate": "50mbit", "hosts": {"c2": {"up": "12mbit"}, "c3": {"cpu_weight": 50}}}


@pytest.fixture
def faulty(user, tmp_path):
    """c2 sends slowly, c3 has half a share of the cores, a nearly full folder and little shared memory."""
    topology = tmp_path / "topology.yml"
    topology.write_text(json.dumps(SHAPED))
    user.hvlab("lab up", "--topology", str(topology))
    user.on("c3", FAULTS)
    yield user
    user.on("c3", "umount /var/tmp /dev/shm; mount -t tmpfs tmpfs /dev/shm")
    user.hvlab("lab up")


def test_a_plain_user_finds_the_same_faults_as_an_inventory(faulty):
    def slow(found):
        return {(each["kind"], each["host"], each["to"]) for each in found["slow"]}

    def unfit(found):
        return {(row["host"], row["check"], row["severity"]) for row in found if row["outcome"] == "failed"}

    def wrong(found):
        return {(each["id"], *each["hosts"]) for each in found["findings"]}

    for verb, findings, planted, code in (
        ("find-slow", slow, {("up", "c2", None), ("host", "c3", None)}, 1),
        ("health", unfit, {("c3", "disk space /var/tmp", "soft"), ("c3", "memory /dev/shm", "soft")}, 0),
        ("doctor", wrong, {("backing-file", "c3")}, 1),
    ):
        text = job(faulty, verb, "--here", "--format", "json", hosts=3, expect=code)
        here = findings(json.JSONDecoder().raw_decode(text)[0])
        # Outside of a job: a list of hosts, over the user's own ssh.
        listed = f"venv/bin/hvlab {verb} --hosts c1,c2,c3 --format json"
        assert here == findings(json.loads(faulty.on("c1", as_user(listed), code))), verb
        root = findings(json.loads(faulty.hvlab(verb, "--format", "json", expect=code).stdout))
        assert planted <= here == root, (verb, here, root)


def test_hosts_of_a_list_are_measured_over_the_users_own_ssh(user):
    asked = ("--backend", "mpi,gloo,ddp-gloo", "--hosts", "c1,c2", "--slots", "1", "--python", PYTHON)
    line = shlex.join(["bench", *asked, "--sizes", "1K,64K", "--iterations", "6", "--restart"])
    path = "PATH=/opt/hvlab/openmpi/current/bin:$PATH"
    user.on("c1", as_user(f"{path} venv/bin/hvlab {line}"))
    records = json.loads(user.on("c1", as_user("venv/bin/hvlab results show --format json")))
    assert {
        (row["backend"], row["launcher"], len(row["hosts"]), row["proved_backend"]) for row in records
    } == {
        (backend, launcher, count, backend)
        for backend, launcher in (("mpi", "mpirun"), ("gloo", "horovodrun"), ("ddp-gloo", "horovodrun"))
        for count in (1, 2)
    }
    assert {row["status"] for row in records} == {"ok"}
    assert left(user) == ("", [])


@pytest.mark.parametrize("hosts", ["--here", "--hosts=c1,c2"])
def test_tune_ends_with_an_answer(user, hosts):
    space = {"name": "cycle_time", "to": "env", "variable": "HOROVOD_CYCLE_TIME"}
    space |= {"values": [1, 100], "default": 100}
    home = lab_runtime_dir("vslurm") / "shared/home/hvlab"
    (home / "space.yml").write_text(json.dumps({"parameters": [space]}))
    (home / "today.yml").write_text(json.dumps({"env": {"HOROVOD_CYCLE_TIME": "100"}}))
    argv = ("tune", hosts, "--python", PYTHON, "--backend", "gloo", "--set", "sizes=64K")
    argv += ("--set", "iterations=6", "--space", "space.yml", "--settings", "today.yml", "--time-limit", "3m")
    by_ssh = as_user(f"venv/bin/hvlab {shlex.join(argv)} 2>&1")
    text = job(user, *argv) if hosts == "--here" else user.on("c1", by_ssh)
    assert "Better, and proved" in text
    assert "cycle_time=1" in text
    assert left(user) == ("", [])


def test_scancel_leaves_nothing(user):
    sleep = "import horovod.torch as h, time, torch; h.init(); h.allreduce(torch.ones(1)); time.sleep(300)"
    argv = (
        "bench",
        "--here",
        "--python",
        PYTHON,
        "--backend",
        "mpi",
        "--hosts",
        "2",
        "--slots",
        "1",
        "--restart",
    )
    script = f"#!/bin/sh\nexec ~/venv/bin/hvlab {shlex.join([*argv, '--', 'python', '-c', sleep])}\n"
    (lab_runtime_dir("vslurm") / "shared/home/hvlab/job.sh").write_text(script)
    steps = "squeue --steps --noheader | grep -q hvlab-"
    gone = "squeue --noheader | grep -q ."
    line = (
        "rm -f out; number=$(sbatch --parsable --nodes=2 --exclusive --output=out job.sh); "
        f"for _ in $(seq 300); do {steps} && break; sleep 1; done; sleep 2; "
        f"scancel --signal=TERM --batch $number; "
        f"for _ in $(seq 60); do {gone} || break; sleep 1; done; cat out"
    )
    assert "interrupted; run " in user.on("c1", as_user(line))
    assert left(user) == ("", [])


# The last rank never comes to the third sum.
STANDS = """import os, time, torch, torch.distributed as dist
rank = int(os.environ["SLURM_PROCID"])
dist.init_process_group("gloo", init_method="file:///home/hvlab/meeting", rank=rank, world_size=2)
for step in range(3):
    if step == 2:
        open(f"/home/hvlab/stands-{rank}", "w").close()
        time.sleep(600 * rank)
    dist.all_reduce(torch.ones(4))
"""


def test_a_job_that_stands_is_explained_to_its_user_and_to_root(user):
    home = lab_runtime_dir("vslurm") / "shared/home/hvlab"
    (home / "stands.py").write_text(STANDS)
    (home / "job.sh").write_text(
        f"#!/bin/sh\nsrun --overlap --ntasks=2 --ntasks-per-node=1 {PYTHON} stands.py &\n"
        "while [ ! -e stands-0 ] || [ ! -e stands-1 ]; do sleep 1; done; sleep 3\n"
        "venv/bin/hvlab doctor --here --job $SLURM_JOB_ID --seconds 4; echo ended with $?\n"
        "touch asked; wait\n"
    )
    wait = "for _ in $(seq 120); do [ -e asked ] && break; sleep 1; done; cat out"
    submit = "rm -f out; sbatch --nodes=2 --exclusive --output=out job.sh >/dev/null"
    said = user.on("c1", as_user(f"{submit}; {wait}"))
    try:
        assert "ended with 1" in said, said
        assert "rank 1 on c2: stands.py:7" in said, said
        # The probe of an inventory brings py-spy, which no host has.
        asked = user.run(user.argv("doctor", "--job", "--seconds", "4"), 1)
        assert "rank 1 on c2: stands.py:7" in asked.stdout, asked.stdout + asked.stderr
        assert user.on("c2", "stat --format '%U %a' /opt/hvlab/bin/py-spy") == "root 755\n"
    finally:
        user.on("c1", as_user("scancel --me; rm -f stands-? asked meeting"))
