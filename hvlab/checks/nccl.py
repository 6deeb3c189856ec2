"""NCCL matches the inventory, and was built with the CUDA that it works with."""

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
)


def asks(node: RoleHost) -> dict[str, Question]:
    prefix = node.variables["nccl_prefix"]
    return {
        "nccl.h": read(f"{prefix}/current/include/nccl.h"),
        "nccl library": run(["ls", f"{prefix}/current/lib/libnccl.so.2"]),
        **HELD,
    }


ROLE = Role("nccl", asks, without="this host gets no NCCL")


@ROLE.check
def version_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    expect_request(node, fact)
    header = re.search(r"#define NCCL_VERSION_CODE (\d+)", "".join(node["nccl.h"].values()))
    first, second, third = (int(number) for number in fact["version"].split(".")[:3])
    code = first * (10000 if (first, second) > (2, 8) else 1000) + second * 100 + third
    node.expect(
        header and int(header[1]) == code, f"nccl.h says {header[1] if header else 'nothing'}, not {code}"
    )


@ROLE.check
def library_is_installed(node: RoleHost, fact: Mapping[str, Any]) -> None:
    output = node.output("nccl library")
    node.expect("libnccl.so.2" in output, f"{fact['lib']}/libnccl.so.2: {output}")


@ROLE.check
def packages_are_held(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if fact["method"] != "repo" or not node.variables["nccl_hold"]:
        return
    output = package_holds(node)
    node.expect(
        "libnccl" in output,
        f"NCCL's packages are not held at their version: {output.strip() or 'nothing is held'}",
    )
