"""What a lab can run."""

import pytest
import yaml

from hvlab.base.errors import UsageError
from hvlab.base.paths import project_dir
from hvlab.lab.backends import BACKENDS, PARALLEL
from hvlab.lab.environment import stack
from hvlab.lab.inventory import folders
from hvlab.lab.variants import (
    available,
    carries,
    choose,
    device,
    in_place,
    launchers,
    side_by_side,
    variant_for,
    variants,
)
from tests.unit.labs import lab

GPU_VARIANTS = {"cpu": {"mpi": True, "gloo": True}, "nccl": {"mpi": True, "gpu_operations": "nccl"}}


def facts(*operations: str, **more: object) -> dict:
    variants = {"cpu": {"operations": list(operations), "version": "0.28.1"}}
    return {"ansible_local": {"hvlab_horovod": {"variants": variants}}, **more}


def test_default_backends_of_hosts_without_gpu():
    assert choose([], lab()) == ["mpi", "gloo", "ccl"]


def test_a_gpu_lab_runs_nccl_with_its_variant():
    there = lab(gpu=("n1", "n2", "n3"), horovod_variants=GPU_VARIANTS)
    assert choose([], there) == ["mpi", "gloo", "nccl"]
    assert variant_for("nccl", there.hosts) == "nccl"
    assert variant_for("mpi", there.hosts) == "cpu"


def test_the_default_variants_are_those_of_the_role():
    role = yaml.safe_load((project_dir() / "roles/horovod/defaults/main.yml").read_text())
    assert variants(lab(horovod_variants=role["horovod_variants"]).hosts[0]) == variants(lab().hosts[0])


def test_the_default_folders_are_those_of_the_roles():
    assert folders(lab()).horovod == "/opt/hvlab/horovod"
    assert folders(lab(openmpi_prefix="/x")).openmpi == "/x/current"


def test_nccl_without_gpu_names_hosts_and_what_works():
    with pytest.raises(UsageError, match="n2, n3") as caught:
        choose(["nccl"], lab(gpu=("n1",), horovod_variants=GPU_VARIANTS))
    assert "mpi, gloo" in str(caught.value.remedy)
    assert caught.value.exit_code == 2


def test_an_unknown_backend_lists_all_and_guesses():
    with pytest.raises(UsageError, match="'glo'") as caught:
        choose(["glo"], lab())
    assert caught.value.remedy == f"did you mean gloo? there are {', '.join(BACKENDS)}"


def test_a_backend_no_variant_has():
    with pytest.raises(UsageError, match="no Horovod variant"):
        choose(["ccl"], lab(horovod_variants=GPU_VARIANTS))


def test_the_summary_tells_hosts_apart_only_where_they_differ():
    found = {"n1": facts("mpi", kernel="6.1"), "n2": facts("mpi", kernel="6.2")}
    told = stack(found, "cpu")
    assert told["horovod"] == "0.28.1"
    assert told["kernel"] == {"n1": "6.1", "n2": "6.2"}


def test_every_backend_proves_itself_differently():
    proofs = [BACKENDS[name].proof for name in PARALLEL]
    assert len(set(proofs)) == len(proofs)
    assert all(proofs)
    assert not any(a != b and a.startswith(b) for a in proofs for b in proofs)


CUDA_MPI = {"mpi": {"mpi": True, "gpu_operations": "mpi"}}


@pytest.mark.parametrize(
    ("backend", "variants_asked", "gpu", "where"),
    [
        ("nccl", GPU_VARIANTS, ("n1", "n2"), "cuda"),
        ("mpi", GPU_VARIANTS, ("n1", "n2"), "cpu"),
        ("mpi", CUDA_MPI, ("n1", "n2"), "cuda"),
        (
            "mpi",
            {"mpi": {"mpi": True, "gpu_operations": {"allreduce": "mpi", "broadcast": "nccl"}}},
            ("n1", "n2"),
            "cuda",
        ),
        ("mpi", CUDA_MPI, ("n1",), "cpu"),
        ("gloo", GPU_VARIANTS, ("n1", "n2"), "cpu"),
    ],
)
def test_where_the_tensors_are(backend, variants_asked, gpu, where):
    there = lab(2, gpu=gpu, horovod_variants=variants_asked)
    assert device(backend, there.hosts) == where


def test_on_gpus_mpi_is_the_build_that_takes_their_memory():
    three = {**GPU_VARIANTS, **CUDA_MPI}
    assert variant_for("mpi", lab(2, gpu=("n1", "n2"), horovod_variants=three).hosts) == "mpi"
    assert variant_for("mpi", lab(2, gpu=("n1",), horovod_variants=three).hosts) == "cpu"
    assert variant_for("nccl", lab(2, gpu=("n1", "n2"), horovod_variants=three).hosts) == "nccl"


def test_one_process_alone_is_measured_only_where_it_is_asked_for():
    assert "serial" not in choose([], lab())
    torch_alone = lab(horovod_variants={"torch": {"mpi": False, "gloo": False, "ccl": False}})
    assert choose(["ddp-gloo"], torch_alone) == ["ddp-gloo"]
    with pytest.raises(UsageError, match="no backend of Horovod") as raised:
        choose([], torch_alone)
    assert "--backend ddp-" in raised.value.remedy
    assert choose(["serial", "mpi"], lab()) == ["serial", "mpi"]
    assert PARALLEL == ("mpi", "gloo", "nccl", "ccl")


