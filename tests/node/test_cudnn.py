"""cuDNN matches the inventory."""

from __future__ import annotations

import re

import pytest

from tests.node.lab import Node, Question, read, run

AGAIN = "run role cudnn"


def asks(node: Node) -> dict[str, Question]:
    prefix = node.variables["cudnn_prefix"]
    return {
        "cudnn_version.h": read(f"{prefix}/current/include/cudnn_version.h"),
        "cudnn.h": read(f"{prefix}/current/include/cudnn.h"),
        "cudnn library": run(
            ["find", "-L", f"{prefix}/current/lib/", "-maxdepth", "1", "-name", "libcudnn.so*"]
        ),
    }


@pytest.fixture
def fact(node: Node) -> dict[str, str]:
    if "/etc/ansible/facts.d/hvlab_cudnn.fact" not in node["facts"]:
        pytest.skip("this host gets no cuDNN")
    return node.fact("cudnn")


def test_version_matches_the_inventory(node: Node, fact: dict[str, str]) -> None:
    requested, method = str(node.variables["cudnn_version"]), node.variables["cudnn_method"]
    node.expect(
        (fact.get("requested"), fact["method"]) == (requested, method),
        f"installed for cudnn_version {fact.get('requested')} ({fact['method']}); "
        f"the inventory asks for {requested} ({method})",
        AGAIN,
    )
    text = "".join([*node["cudnn_version.h"].values(), *node["cudnn.h"].values()])
    numbers = re.findall(r"#define CUDNN_(?:MAJOR|MINOR|PATCHLEVEL) (\d+)", text)
    node.expect(
        numbers[:3] == fact["version"].split(".")[:3],
        f"the header says {'.'.join(numbers) or 'nothing'}, not {fact['version']}",
        AGAIN,
    )


def test_library_is_installed(node: Node, fact: dict[str, str]) -> None:
    output = node.output("cudnn library", AGAIN)
    library = f"libcudnn.so.{fact['version'].partition('.')[0]}"
    node.expect(library in output, f"there is no {library} in {fact['lib']}", AGAIN)
