"""The CUDA toolkit in use is the one that was asked for."""

from __future__ import annotations

import re

import pytest

from tests.node.lab import Node, Question, run, stat

AGAIN = "run role cuda"


def asks(node: Node) -> dict[str, Question]:
    prefix = node.wanted["cuda_prefix"]
    return {
        "nvcc": run([f"{prefix}/bin/nvcc", "--version"]),
        "cuda link": stat(prefix),
        "cuda libraries": run(["ldconfig", "-p"]),
    }


@pytest.fixture
def fact(node: Node) -> dict[str, str]:
    if "/etc/ansible/facts.d/hvlab_cuda.fact" not in node["facts"]:
        pytest.skip("this host gets no CUDA")
    return node.fact("cuda")


def test_release_is_what_was_asked(node: Node, fact: dict[str, str]) -> None:
    asked, method = str(node.wanted["cuda_version"]), node.wanted["cuda_method"]
    node.expect(
        (fact["wanted"], fact["method"]) == (asked, method),
        f"installed for cuda_version {fact['wanted']} ({fact['method']}), which now is {asked} ({method})",
        AGAIN,
    )
    said = node.output("nvcc", AGAIN)
    found = re.search(r"release (\S+),", said)
    node.expect(
        found and found[1] == fact["version"],
        f"nvcc is of {found[1] if found else said}, not {fact['version']}",
        AGAIN,
    )


def test_link_leads_to_the_release(node: Node, fact: dict[str, str]) -> None:
    if fact["home"] == fact["prefix"]:
        return
    leads = node["cuda link"].get(fact["prefix"], {}).get("link")
    node.expect(
        leads == fact["home"],
        f"{fact['prefix']} leads to {leads}, should be {fact['home']}",
        AGAIN,
    )


def test_loader_finds_the_runtime(node: Node, fact: dict[str, str]) -> None:
    said = node.output("cuda libraries", "install ldconfig")
    major = fact["version"].partition(".")[0]
    wanted = f"libcudart.so.{fact['version'] if int(major) < 11 else '11.0' if major == '11' else major}"
    node.expect(wanted in said, f"the loader knows no {wanted}", f"`ldconfig`, or {AGAIN}")