def test_one_process_alone_uses_the_gpu_that_the_others_use():
    three = {**GPU_VARIANTS, **CUDA_MPI}
    there = lab(1, gpu=("n1",), horovod_variants=three).hosts
    assert (variant_for("serial", there), device("serial", there)) == ("nccl", "cuda")
    assert (variant_for("serial", lab().hosts), device("serial", lab().hosts)) == ("cpu", "cpu")
    assert device("serial", lab(1, gpu=("n1",), horovod_variants=GPU_VARIANTS, virtual=True).hosts) == "cpu"


@pytest.mark.parametrize(
    ("operations", "operation", "carried"),
    [
        ("nccl", "allreduce", True),
        ("nccl", "alltoall", True),
        ({"allreduce": "nccl", "alltoall": "mpi"}, "allreduce", True),
        ({"allreduce": "nccl", "alltoall": "mpi"}, "alltoall", False),
        ({"allreduce": "nccl"}, "broadcast", False),
    ],
)
def test_nccl_carries_the_operations_it_was_built_for(operations, operation, carried):
    built = {"nccl": {"mpi": True, "gpu_operations": operations}}
    assert carries("nccl", operation, lab(1, gpu=("n1",), horovod_variants=built).hosts) is carried


@pytest.mark.parametrize(
    ("backend", "operation", "carried"),
    [("ccl", "reducescatter", False), ("ccl", "alltoall", True), ("gloo", "reducescatter", True)],
)
def test_what_horovod_has_over_each_backend(backend, operation, carried):
    assert carries(backend, operation, lab().hosts) is carried


def test_where_the_tensors_are_depends_on_the_operation():
    built = {"mpi": {"mpi": True, "gpu_operations": {"allreduce": "mpi", "broadcast": "nccl"}}}
    there = lab(1, gpu=("n1",), horovod_variants=built).hosts
    assert (device("mpi", there), device("mpi", there, "broadcast")) == ("cuda", "cpu")


def test_gpus_that_are_only_named_are_not_used():
    asked = {"virtual": True} | {"horovod_variants": CUDA_MPI}
    assert device("mpi", lab(1, gpu=("n1",), **asked).hosts) == "cpu"
    named = [{"name": "NVIDIA A100", "compute_capability": "8.0", "memory_mib": 81920}]
    asked = {"gpu": ("n1",), "horovod_variants": CUDA_MPI, "lab_gpus": named}
    assert device("mpi", lab(1, **asked, lab_driver_method="none").hosts) == "cpu"
    # It gets a driver: one of its GPUs was left out, or none was known by its PCI id.
    assert device("mpi", lab(1, **asked).hosts) == "cuda"


def test_nccl_needs_a_build_that_mpi_can_start():
    without = {"nccl": {"mpi": False, "gpu_operations": "nccl"}}
    by_operation = {"nccl": {"mpi": True, "gpu_operations": {"allreduce": "nccl", "alltoall": "mpi"}}}
    assert variants(lab(horovod_variants=without).hosts[0])["nccl"] == set()
    assert variants(lab(horovod_variants=by_operation).hosts[0])["nccl"] == {"mpi", "nccl"}


def test_a_record_keeps_the_hardware():
    observed = {
        "gpus": [{"name": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920}] * 8,
        "topology": {"link": "NVLink (NV12)"},
        "driver": "550.54.14",
        "cuda": "12.4.1",
        "cudnn": "9.1.0",
        "packages": {"libnccl2": "2.21.5-1+cuda12.4"},
        "nics": [{"model": "ConnectX-6", "driver": "mlx5_core", "speed_mbit": 200000}],
    }
    told = stack(
        {"n1": facts("nccl", hvlab=observed), "n2": facts("nccl", hvlab={**observed, "driver": None})}, "cpu"
    )
    assert told["gpus"] == "8 x NVIDIA A100-SXM4-80GB, 80 GiB"
    assert told["link"] == "NVLink (NV12)"
    assert (told["cuda"], told["cudnn"], told["nccl_installed"]) == ("12.4.1", "9.1.0", "2.21.5-1+cuda12.4")
    # Which one ranks load, only they can tell.
    assert "nccl" not in told
    assert told["nics"] == "1 x ConnectX-6, 200 Gbit/s"
    assert told["driver"] == {"n1": "550.54.14", "n2": None}


def test_with_torch_in_horovods_place_hvlab_horovod_has_the_planes_that_torch_has():
    there = lab(lab_horovod="torch")
    assert choose([], there) == ["horovod-on-ddp-gloo"]
    assert launchers("horovod-on-ddp-gloo", there.hosts) == launchers("ddp-gloo", there.hosts)
    assert "mpirun" not in launchers("ddp-gloo", there.hosts)
    assert variant_for("ddp-gloo", there.hosts) == "torch"
    own = ("horovod-on-ddp-gloo", "ddp-gloo", "fsdp-gloo")
    assert side_by_side(["horovod", "ddp", "fsdp"], there) == own
    with pytest.raises(UsageError, match=r"gloo.*is Horovod's, and torch is alone on n1") as caught:
        choose(["gloo"], there)
    assert "lab_horovod" in str(caught.value.remedy)
    with pytest.raises(UsageError) as caught:
        choose(["gloo"], lab(lab_horovod="torch", hvlab_rank_python="/env/bin/python"))
    assert str(caught.value.remedy).endswith("ddp-gloo, fsdp-gloo; name a Python that has it: --python")


def test_where_horovod_is_its_own_backends_are_never_replaced():
    there = lab(horovod_variants={"cpu": {"mpi": True}})
    assert available(there.hosts) == ["mpi"]
    assert [in_place(name, there.hosts) for name in PARALLEL] == list(PARALLEL)
    assert launchers("ddp-gloo", there.hosts) == BACKENDS["ddp-gloo"].launchers
