"""hvlab's programs on the host, of workloads and of the health check, are this clone's."""

from __future__ import annotations

import json

from hvlab.checks.provisioned import ROOT, Question, Role, RoleHost, read, run, unless
from hvlab.stack.provision.roles import list_programs

_WORKLOADS, _ALIAS = ROOT / "hvlab/workloads/programs", ROOT / "hvlab_horovod/alias"
# By name, the SHA-256 of each, as the roles copy them.
PROGRAMS = list_programs(folder=str(_WORKLOADS), target="", alias=str(_ALIAS))["hashes"]


def expect_programs(node: RoleHost, question: str, programs: dict[str, str]) -> None:
    """Expect that sha256sum printed these digests."""
    lines = (line.split() for line in node[question]["out"].splitlines())
    there = {path: digest for digest, path in lines}
    right = {
        name
        for path, digest in there.items()
        for name in programs
        if path.endswith(f"/{name}") and programs[name] == digest
    }
    different = ", ".join(name for name in programs if name not in right)
    node.expect(not different, f"missing, or different from this clone: {different}")


def asks_of_workloads(node: RoleHost) -> dict[str, Question]:
    folder = node.variables["workloads_dir"]
    return {"programs": run(["sha256sum", *[f"{folder}/{name}" for name in PROGRAMS]], user=node.user)}


WORKLOADS = Role("workloads", asks_of_workloads)


@WORKLOADS.check
def programs_are_those_of_this_clone(node: RoleHost) -> None:
    expect_programs(node, "programs", PROGRAMS)


SOURCE = ROOT / "hvlab/checks"
NODE_PROGRAMS = list_programs(folder=str(SOURCE / "node"), target="")["hashes"]


def asks_of_node_health(node: RoleHost) -> dict[str, Question]:
    prefix = node.variables["node_health_prefix"]
    programs = [f"{prefix}/health/hvlab/checks/node/{name}" for name in NODE_PROGRAMS]
    return {
        "health programs": run(["sha256sum", *programs]),
        "health types": read(f"{prefix}/health/machine-types.json"),
        "health check": run([f"{prefix}/bin/hvlab-node-health", "--json"], timeout=60),
    }


NODE_HEALTH = Role(
    "node_health",
    asks_of_node_health,
    skip=unless("node_health_enabled", "the inventory does not ask for it"),
)


@NODE_HEALTH.check
def node_health_programs_are_those_of_this_clone(node: RoleHost, fact: object) -> None:
    expect_programs(node, "health programs", NODE_PROGRAMS)


@NODE_HEALTH.check
def machine_types_are_those_of_this_clone(node: RoleHost, fact: object) -> None:
    text = next(iter(node["health types"].values()), "{}")
    names = sorted(json.loads(text).get("known", {}))
    known = sorted(path.stem for path in SOURCE.glob("machines/*.yml"))
    node.expect(names == known, f"it knows {', '.join(names) or 'no type'}; this clone {', '.join(known)}")


@NODE_HEALTH.check
def it_runs(node: RoleHost, fact: object) -> None:
    answer = node["health check"]
    node.expect(
        answer["rc"] in (0, 1) and answer["out"].startswith("["),
        f"it ended with code {answer['rc']}: {(answer['err'] or answer['out'])[-300:]}",
        "look in the system log for hvlab-node-health; run role node_health",
    )
