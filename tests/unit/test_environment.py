"""The environment table of a report."""

from typing import Any

import pytest

from hvlab.lab import environment
from hvlab.lab.environment import EnvironmentRow, table


def host(**observed: Any) -> dict[str, Any]:
    return {
        "distribution": "Ubuntu",
        "distribution_version": "22.04",
        "kernel": "5.15.0-130-generic",
        "hvlab": observed,
        "ansible_local": {
            "hvlab_openmpi": {"version": "4.1.8", "cuda": True},
            "hvlab_horovod": {"version": "0.28.1", "variants": {"nccl": {"operations": ["MPI", "NCCL"]}}},
            "hvlab_python_env": {
                "python": "3.10",
                "environments": {"python": {"framework": "torch", "version": "2.12.0", "build": "cu130"}},
            },
        },
    }


A100 = {"name": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920, "compute_capability": "8.0", "uuid": "GPU-1"}
CARD = {
    "name": "ens1",
    "model": "MT28908 Family [ConnectX-6]",
    "driver": "mlx5_core",
    "driver_version": "24.10-1.1.4",
}
FULL = {
    "gpus": [A100] * 8,
    "topology": {"link": "NVLink (NV12)"},
    "driver": "580.95.05",
    "open_modules": True,
    "nics": [{**CARD, "speed_mbit": 200000}] * 2
    + [{"name": "eno1", "model": None, "driver": "tg3", "speed_mbit": 1000}],
    "cuda": "12.4.1",
    "cudnn": "9.1.0",
    "nccl": "2.21.5",
    "rdma": {"way": "dma_buf", "gdr_reason": None},
}


def texts(facts: dict[str, Any]) -> dict[str, str]:
    return {row.name: row.text for row in table(facts)}


@pytest.mark.parametrize(
    "packages", [{"openmpi-bin": "4.1.4-3+b1"}, {"openmpi": "1:4.1.4-2.el9"}], ids=["Debian", "Red Hat"]
)
def test_the_distributions_open_mpi_has_the_version_of_its_package(packages):
    facts = host(packages=packages)
    facts["ansible_local"]["hvlab_openmpi"] = {"version": "distro", "method": "distro", "cuda": False}
    assert texts({"n1": facts})["MPI"] == "Open MPI 4.1.4 (distro), without CUDA"


def test_the_rows_of_a_report_in_their_order():
    assert texts({"n1": host(**FULL), "n2": host(**FULL)}) == {
        "Servers": "2",
        "NIC": "2 x MT28908 Family [ConnectX-6], 200 Gbit/s; 1 x tg3, 1 Gbit/s",
        "GPU": "8 x NVIDIA A100-SXM4-80GB, 80 GiB",
        "GPU link": "NVLink (NV12)",
        "OS": "Ubuntu 22.04, Linux 5.15.0-130-generic",
        "GPU driver": "580.95.05 (open modules)",
        "NIC driver": "mlx5_core 24.10-1.1.4; tg3",
        "Frameworks": "torch 2.12.0 (cu130); Python 3.10",
        "CUDA": "12.4.1",
        "cuDNN": "9.1.0",
        "NCCL": "2.21.5",
        "MPI": "Open MPI 4.1.8, with CUDA",
        "Horovod": "0.28.1 (nccl: MPI, NCCL)",
        "GPUDirect RDMA": "dma_buf",
    }


def test_what_is_not_there_is_none():
    empty = {"distribution": "Debian", "distribution_version": "12", "kernel": "6.1"}
    told = texts({"n1": empty})
    assert told.pop("OS") == "Debian 12, Linux 6.1"
    assert told.pop("Servers") == "1"
    assert set(told.values()) == {"none"}


def test_a_host_without_a_card_has_its_virtual_interface():
    links = {"host0": {"cidrs": ["198.18.0.11/24"]}, "docker0": {"cidrs": []}}
    assert texts({"n1": host(nics=[], interfaces=links)})["NIC"] == "virtual interface host0"


def test_a_probe_that_failed_is_none():
    told = texts({"n1": host(gpus=None, nics=None, topology=None, rdma=None, packages=None)})
    assert (told["GPU"], told["NIC"], told["GPU link"], told["GPUDirect RDMA"]) == ("none",) * 4


def test_an_error_text_never_stands_in_the_table():
    error = "Failed to initialize NVML: Driver/library version mismatch"
    rows = table({"n1": host(gpus=[], driver_error=error, topology=None)})
    assert not any("NVML" in row.text for row in rows)


def test_hosts_that_differ_are_named():
    facts = {
        "n1": host(**FULL),
        "n2": host(**FULL),
        "n3": host(**{**FULL, "driver": "550.54.14", "open_modules": False}),
    }
    rows = {row.name: row for row in table(facts)}
    assert rows["GPU driver"].values == {"580.95.05 (open modules)": ("n1", "n2"), "550.54.14": ("n3",)}
    assert rows["GPU driver"].text == "580.95.05 (open modules) (n1, n2); 550.54.14 (n3)"
    assert rows["CUDA"].text == "12.4.1"


def test_a_gpu_without_a_driver_is_named_by_its_device():
    gpu = {"name": None, "memory_mib": None, "pci_device": "20b2", "uuid": None}
    assert environment.gpus(host(gpus=[gpu, gpu])) == "2 x NVIDIA device 20b2"


def test_why_gpudirect_is_none():
    found = {"way": None, "gdr_reason": "no RDMA NIC"}
    assert environment.gpudirect(host(rdma=found)) == "none: no RDMA NIC"


@pytest.mark.parametrize(
    ("megabits", "words"),
    [(None, "no link speed"), (100, "100 Mbit/s"), (2500, "2.5 Gbit/s"), (400000, "400 Gbit/s")],
)
def test_speeds(megabits, words):
    assert environment.format_speed(megabits) == words


def test_a_package_tells_the_cuda_that_nccl_is_for():
    assert (
        environment.nccl(host(nccl="2.21.5", packages={"libnccl2": "2.21.5-1+cuda12.4"}))
        == "2.21.5-1+cuda12.4"
    )


def test_a_row_with_one_value_is_that_value():
    assert EnvironmentRow("CUDA", {"12.4": ("n1", "n2")}).text == "12.4"
