"""DCGM matches the inventory, its service runs, and its packages are held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hvlab.checks.provisioned import HELD, Question, Role, RoleHost, package_holds, run


def asks(node: RoleHost) -> dict[str, Question]:
    return {
        "dcgmi --version": run(["dcgmi", "--version"]),
        "nvidia-dcgm active": run(["systemctl", "is-active", "nvidia-dcgm"]),
        "nvidia-dcgm enabled": run(["systemctl", "is-enabled", "nvidia-dcgm"]),
        **HELD,
    }


ROLE = Role("dcgm", asks, without="this host has no DCGM")


@ROLE.check
def version_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    requested = str(node.variables["dcgm_version"])
    node.expect(
        fact.get("requested") == requested,
        f"DCGM was installed for dcgm_version {fact.get('requested')}; the inventory asks for {requested}",
    )
    output = node.output("dcgmi --version")
    node.expect(f"version: {fact['version']}" in output, f"dcgmi says {output.strip()}")


@ROLE.check
def service_runs(node: RoleHost, fact: Mapping[str, Any]) -> None:
    for state in ("active", "enabled"):
        answer = node[f"nvidia-dcgm {state}"]["out"].strip()
        node.expect(
            answer == state,
            f"nvidia-dcgm is {answer or 'not there'}",
            "see `journalctl -u nvidia-dcgm` there, then `systemctl enable --now nvidia-dcgm`",
        )


@ROLE.check
def packages_are_held(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if not node.variables["dcgm_hold"]:
        return
    output = package_holds(node)
    loose = [name for name in fact["packages"] if name not in output]
    node.expect(not loose, f"not held at their version: {', '.join(loose)}")
