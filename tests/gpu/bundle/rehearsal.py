"""All of the bundle that works without a GPU, in its own root: `run --rehearse`. The GPUs are declared."""

import re

import pytest

from tests.gpu.commands import INVENTORY, hvlab, measured, run, site

HOROVOD = "/opt/hvlab/horovod/nccl/bin"


@pytest.fixture(scope="session")
def provisioned():
    hvlab("plan", "-i", INVENTORY, "--explain", keep="plan.txt")
    hvlab("provision", "-i", INVENTORY, keep="provision.txt")


def test_nothing_is_fetched_and_a_second_run_changes_nothing(provisioned):
    assert re.search(r"changed=0 .*failed=0", site(keep="second-run.txt"))


def test_horovod_has_nccl(provisioned):
    assert "[X] NCCL" in run(f"{HOROVOD}/horovodrun", "--check-build", keep="check-build.txt")


def test_torch_is_for_cuda(provisioned):
    program = "import torch, horovod.torch; print(torch.version.cuda, torch.cuda.nccl.version())"
    assert re.match(r"\d+\.\d+ \(\d+, ", run(f"{HOROVOD}/python", "-c", program, keep="torch.txt"))


@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_the_same_build_runs_on_the_cpu(provisioned, backend):
    records = measured("--backend", backend, "--slots", "2", "--sizes", "1K:1M:32", keep=backend)
    assert {(row["status"], row["proved_backend"]) for row in records if row["metric"]} == {("ok", backend)}
