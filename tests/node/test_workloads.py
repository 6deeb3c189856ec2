"""The programs on the host are those of this clone."""

from __future__ import annotations

import hashlib

from tests.node.lab import ROOT, Node, Question, run

PROGRAMS = {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted((ROOT / "hvlab/workloads/programs").glob("*.py"))
}


def asks(node: Node) -> dict[str, Question]:
    folder = node.variables["workloads_dir"]
    return {"programs": run(["sha256sum", *[f"{folder}/{name}" for name in PROGRAMS]], user=node.user)}


def test_programs_are_those_of_this_clone(node: Node) -> None:
    lines = (line.split() for line in node["programs"]["out"].splitlines())
    digests = {path.rpartition("/")[2]: digest for digest, path in lines}
    different = [name for name, digest in PROGRAMS.items() if digests.get(name) != digest]
    node.expect(
        not different, f"missing, or different from this clone: {', '.join(different)}", "run role workloads"
    )
