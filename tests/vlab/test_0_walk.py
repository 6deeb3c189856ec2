"""The walk of `make test`: one lab of three virtual hosts, from its boot to its end. Also with Open MPI 5."""

import base64
import io
import json
import re
import shlex
import shutil
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import PurePath

import pytest
import yaml

from tests.faults import FAULTS, SHORT
from tests.faults.fault import check
from tests.faults.stores import TINY
from tests.faults.world import World
from tests.vlab.labs import PROJECT, booted, leftovers

HOSTS = ("w1", "w2", "w3")
# Debian 13 has Open MPI 5 alone: its own package, and its source package.
TRIXIE = {"lab_release": "trixie"}
SMALL = ("--restart", "--backend", "mpi,gloo", "--sizes", "1K,64K", "--iterations", "6", "--slots", "1")


# Both ranks put in their number and one.
SCRIPT = """import os, platform
os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
import horovod.torch as hvd, torch
hvd.init()
hvd.start_timeline("/tmp/timeline-of-shim.json")
total = hvd.allreduce(torch.ones(2) * (hvd.rank() + 1), op=hvd.Sum)
print(hvd.rank(), "of", hvd.size(), "on", platform.node() + ":", total.tolist())
assert "hvlab" in hvd.__file__, hvd.__file__
hvd.stop_timeline()
assert hvd.rank() or "NEGOTIATE_ALLREDUCE" in open("/tmp/timeline-of-shim.json").read()
words = torch.nn.Embedding(4, 2, sparse=True)
own = torch.optim.SGD(words.parameters(), lr=1.0)
averaged = hvd.DistributedOptimizer(own, named_parameters=words.named_parameters(), sparse_as_dense=True)
words(torch.tensor([hvd.rank()])).sum().backward()
averaged.step()
assert words.weight.grad.to_dense().tolist() == [[0.5, 0.5]] * 2 + [[0.0, 0.0]] * 2
words = torch.nn.Embedding(4, 2, sparse=True)
own = torch.optim.SparseAdam(words.parameters())
averaged = hvd.DistributedOptimizer(own, named_parameters=words.named_parameters())
for _ in range(2):
    averaged.zero_grad()
    words(torch.tensor([hvd.rank()])).sum().backward()
    averaged.step()
assert words.weight.grad.to_dense().tolist() == [[0.5, 0.5]] * 2 + [[0.0, 0.0]] * 2
assert hvd.broadcast_object({"epoch": 3} if hvd.rank() == 1 else None, root_rank=1) == {"epoch": 3}
try:
    hvd.allreduce(torch.ones(1), op=hvd.Max if hvd.rank() else hvd.Min, name="loss")
except hvd.HorovodInternalError as error:
    assert "allreduce.loss: rank 0 submits Min, rank 1 Max; what to do" in str(error), error
if hvd.rank() == 0:
    try:
        hvd.barrier()
    except hvd.HorovodInternalError as error:
        print(str(error).partition(",")[0])
"""
# In the place of Horovod's own, which are not shipped: one of each outcome, and one after a failure.
TESTS = """import unittest
import horovod.torch as hvd, torch
class TorchTests(unittest.TestCase):
    def test_sum(self):
        hvd.init()
        self.assertEqual(hvd.allreduce(torch.ones(1), op=hvd.Sum).item(), 2)
    def test_gpu(self):
        self.skipTest("no GPU")
    def test_first_rank_alone(self):
        hvd.init()
        self.assertEqual(hvd.rank(), 0)
    def test_with_new_ranks(self):
        hvd.init()
        self.assertEqual(hvd.size(), 2)
"""
PYTHON = "/opt/hvlab/horovod/cpu/bin/python3"
TRAINED = PROJECT / "tests/vlab/trained_by_shim.py"
# What `hvlab remove` leaves: packages with their files, users and groups, and what they keep up to date.
OF_PACKAGES = re.compile(
    r"/etc/(alternatives|default|init\.d|libibverbs\.d|libnl-3|logrotate\.d|munge|rc.\.d|slurm|systemd)(/|$)"
    # From binutils, which a host that compiles installs.
    r"|/etc/(gprofng\.rc|ld\.so\.cache|passwd|shadow|group|gshadow|subgid|subuid)-?$"
)
LIST = (
    "find /etc /home /root /opt /var/lib/hvlab* -xdev -type f -exec sha256sum {} + ; "
    "find /etc /home /root /opt -xdev -printf '%p %y %m %u:%g %l\\n'"
)


