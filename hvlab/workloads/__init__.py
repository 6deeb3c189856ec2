"""What can be measured: programs that run on the nodes, and the parsers of what they write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hvlab.matrix import Case
from hvlab.workloads import allreduce
from hvlab.workloads.outcome import Figure, Outcome, Workload, read_json, started

WORKLOADS: Mapping[str, Workload] = {
    "allreduce": Workload("allreduce", allreduce.command, allreduce.parse),
}
__all__ = ["WORKLOADS", "Figure", "Outcome", "Workload", "outcome"]


def outcome(case: Case, folder: Path) -> Outcome:
    """Return how ``case`` ended, read from its files in ``folder``."""
    ended = read_json(folder / "case.json")
    if not isinstance(ended, dict):
        return Outcome(0.0, error=f"no case.json in {folder}")
    if ended.get("skipped"):
        return replace(started(ended), error=str(ended["skipped"]), skipped=True)
    return WORKLOADS[case.workload].parse(case, ended, folder)
