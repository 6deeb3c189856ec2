"""DCGM matches the inventory, its service runs, and its packages are held."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node.lab import Node, Question, run

AGAIN = "run role dcgm"


def asks(node: Node) -> dict[str, Question]:
    return {
        "dcgmi --version": run(["dcgmi", "--version"]),
        "nvidia-dcgm active": run(["systemctl", "is-active", "nvidia-dcgm"]),
        "nvidia-dcgm enabled": run(["systemctl", "is-enabled", "nvidia-dcgm"]),
        "held by apt": run(["apt-mark", "showhold"]),
        "held by dnf": run(["dnf", "-q", "-C", "versionlock", "list"]),
    }


@pytest.fixture
def fact(node: Node) -> dict[str, Any]:
    if "/etc/ansible/facts.d/hvlab_dcgm.fact" not in node["facts"]:
        pytest.skip("this host has no DCGM")
    return node.fact("dcgm")


def test_version_matches_the_inventory(node: Node, fact: dict[str, Any]) -> None:
    requested = str(node.variables["dcgm_version"])
    node.expect(
        fact.get("requested") == requested,
        f"DCGM was installed for dcgm_version {fact.get('requested')}; the inventory asks for {requested}",
        AGAIN,
    )
    output = node.output("dcgmi --version", AGAIN)
    node.expect(f"version: {fact['version']}" in output, f"dcgmi says {output.strip()}", AGAIN)


def test_service_runs(node: Node, fact: dict[str, Any]) -> None:
    for state in ("active", "enabled"):
        answer = node[f"nvidia-dcgm {state}"]["out"].strip()
        node.expect(
            answer == state,
            f"nvidia-dcgm is {answer or 'not there'}",
            "see `journalctl -u nvidia-dcgm` there, then `systemctl enable --now nvidia-dcgm`",
        )


def test_packages_are_held(node: Node, fact: dict[str, Any]) -> None:
    if not node.variables["dcgm_hold"]:
        return
    held = "held by apt" if node["held by apt"]["rc"] == 0 else "held by dnf"
    output = node.output(held, AGAIN)
    loose = [name for name in fact["packages"] if name not in output]
    node.expect(not loose, f"not held at their version: {', '.join(loose)}", AGAIN)
