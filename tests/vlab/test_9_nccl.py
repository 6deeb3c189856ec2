"""The real GPU stack as far as it goes without a GPU: NVIDIA's wheels, Open MPI with CUDA, Horovod with NCCL.

The build takes 15 minutes and 3 GB; with its packs in the cache 3 minutes.
"""

import json

import pytest

from tests.vlab.labs import booted

pytestmark = pytest.mark.nccl
HOROVOD = "/opt/hvlab/horovod"


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """A host that builds for a GPU it does not have, with the whole stack."""
    with booted("nccl", tmp_path_factory) as lab:
        lab.site()
        yield lab


def test_a_second_run_changes_nothing(gpu):
    assert gpu.site() == {"g1": 0}


def test_open_mpi_takes_gpu_memory(gpu):
    said = gpu.on("g1", "/opt/hvlab/openmpi/current/bin/ompi_info --parsable --all")
    assert "mpi_built_with_cuda_support:value:true" in said


@pytest.mark.parametrize(("variant", "lacks"), [("nccl", ()), ("mpi", ("NCCL", "Gloo"))])
def test_horovod_was_built_with_what_was_asked(gpu, variant, lacks):
    said = gpu.on("g1", f"{HOROVOD}/{variant}/bin/horovodrun --check-build")
    for name in ("PyTorch", "MPI", "NCCL", "Gloo"):
        assert (f"[X] {name}" in said) is (name not in lacks), said


def test_torch_is_the_build_for_cuda(gpu):
    program = "import torch, horovod.torch; print(torch.__version__, torch.version.cuda)"
    said = gpu.on("g1", f"{HOROVOD}/nccl/bin/python -c '{program}'")
    assert said.split() == ["2.12.1+cu130", "13.0"]


def test_the_same_build_runs_mpi_and_gloo_on_the_cpu(gpu):
    gpu.hvlab("bench", "--backend", "mpi,gloo", "--sizes", "1K:1M:32", "--slots", "2")
    rows = [row for row in gpu.results_of("show") if row["metric"]]
    assert {(row["backend"], row["proved_backend"], row["status"]) for row in rows} == {
        ("mpi", "mpi", "ok"),
        ("gloo", "gloo", "ok"),
    }
    assert all(row["stack"]["cuda"].startswith("13.0") for row in rows)
    # Torch's own, which is loaded with it.
    planned = json.loads(gpu.on("g1", "cat /etc/ansible/facts.d/hvlab_common.fact"))["stack"]["nccl_loaded"]
    assert {row["stack"]["nccl"] for row in rows} == {planned["torch"]} == {"2.29.7"}


def test_nccl_is_refused_where_no_gpu_is_seen(gpu):
    done = gpu.hvlab("bench", "--backend", "nccl", expect=2)
    assert "g1" in done.stderr
    assert "no NVIDIA GPU" in done.stderr


def test_the_checks_of_its_state_pass(gpu):
    gpu.hvlab("verify")
