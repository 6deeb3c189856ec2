"""Why hosts cannot run a case."""

import pytest

from hvlab.lab.variants import differing_ucx, not_built, refusal, without_gpu
from tests.unit.test_variants import facts


def test_facts_say_what_was_not_built():
    found = {"n1": facts("mpi", "gloo"), "n2": facts("gloo"), "n3": {}}
    assert not_built("gloo", "cpu", {"n1": found["n1"], "n2": found["n2"]}) is None
    told = not_built("mpi", "cpu", found)
    assert told is not None
    assert "not installed on n3" in told
    assert "without mpi on n2" in told


def test_one_process_alone_needs_a_variant_only_for_its_python():
    assert not_built("serial", "cpu", {"n1": facts("mpi")}) is None
    assert "not installed on n2" in str(not_built("serial", "cpu", {"n1": facts("mpi"), "n2": {}}))


def gpus(count: int, *, usable: bool = True, error: str | None = None) -> dict:
    """Return a host's facts with GPUs that the driver shows, or only the bus."""
    rows = [
        {"name": "NVIDIA A100", "pci": f"0000:0{i}:00.0", "uuid": f"GPU-{i}" if usable else None}
        for i in range(count)
    ]
    return {"hvlab": {"gpus": rows, "driver_error": error}}


def test_gpus_enough_for_the_ranks():
    assert without_gpu("nccl", 4, {"n1": gpus(4), "n2": gpus(8)}) is None
    assert without_gpu("mpi", 4, {"n1": gpus(1)}) is None


@pytest.mark.parametrize(
    ("facts_of_n2", "observed", "remedy"),
    [
        (gpus(0), "n2 is in the group gpu, but shows no NVIDIA GPU", "take the host out of the group gpu"),
        ({}, "n2 is in the group gpu, but shows no NVIDIA GPU", "lspci"),
        ({"hvlab": {"gpus": None}}, "n2 is in the group gpu, but shows no NVIDIA GPU", "lspci"),
        (gpus(2, usable=False), "n2 has 2 NVIDIA GPUs, but no driver for them", "-t nvidia_driver"),
        (
            gpus(2, usable=False, error="Failed to initialize NVML: Driver/library version mismatch"),
            "n2 has no usable GPU: nvidia-smi reports: Failed to initialize NVML: Driver/library version",
            "reboot the host",
        ),
        (gpus(1), "n2 has 1 usable GPUs for 2 ranks", "--slots 1"),
        (
            gpus(1, error="Unable to determine the device handle for GPU1"),
            "n2 has 1 usable GPUs for 2 ranks (nvidia-smi reports: Unable to determine",
            "repair the GPU",
        ),
    ],
)
def test_a_host_without_usable_gpus_is_named(facts_of_n2, observed, remedy):
    refused = without_gpu("nccl", 2, {"n1": gpus(2), "n2": facts_of_n2})
    assert refused is not None
    assert refused.observed.startswith(observed)
    assert "n1" not in refused.observed
    assert remedy in refused.remedy


def test_every_host_without_gpus_is_named_in_one_refusal():
    refused = without_gpu("nccl", 1, {"n1": gpus(0), "n2": gpus(1, usable=False), "n3": gpus(0)})
    assert refused is not None
    assert [part.split()[0] for part in refused.observed.split("; ")] == ["n1", "n2", "n3"]
    assert refused.remedy.count("lspci") == 1


def test_a_case_is_refused_for_what_is_not_built_before_its_gpus():
    case = {"backend": "nccl", "variant": "cpu", "stack": "", "device": "cuda", "slots": 1}
    refused = refusal(case, {"n1": {**facts("mpi"), **gpus(0)}})
    assert refused is not None
    assert refused.observed == "Horovod's variant cpu was built without nccl on n1"
    refused = refusal(case, {"n1": {**facts("mpi", "nccl"), **gpus(0)}})
    assert refused is not None
    assert "no NVIDIA GPU" in refused.observed
    assert refusal(case, {"n1": {**facts("mpi", "nccl"), **gpus(1)}}) is None
    on_cpu = {**case, "backend": "mpi", "device": "cpu"}
    assert refusal(on_cpu, {"n1": {**facts("mpi"), **gpus(0)}}) is None


def openmpi(ucx: str) -> dict:
    return {"ansible_local": {"hvlab_openmpi": {"version": "4.1.8", "ucx": ucx}}}


def test_hosts_whose_open_mpi_differs_in_ucx_are_named():
    refused = differing_ucx({"n1": openmpi("1.13"), "n2": openmpi(""), "n3": openmpi("1.12")})
    assert refused is not None
    assert refused.observed == "Open MPI was built without UCX on n2 and with it on n1, n3"
    assert "openmpi_ucx" in refused.remedy
    assert differing_ucx({"n1": openmpi("1.13"), "n2": openmpi("1.12")}) is None
    assert differing_ucx({"n1": openmpi(""), "n2": {}}) is None
