"""The node's own health check is this clone's, knows the inventory's machine types, and runs."""

from __future__ import annotations

import json

from hvlab.checks.provisioned import ROOT, Question, Role, RoleHost, read, run
from hvlab.checks.workloads import digests, expect_programs

SOURCE = ROOT / "hvlab/checks"
PROGRAMS = digests(SOURCE.glob("node/*.py"))


def asks(node: RoleHost) -> dict[str, Question]:
    prefix = node.variables["node_health_prefix"]
    programs = [f"{prefix}/health/hvlab/checks/node/{name}" for name in PROGRAMS]
    return {
        "health programs": run(["sha256sum", *programs]),
        "health types": read(f"{prefix}/health/machine-types.json"),
        "health check": run([f"{prefix}/bin/hvlab-node-health", "--json"], timeout=60),
    }


def _not_wanted(node: RoleHost) -> str:
    return "" if node.variables["node_health_enabled"] else "the inventory does not ask for it"


ROLE = Role("node_health", asks, skip=_not_wanted)


@ROLE.check
def programs_are_those_of_this_clone(node: RoleHost, fact: object) -> None:
    expect_programs(node, "health programs", PROGRAMS)


@ROLE.check
def machine_types_are_those_of_this_clone(node: RoleHost, fact: object) -> None:
    text = next(iter(node["health types"].values()), "{}")
    names = sorted(json.loads(text).get("known", {}))
    known = sorted(path.stem for path in SOURCE.glob("machines/*.yml"))
    node.expect(names == known, f"it knows {', '.join(names) or 'no type'}; this clone {', '.join(known)}")


@ROLE.check
def it_runs(node: RoleHost, fact: object) -> None:
    answer = node["health check"]
    node.expect(
        answer["rc"] in (0, 1) and answer["out"].startswith("["),
        f"it ended with code {answer['rc']}: {(answer['err'] or answer['out'])[-300:]}",
        "look in the system log for hvlab-node-health; run role node_health",
    )
