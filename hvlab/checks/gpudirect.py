"""The record of GPUDirect RDMA matches the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hvlab.checks.provisioned import Question, Role, RoleHost, read

CONFIG = "/etc/modules-load.d/hvlab-gpudirect.conf"


def asks(node: RoleHost) -> dict[str, Question]:
    return {"gpudirect modules": read("/proc/modules"), "gpudirect config": read(CONFIG)}


ROLE = Role("gpudirect", asks, without="not a host of the group gpu")


@ROLE.check
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


@ROLE.check
def the_module_is_loaded_where_it_is_needed(node: RoleHost, fact: Mapping[str, Any]) -> None:
    needed = fact["enabled"] and fact["way"] == "peer_memory"
    module = str(node.variables["gpudirect_module"]).replace("-", "_")
    loaded = {line.split()[0] for line in node["gpudirect modules"].get("/proc/modules", "").splitlines()}
    node.expect(not needed or module in loaded, f"{module} is not loaded", "run role gpudirect, or reboot")
    kept = CONFIG in node["gpudirect config"]
    state = "present, but not needed" if kept else "missing"
    node.expect(kept == needed, f"{CONFIG} is {state}")
