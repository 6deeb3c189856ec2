"""NCCL is the one that was asked for, built with the CUDA it is to work with."""

from __future__ import annotations

import re

import pytest

from tests.node.lab import Node, Question, read, run

AGAIN = "run role nccl"


def asks(node: Node) -> dict[str, Question]:
    prefix = node.wanted["nccl_prefix"]
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


def test_version_is_what_was_asked(node: Node, fact: dict[str, str]) -> None:
    asked, method = str(node.wanted["nccl_version"]), node.wanted["nccl_method"]
    node.expect(
        (fact["wanted"], fact["method"]) == (asked, method),
        f"installed for nccl_version {fact['wanted']} ({fact['method']}), which now is {asked} ({method})",
        AGAIN,
    )
    found = re.search(r"#define NCCL_VERSION_CODE (\d+)", "".join(node["nccl.h"].values()))
    first, second, third = (int(number) for number in fact["version"].split(".")[:3])
    code = first * (10000 if (first, second) > (2, 8) else 1000) + second * 100 + third
    node.expect(
        found and int(found[1]) == code,
        f"nccl.h says {found[1] if found else 'nothing'}, should be {code}",
        AGAIN,
    )


def test_library_is_there(node: Node, fact: dict[str, str]) -> None:
    said = node.output("nccl library", AGAIN)
    node.expect("libnccl.so.2" in said, f"{fact['lib']}/libnccl.so.2: {said}", AGAIN)


def test_packages_are_held(node: Node, fact: dict[str, str]) -> None:
    if fact["method"] != "repo" or not node.wanted["nccl_hold"]:
        return
    held = "held by apt" if node["held by apt"]["rc"] == 0 else "held by dnf"
    said = node.output(held, AGAIN)
    node.expect("libnccl" in said, f"NCCL's packages are not held: {said.strip() or 'nothing is'}", AGAIN)