def inventory(source, folder, **changes):
    """Copy an inventory and change variables of all its hosts."""
    shutil.copytree(source, folder)
    file = folder / "group_vars/all.yml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changes))
    return folder


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({}, id="bookworm", marks=pytest.mark.walk),
        pytest.param(TRIXIE | {"lab_openmpi_method": "distro"}, id="trixie", marks=pytest.mark.trixie),
        pytest.param(TRIXIE | {"lab_openmpi": "5.0.7"}, id="trixie-source", marks=pytest.mark.trixie),
    ],
)
def bare(request, tmp_path_factory):
    """The hosts before anything is installed, and what is on the first of them."""
    folder = tmp_path_factory.mktemp("walk") / "inventory"
    with booted(inventory(PROJECT / "tests/vlab/walk", folder, **request.param), tmp_path_factory) as lab:
        yield lab, {host: lab.on(host, LIST) for host in ("w1", "w2")}


@pytest.fixture(scope="module")
def slurm(bare):
    lab, _ = bare
    assert all(lab.site().values())
    return lab


@pytest.fixture(scope="module")
def lab(slurm, tmp_path_factory):
    """The same hosts for mpirun and horovodrun."""
    folder = tmp_path_factory.mktemp("walk") / "inventory"
    return replace(slurm, inventory=inventory(slurm.inventory, folder, lab_slurm=False))


@pytest.fixture(scope="module")
def world(lab, tmp_path_factory):
    made = World(lab.inventory, tmp_path_factory.mktemp("faults"), lab.data)
    first = made.hvlab(*TINY)
    assert first.returncode == 0, first.stderr
    return made


def bench(lab, *words):
    """Return (launcher, backend, proved backend, world size, status) of the cases of a bench."""
    lab.hvlab("bench", *SMALL, *words)
    names = ("launcher", "backend", "proved_backend", "world_size", "status")
    return {tuple(row[name] for name in names) for row in lab.results_of("show")}


def test_a_second_run_changes_nothing(slurm):
    assert slurm.site() == dict.fromkeys(HOSTS, 0)


def test_the_hosts_are_verified(slurm):
    rows = json.loads(slurm.hvlab("verify", "--format", "json").stdout)
    assert {row["host"] for row in rows} == set(HOSTS)
    assert {row["role"] for row in rows} >= {"openmpi", "horovod", "slurm", "ssh_trust"}


def test_mpi_and_gloo_carry_the_data(lab):
    assert bench(lab, "--hosts", "1,3") == {
        (launcher, backend, backend, ranks, "ok")
        for launcher, backend in (("mpirun", "mpi"), ("horovodrun", "gloo"))
        for ranks in (1, 3)
    }


def test_torchrun_starts_ranks(lab):
    both = ("ddp-gloo", "horovod-on-ddp-gloo")
    words = ("--backend", ",".join(both), "--launcher", "torchrun", "--hosts", "1,3")
    assert bench(lab, *words) == {("torchrun", name, name, ranks, "ok") for name in both for ranks in (1, 3)}


@pytest.fixture(scope="module")
def shim(lab):
    """hvlab_horovod in /tmp/shim of two hosts, which have Horovod, too."""
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            # A word of a command line has at most 128 KiB.
            tar.add(
                PROJECT / "hvlab_horovod",
                "hvlab_horovod",
                filter=lambda entry: None if "__pycache__" in entry.name else entry,
            )
        package = base64.b64encode(buffer.getvalue()).decode()
    for host in HOSTS[:2]:
        lab.on(host, f"mkdir -p /tmp/shim && echo {package} | base64 -d | tar xz -C /tmp/shim")
        lab.on(host, f"printf %s {shlex.quote(SCRIPT)} > /tmp/shim/script.py")
        lab.on(host, f"printf %s {shlex.quote(TRAINED.read_text())} > /tmp/shim/trained.py")
    return "cd /tmp/shim && runuser -u hvlab -- env PYTHONPATH=/tmp/shim"


def test_a_script_of_horovods_runs_on_torch_alone(lab, shim):
    """Started by ssh on two hosts: the alias comes first there."""
    run = f"{PYTHON} -m hvlab_horovod.run -np 2 -H w1:1,w2:1 {PYTHON} script.py"
    said = lab.on("w1", f"{shim} {run}")
    lines = sorted(line.partition(":")[2] for line in said.splitlines())
    assert lines == ["0 of 2 on w1: [3.0, 3.0]", "1 of 2 on w2: [3.0, 3.0]", "rank 1 has left"]


def test_trainings_give_what_horovod_gives(lab, shim):
    said = lab.on("w1", f"{shim} {PYTHON} -m hvlab_horovod.run -np 3 -H w1:2,w2:1 {PYTHON} trained.py")
    assert said.count(" passed") == 3 * TRAINED.read_text().count("def test_")


def test_a_script_runs_by_mpirun_without_any_variable(lab):
    """Though oneCCL is built in, which Horovod's own build makes the default."""
    script = "import horovod.torch as h, torch; h.init(); print(h.allreduce(torch.ones(1), op=h.Sum))"
    run = f"mpirun -np 2 -H w1:1,w2:1 {PYTHON} -c {shlex.quote(script)}"
    assert lab.on("w1", f"runuser -l hvlab -c {shlex.quote(run)}").splitlines() == ["tensor([2.])"] * 2


