"""cuDNN, NCCL, its tests, DCGM and GPUDirect RDMA match the inventory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hvlab.checks.provisioned import (
    HELD,
    Question,
    Role,
    RoleHost,
    expect_request,
    package_holds,
    read,
    run,
    unfound,
)
from hvlab.stack.provision.libraries import nccl_code


def asks_of_cudnn(node: RoleHost) -> dict[str, Question]:
    prefix = node.variables["cudnn_prefix"]
    return {
        "cudnn_version.h": read(f"{prefix}/current/include/cudnn_version.h"),
        "cudnn.h": read(f"{prefix}/current/include/cudnn.h"),
        "cudnn library": run(
            ["find", "-L", f"{prefix}/current/lib/", "-maxdepth", "1", "-name", "libcudnn.so*"]
        ),
    }


CUDNN = Role("cudnn", asks_of_cudnn, without="this host gets no cuDNN")


@CUDNN.check
def cudnn_version_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    expect_request(node, fact)
    text = "".join([*node["cudnn_version.h"].values(), *node["cudnn.h"].values()])
    numbers = re.findall(r"#define CUDNN_(?:MAJOR|MINOR|PATCHLEVEL) (\d+)", text)
    node.expect(
        numbers[:3] == fact["version"].split(".")[:3],
        f"the header says {'.'.join(numbers) or 'nothing'}, not {fact['version']}",
    )


@CUDNN.check
def cudnn_library_is_installed(node: RoleHost, fact: Mapping[str, Any]) -> None:
    output = node.output("cudnn library")
    library = f"libcudnn.so.{fact['version'].partition('.')[0]}"
    node.expect(library in output, f"there is no {library} in {fact['lib']}")


def asks_of_nccl(node: RoleHost) -> dict[str, Question]:
    prefix = node.variables["nccl_prefix"]
    return {
        "nccl.h": read(f"{prefix}/current/include/nccl.h"),
        "nccl library": run(["ls", f"{prefix}/current/lib/libnccl.so.2"]),
        **HELD,
    }


NCCL = Role("nccl", asks_of_nccl, without="this host gets no NCCL")


@NCCL.check
def nccl_version_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    expect_request(node, fact)
    header = re.search(r"#define NCCL_VERSION_CODE (\d+)", "".join(node["nccl.h"].values()))
    code = nccl_code(fact["version"])
    node.expect(
        header and int(header[1]) == code, f"nccl.h says {header[1] if header else 'nothing'}, not {code}"
    )


@NCCL.check
def nccl_library_is_installed(node: RoleHost, fact: Mapping[str, Any]) -> None:
    output = node.output("nccl library")
    node.expect("libnccl.so.2" in output, f"{fact['lib']}/libnccl.so.2: {output}")


@NCCL.check
def nccl_packages_are_held(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if fact["method"] != "repo" or not node.variables["nccl_hold"]:
        return
    output = package_holds(node)
    node.expect(
        "libnccl" in output,
        f"NCCL's packages are not held at their version: {output.strip() or 'nothing is held'}",
    )


def asks_of_nccl_tests(node: RoleHost) -> dict[str, Question]:
    program = f"{node.variables['nccl_tests_prefix']}/bin/all_reduce_perf_mpi"
    return {"ldd all_reduce_perf_mpi": run(["ldd", program], user=node.user)}


NCCL_TESTS = Role("nccl_tests", asks_of_nccl_tests, without="this host has no nccl-tests")


@NCCL_TESTS.check
def nccl_tests_version_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    requested = str(node.variables["nccl_tests_version"])
    node.expect(
        fact["version"] == requested, f"nccl-tests is {fact['version']}, the inventory asks for {requested}"
    )


@NCCL_TESTS.check
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


_DCGM = {
    "dcgmi --version": run(["dcgmi", "--version"]),
    "nvidia-dcgm active": run(["systemctl", "is-active", "nvidia-dcgm"]),
    "nvidia-dcgm enabled": run(["systemctl", "is-enabled", "nvidia-dcgm"]),
    **HELD,
}
DCGM = Role("dcgm", lambda _: _DCGM, without="this host has no DCGM")


@DCGM.check
def dcgm_version_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    requested = str(node.variables["dcgm_version"])
    node.expect(
        fact.get("requested") == requested,
        f"DCGM was installed for dcgm_version {fact.get('requested')}; the inventory asks for {requested}",
    )
    output = node.output("dcgmi --version")
    node.expect(f"version: {fact['version']}" in output, f"dcgmi says {output.strip()}")


@DCGM.check
def service_runs(node: RoleHost, fact: Mapping[str, Any]) -> None:
    for state in ("active", "enabled"):
        answer = node[f"nvidia-dcgm {state}"]["out"].strip()
        node.expect(
            answer == state,
            f"nvidia-dcgm is {answer or 'not there'}",
            "see `journalctl -u nvidia-dcgm` there, then `systemctl enable --now nvidia-dcgm`",
        )


@DCGM.check
def dcgm_packages_are_held(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if not node.variables["dcgm_hold"]:
        return
    output = package_holds(node)
    loose = [name for name in fact["packages"] if name not in output]
    node.expect(not loose, f"not held at their version: {', '.join(loose)}")


CONFIG = "/etc/modules-load.d/hvlab-gpudirect.conf"


GPUDIRECT = Role(
    "gpudirect",
    lambda _: {"gpudirect modules": read("/proc/modules"), "gpudirect config": read(CONFIG)},
    without="not a host of the group gpu",
)


@GPUDIRECT.check
def the_record_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    requested = node.variables["gpudirect_enabled"]
    provisioned = fact["enabled"]
    node.expect(
        provisioned == requested,
        f"provisioned with gpudirect_enabled {provisioned}; the inventory now asks for {requested}",
    )
    node.expect(
        fact["available"] or fact["reason"], "GPUDirect RDMA is not available, and no reason is recorded"
    )


@GPUDIRECT.check
def the_module_is_loaded_where_it_is_needed(node: RoleHost, fact: Mapping[str, Any]) -> None:
    needed = fact["enabled"] and fact["way"] == "peer_memory"
    module = str(node.variables["gpudirect_module"]).replace("-", "_")
    loaded = {line.split()[0] for line in node["gpudirect modules"].get("/proc/modules", "").splitlines()}
    node.expect(not needed or module in loaded, f"{module} is not loaded", "run role gpudirect, or reboot")
    kept = CONFIG in node["gpudirect config"]
    state = "present, but not needed" if kept else "missing"
    node.expect(kept == needed, f"{CONFIG} is {state}")
