"""NVIDIA's tests of NCCL can be started: they find MPI, NCCL and CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hvlab.checks.provisioned import Question, Role, RoleHost, run, unfound


def asks(node: RoleHost) -> dict[str, Question]:
    program = f"{node.variables['nccl_tests_prefix']}/bin/all_reduce_perf_mpi"
    return {"ldd all_reduce_perf_mpi": run(["ldd", program], user=node.user)}


ROLE = Role("nccl_tests", asks, without="this host has no nccl-tests")


@ROLE.check
def version_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    requested = str(node.variables["nccl_tests_version"])
    node.expect(
        fact["version"] == requested, f"nccl-tests is {fact['version']}, the inventory asks for {requested}"
    )


@ROLE.check
def libraries_are_found(node: RoleHost, fact: Mapping[str, Any]) -> None:
    output = node.output("ldd all_reduce_perf_mpi")
    missing = unfound(output)
    node.expect(not missing, f"all_reduce_perf_mpi: {'; '.join(missing)}")
    for name, home in (("libmpi", "nccl_tests_mpi_home"), ("libnccl", "nccl_tests_nccl_home")):
        lines = [line.strip() for line in output.splitlines() if name in line]
        node.expect(
            any(str(node.variables[home]) in line for line in lines),
            f"all_reduce_perf_mpi should load {name} of {node.variables[home]}: {'; '.join(lines) or 'none'}",
        )
