"""cuDNN is the one that was asked for."""

from __future__ import annotations

import re

import pytest

from tests.node.lab import Node, Question, read, run

AGAIN = "run role cudnn"


def asks(node: Node) -> dict[str, Question]:
    prefix = node.wanted["cudnn_prefix"]
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


def test_version_is_what_was_asked(node: Node, fact: dict[str, str]) -> None:
    asked, method = str(node.wanted["cudnn_version"]), node.wanted["cudnn_method"]
    node.expect(
        (fact["wanted"], fact["method"]) == (asked, method),
        f"installed for cudnn_version {fact['wanted']} ({fact['method']}), which now is {asked} ({method})",
        AGAIN,
    )
    text = "".join([*node["cudnn_version.h"].values(), *node["cudnn.h"].values()])
    found = re.findall(r"#define CUDNN_(?:MAJOR|MINOR|PATCHLEVEL) (\d+)", text)
    node.expect(
        found[:3] == fact["version"].split(".")[:3],
        f"the header says {'.'.join(found) or 'nothing'}, should be {fact['version']}",
        AGAIN,
    )


def test_library_is_there(node: Node, fact: dict[str, str]) -> None:
    said = node.output("cudnn library", AGAIN)
    wanted = f"libcudnn.so.{fact['version'].partition('.')[0]}"
    node.expect(wanted in said, f"there is no {wanted} in {fact['lib']}", AGAIN)
