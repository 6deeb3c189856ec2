"""The CUDA toolkit in use matches the inventory."""

from __future__ import annotations

import re

import pytest

from tests.node.lab import Node, Question, run, stat

AGAIN = "run role cuda"


def asks(node: Node) -> dict[str, Question]:
    prefix = node.variables["cuda_prefix"]
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


def test_release_matches_the_inventory(node: Node, fact: dict[str, str]) -> None:
    requested, method = str(node.variables["cuda_version"]), node.variables["cuda_method"]
    node.expect(
        (fact.get("requested"), fact["method"]) == (requested, method),
        f"installed for cuda_version {fact.get('requested')} ({fact['method']}); "
        f"the inventory asks for {requested} ({method})",
        AGAIN,
    )
    output = node.output("nvcc", AGAIN)
    release = re.search(r"release (\S+),", output)
    node.expect(
        release and release[1] == fact["version"],
        f"nvcc is of release {release[1] if release else output}, not {fact['version']}",
        AGAIN,
    )


def test_link_points_to_the_release(node: Node, fact: dict[str, str]) -> None:
    if fact["home"] == fact["prefix"]:
        return
    target = node["cuda link"].get(fact["prefix"], {}).get("link")
    node.expect(
        target == fact["home"],
        f"{fact['prefix']} points to {target}, not {fact['home']}",
        AGAIN,
    )


def test_loader_finds_the_runtime(node: Node, fact: dict[str, str]) -> None:
    output = node.output("cuda libraries", "install ldconfig")
    major = fact["version"].partition(".")[0]
    library = f"libcudart.so.{fact['version'] if int(major) < 11 else '11.0' if major == '11' else major}"
    node.expect(library in output, f"the dynamic loader does not find {library}", f"`ldconfig`, or {AGAIN}")
