"""The record of GPUDirect RDMA matches the host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node.lab import FACTS, Node, Question, read

CONFIG = "/etc/modules-load.d/hvlab-gpudirect.conf"
AGAIN = "run role gpudirect"


def asks(node: Node) -> dict[str, Question]:
    return {"gpudirect modules": read("/proc/modules"), "gpudirect config": read(CONFIG)}


@pytest.fixture
def recorded(node: Node) -> dict[str, Any]:
    if f"{FACTS}/hvlab_gpudirect.fact" not in node["facts"]:
        pytest.skip("not a host of the group gpu")
    return node.fact("gpudirect")


def test_the_record_matches_the_inventory(node: Node, recorded: dict[str, Any]) -> None:
    requested = node.variables["gpudirect_enabled"]
    provisioned = recorded["enabled"]
    node.expect(
        provisioned == requested,
        f"provisioned with gpudirect_enabled {provisioned}; the inventory now asks for {requested}",
        AGAIN,
    )
    node.expect(
        recorded["available"] or recorded["reason"],
        "GPUDirect RDMA is not available, and no reason is recorded",
        AGAIN,
    )


def test_the_module_is_loaded_where_it_is_needed(node: Node, recorded: dict[str, Any]) -> None:
    needed = recorded["enabled"] and recorded["way"] == "peer_memory"
    module = str(node.variables["gpudirect_module"]).replace("-", "_")
    loaded = {line.split()[0] for line in node["gpudirect modules"].get("/proc/modules", "").splitlines()}
    node.expect(not needed or module in loaded, f"{module} is not loaded", f"{AGAIN}, or reboot")
    kept = CONFIG in node["gpudirect config"]
    state = "present, but not needed" if kept else "missing"
    node.expect(kept == needed, f"{CONFIG} is {state}", AGAIN)
