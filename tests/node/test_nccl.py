"""NCCL matches the inventory, and was built with the CUDA that it works with."""

from __future__ import annotations

import re

import pytest

from tests.node.lab import Node, Question, read, run

AGAIN = "run role nccl"


def asks(node: Node) -> dict[str, Question]:
    prefix = node.variables["nccl_prefix"]
    return {
        "nccl.h": read(f"{prefix}/current/include/nccl.h"),
        "nccl library": run(["ls", f"{prefix}/current/lib/libnccl.so.2"]),
        "held by apt": run(["apt-mark", "showhold"]),
        "held by dnf": run(["dnf", "-q", "-C", "versionlock", "list"]),
    }


@pytest.fixture
def fact(node: Node) -> dict[str, str]:
    if "/etc/ansible/facts.d/hvlab_nccl.fact" not in node["facts"]:
        pytest.skip("this host gets no NCCL")
    return node.fact("nccl")


def test_version_matches_the_inventory(node: Node, fact: dict[str, str]) -> None:
    requested, method = str(node.variables["nccl_version"]), node.variables["nccl_method"]
    node.expect(
        (fact.get("requested"), fact["method"]) == (requested, method),
        f"installed for nccl_version {fact.get('requested')} ({fact['method']}); "
        f"the inventory asks for {requested} ({method})",
        AGAIN,
    )
    header = re.search(r"#define NCCL_VERSION_CODE (\d+)", "".join(node["nccl.h"].values()))
    first, second, third = (int(number) for number in fact["version"].split(".")[:3])
    code = first * (10000 if (first, second) > (2, 8) else 1000) + second * 100 + third
    node.expect(
        header and int(header[1]) == code,
        f"nccl.h says {header[1] if header else 'nothing'}, not {code}",
        AGAIN,
    )


def test_library_is_installed(node: Node, fact: dict[str, str]) -> None:
    output = node.output("nccl library", AGAIN)
    node.expect("libnccl.so.2" in output, f"{fact['lib']}/libnccl.so.2: {output}", AGAIN)


def test_packages_are_held(node: Node, fact: dict[str, str]) -> None:
    if fact["method"] != "repo" or not node.variables["nccl_hold"]:
        return
    held = "held by apt" if node["held by apt"]["rc"] == 0 else "held by dnf"
    output = node.output(held, AGAIN)
    node.expect(
        "libnccl" in output,
        f"NCCL's packages are not held at their version: {output.strip() or 'nothing is held'}",
        AGAIN,
    )
