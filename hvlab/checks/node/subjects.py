"""The subjects of the checks, and what all of them ask, read and say."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from hvlab.checks.node import (
    bandwidth,
    burn,
    clock,
    cpu,
    dcgm,
    disk,
    fabric,
    gpu,
    machine,
    memory,
    network,
    nvlink,
    pcie,
    rdma,
    xid,
)
from hvlab.checks.node.finding import Finding

# Quick, and without load on the node: before every job, too.
QUICK: Tuple[ModuleType, ...] = (
    *(machine, cpu, memory, disk, clock, network, rdma),
    *(gpu, pcie, nvlink, fabric, xid),
)
# From the controller only.
SLOW: Tuple[ModuleType, ...] = (dcgm,)
# By name: only when asked for.
ON_REQUEST: Dict[str, ModuleType] = {
    "bandwidth": bandwidth,
    "burn": burn,
    # Two minutes, and half an hour.
    "diagnostics 2": dcgm.at_level(2, 900),
    "diagnostics 3": dcgm.at_level(3, 3600),
}


def choose(on_request: Sequence[str]) -> Tuple[ModuleType, ...]:
    """Return the subjects of a request; a longer form of one replaces the usual form."""
    requested = tuple(ON_REQUEST[name] for name in on_request)
    longer = {name for subject in requested for name in names(subject)}
    usual = (subject for subject in SLOW if not names(subject) & longer)
    return (*QUICK, *usual, *requested)


def names(subject: ModuleType) -> Set[str]:
    """Return the first words of a subject's questions."""
    return {name.partition(" ")[0] for name in subject.QUESTIONS}


def questions(subjects: Sequence[ModuleType]) -> Dict[str, Dict[str, Any]]:
    """Return the questions of these subjects, by name."""
    return {name: question for subject in subjects for name, question in subject.QUESTIONS.items()}


def readings(subjects: Sequence[ModuleType], answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the readings by name; unreadable ones are absent."""
    values: Dict[str, Any] = {}
    for subject in subjects:
        values.update(subject.readings(answers))
    return values


def findings(
    subjects: Sequence[ModuleType], values: Mapping[str, Any], expected: Mapping[str, Any]
) -> List[Finding]:
    """Return the outcome of every check, in the order of the subjects."""
    return [finding for subject in subjects for finding in subject.findings(values, expected)]


def list_learned() -> Tuple[str, ...]:
    """Return the names of the values that a good node teaches its machine type."""
    return tuple(name for subject in list_all() for name in subject.LEARNED)


def list_known() -> Tuple[str, ...]:
    """Return the names of all values that a type may give; ``GIVEN`` are those that no node teaches."""
    return list_learned() + tuple(name for subject in list_all() for name in getattr(subject, "GIVEN", ()))


def list_all() -> Tuple[ModuleType, ...]:
    """Return every subject there is."""
    return (*QUICK, *SLOW, *ON_REQUEST.values())
