"""NVIDIA's tests of NCCL can be started: they find MPI, NCCL and CUDA."""

from __future__ import annotations

import pytest

from tests.node.lab import Node, Question, run

AGAIN = "run role nccl_tests"


def asks(node: Node) -> dict[str, Question]:
    program = f"{node.variables['nccl_tests_prefix']}/bin/all_reduce_perf_mpi"
    return {"ldd all_reduce_perf_mpi": run(["ldd", program], user=node.user)}


@pytest.fixture
def fact(node: Node) -> dict[str, str]:
    if "/etc/ansible/facts.d/hvlab_nccl_tests.fact" not in node["facts"]:
        pytest.skip("this host has no nccl-tests")
    return node.fact("nccl_tests")


def test_version_matches_the_inventory(node: Node, fact: dict[str, str]) -> None:
    requested = str(node.variables["nccl_tests_version"])
    node.expect(
        fact["version"] == requested,
        f"nccl-tests is {fact['version']}, the inventory asks for {requested}",
        AGAIN,
    )


def test_libraries_are_found(node: Node, fact: dict[str, str]) -> None:
    output = node.output("ldd all_reduce_perf_mpi", AGAIN)
    missing = [line.strip() for line in output.splitlines() if "not found" in line]
    node.expect(not missing, f"all_reduce_perf_mpi: {'; '.join(missing)}", AGAIN)
    for name, home in (("libmpi", "nccl_tests_mpi_home"), ("libnccl", "nccl_tests_nccl_home")):
        lines = [line.strip() for line in output.splitlines() if name in line]
        node.expect(
            any(str(node.variables[home]) in line for line in lines),
            f"all_reduce_perf_mpi should load {name} of {node.variables[home]}: {'; '.join(lines) or 'none'}",
            AGAIN,
        )