def test_a_program_loads_mpi_for_itself_alone(lab):
    """As mpi4py does: Open MPI's plugins then find no symbol of libmpi but by a link of their own."""
    library = "$(ldd $(command -v ompi_info) | sed -n 's/.*libmpi.so.40 => \\([^ ]*\\).*/\\1/p')"
    script = (
        "import ctypes as c, sys; m = c.CDLL(sys.argv[1]); print(m.MPI_Init(None, None)); m.MPI_Finalize()"
    )
    run = f"mpirun -np 2 -H w1:1,w2:1 python3 -c {shlex.quote(script)} {library}"
    assert lab.on("w1", f"runuser -l hvlab -c {shlex.quote(run)}").split() == ["0", "0"]


def test_horovods_tests_are_counted(lab, shim):
    lab.on("w1", "mkdir -p /tmp/shim/test/parallel")
    lab.on("w1", f"printf %s {shlex.quote(TESTS)} > /tmp/shim/test/parallel/test_torch.py")
    said = lab.on("w1", f"{shim} {PYTHON} -m hvlab_horovod.conformance /tmp/shim", expect=1)
    assert said.splitlines() == [
        *("passed: 2", "skipped: 1", "failed: 1"),
        "skipped  test_gpu: no GPU",
        "failed   test_first_rank_alone: AssertionError: 1 != 0",
    ]


def test_a_trainjob_runs_as_trainer_starts_it(lab, tmp_path):
    """Its own command, with the variables that Kubeflow Trainer sets, on two hosts in place of two pods."""
    words = ("--backend", "ddp-gloo", "--launcher", "torchrun", "--hosts", "2", "--sizes", "1K")
    image = ("--container", "registry.example/torch:1", "--slots", "1", "--output", str(tmp_path))
    lab.hvlab("bench", *words, "--export", "trainjob", *image)
    (job,) = (yaml.safe_load(file.read_text()) for file in tmp_path.glob("[0-9]*.yml"))
    trainer = job["spec"]["trainer"]
    given = {one["name"]: one["value"].replace("$$", "$") for one in trainer["env"]}
    given |= {"PET_NNODES": trainer["numNodes"], "PET_NPROC_PER_NODE": trainer["numProcPerNode"]}
    given |= {"PET_MASTER_ADDR": "w1", "PET_MASTER_PORT": 29400, "PATH": f"{PurePath(PYTHON).parent}:/bin"}

    def start(node):
        env = [f"{name}={value}" for name, value in (given | {"PET_NODE_RANK": node}).items()]
        argv = [*trainer["command"], *(word.replace("$$", "$") for word in trainer["args"])]
        return lab.on(HOSTS[node], shlex.join(["runuser", "-u", "hvlab", "--", "env", *env, *argv]))

    with ThreadPoolExecutor() as pool:
        printed, silent = pool.map(start, range(2))
    assert silent == ""
    (tmp_path / "job.log").write_text(printed)
    lab.run([sys.executable, "-m", "hvlab", "results", "import", str(tmp_path / "job.log")], 0)
    rows = lab.results_of("show")
    assert {(row["proved_backend"], row["world_size"], row["status"]) for row in rows} == {
        ("ddp-gloo", 2, "ok")
    }


def test_slurm_starts_ranks(slurm):
    assert bench(slurm, "--hosts", "3") == {("srun", name, name, 3, "ok") for name in ("mpi", "gloo")}
    assert slurm.on("w1", "squeue --noheader --states=PENDING,RUNNING") == ""


def test_the_run_becomes_a_report(lab, tmp_path):
    page = tmp_path / "report.html"
    lab.run([*lab.argv("report")[:-2], "--output", str(page)], 0)
    assert "w3" in page.read_text("utf-8")


@pytest.mark.parametrize("name", SHORT)
def test_a_fault(world, name):
    check(FAULTS[name], world, timed=False)


def test_what_was_installed_goes_again(bare):
    lab, before = bare
    assert "nothing was removed" in lab.hvlab("remove").stderr
    lab.hvlab("remove", "--yes", "--limit", "w2")
    assert "slurmd" in lab.on("w2", "ls /usr/sbin")
    lab.hvlab("remove", "--yes", "--packages")
    assert "slurm" not in lab.on("w1", "dpkg-query -W; apt-mark showhold; ls /usr/sbin")
    for host in ("w1", "w2"):
        differing = set(lab.on(host, LIST).splitlines()) ^ set(before[host].splitlines())
        paths = {line.split()[1 if line.split()[0].isalnum() else 0] for line in differing}
        left = {path for path in paths if not OF_PACKAGES.match(path)}
        owned = lab.on(host, f"dpkg-query --search {shlex.join(['/etc', *left])} 2>/dev/null || true")
        assert left - {line.partition(": ")[2] for line in owned.splitlines()} == set()


def test_down_leaves_nothing(slurm):
    assert leftovers("vwalk")
    slurm.hvlab("lab down")
    assert leftovers("vwalk") == []
