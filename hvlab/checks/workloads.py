"""The programs of workloads on the host are those of this clone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from hvlab.checks.provisioned import ROOT, Question, Role, RoleHost, run


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """Return name -> SHA-256 of programs."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(paths)}


PROGRAMS = digests((ROOT / "hvlab/workloads/programs").glob("*.py"))


def expect_programs(node: RoleHost, question: str, programs: dict[str, str]) -> None:
    """Expect that sha256sum printed these digests."""
    lines = (line.split() for line in node[question]["out"].splitlines())
    there = {path.rpartition("/")[2]: digest for digest, path in lines}
    different = ", ".join(name for name, digest in programs.items() if there.get(name) != digest)
    node.expect(not different, f"missing, or different from this clone: {different}")


def asks(node: RoleHost) -> dict[str, Question]:
    folder = node.variables["workloads_dir"]
    return {"programs": run(["sha256sum", *[f"{folder}/{name}" for name in PROGRAMS]], user=node.user)}


ROLE = Role("workloads", asks)


@ROLE.check
def programs_are_those_of_this_clone(node: RoleHost) -> None:
    expect_programs(node, "programs", PROGRAMS)
