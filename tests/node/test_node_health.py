"""The node's own health check is this clone's, knows the inventory's machine types, and runs."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.node.lab import ROOT, Node, Question, read, run

SOURCE = ROOT / "hvlab/checks"
PROGRAMS = {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(SOURCE.glob("node/*.py"))
}
AGAIN = "run role node_health"


def asks(node: Node) -> dict[str, Question]:
    prefix = node.variables["node_health_prefix"]
    return {
        "health programs": run(
            ["sha256sum", *[f"{prefix}/health/hvlab/checks/node/{name}" for name in PROGRAMS]]
        ),
        "health types": read(f"{prefix}/health/machine-types.json"),
        "health check": run([f"{prefix}/bin/hvlab-node-health", "--json"], timeout=60),
    }


@pytest.fixture(autouse=True)
def installed(node: Node) -> None:
    if not node.variables["node_health_enabled"]:
        pytest.skip("the inventory does not ask for it")
    node.fact("node_health")


def test_programs_are_those_of_this_clone(node: Node) -> None:
    lines = (line.split() for line in node["health programs"]["out"].splitlines())
    digests = {path.rpartition("/")[2]: digest for digest, path in lines}
    different = [name for name, digest in PROGRAMS.items() if digests.get(name) != digest]
    node.expect(not different, f"missing, or different from this clone: {', '.join(different)}", AGAIN)


def test_machine_types_are_those_of_this_clone(node: Node) -> None:
    text = next(iter(node["health types"].values()), "{}")
    names = sorted(json.loads(text).get("known", {}))
    known = sorted(path.stem for path in SOURCE.glob("machines/*.yml"))
    node.expect(
        names == known, f"it knows {', '.join(names) or 'no type'}; this clone {', '.join(known)}", AGAIN
    )


def test_it_runs(node: Node) -> None:
    answer = node["health check"]
    node.expect(
        answer["rc"] in (0, 1) and answer["out"].startswith("["),
        f"it ended with code {answer['rc']}: {(answer['err'] or answer['out'])[-300:]}",
        f"look in the system log for hvlab-node-health; {AGAIN}",
    )
