"""What Horovod's timeline proves: who carried a collective. Pure.

Names of activities are those of horovod 0.28.1 (common/common.h). There Gloo's alltoall shows as MPI_ALLTOALL
(common/ops/gloo_operations.cc), so that Horovod's own state has to tell the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hvlab.lab.backends import BACKENDS, PARALLEL
from hvlab.workloads.case import Case

# What a workload's backend has to show at least one of.
_SHOWN: Mapping[str, tuple[str, ...]] = {
    "allreduce": ("ALLREDUCE", "ADASUM_ALLREDUCE"),
    "broadcast": ("BCAST",),
    "allgather": ("ALLGATHER", "CROSS_ALLGATHER"),
    "alltoall": ("ALLTOALL",),
    "reducescatter": ("REDUCESCATTER",),
}
# Compression may send gradients by other ways than an allreduce.
_TRAINING = (*_SHOWN["allreduce"], *_SHOWN["allgather"])
_ALL = {*(name for names in _SHOWN.values() for name in names), "REDUCE"}


def proved(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return the backend whose activity the timeline shows; several are joined by +, none is None.

    One process alone carries nothing, and so proves itself by being alone.
    """
    if not BACKENDS[case.backend].parallel:
        return case.backend
    return "+".join(_carriers(_activities(result), _ALL)) or None


def unproved(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return why the timeline does not prove that the backend asked for, and no other, carried the case."""
    if not BACKENDS[case.backend].parallel:
        return None
    names = _activities(result)
    carriers = _carriers(names, _ALL)
    shown = ", ".join(names) or "nothing"
    if set(carriers) != expected(case):
        carried = "+".join(carriers) or "no known backend"
        return f"asked for {case.backend}, but {carried} carried it (Horovod's timeline shows {shown})"
    activities = _SHOWN.get(case.workload, _TRAINING)
    if not expected(case) & set(_carriers(names, activities)):
        return f"asked for {case.workload}, but Horovod's timeline shows {shown}"
    return None


def expected(case: Case) -> set[str]:
    """Return who has to carry a case: its backend, and MPI too where the allreduce is hierarchical."""
    between_hosts = BACKENDS[case.backend].hierarchical
    both = between_hosts and case.params.get("hierarchical_allreduce") and len(case.hosts) > 1
    return {case.backend, between_hosts} if both else {case.backend}


def _carriers(names: Iterable[str], operations: Iterable[str]) -> list[str]:
    operations = set(operations)
    return [name for name in PARALLEL if any(f"{BACKENDS[name].proof}{what}" in names for what in operations)]


def _activities(result: Mapping[str, Any]) -> list[str]:
    """Return the activities the timeline shows, under their carrier's own name."""
    names = list((result.get("proof") or {}).get("activities") or [])
    state = (result.get("state") or {}).get("horovod") or {}
    if state.get("gloo_enabled") == 1 and state.get("mpi_enabled") == 0:
        return ["GLOO_ALLTOALL" if name == "MPI_ALLTOALL" else name for name in names]
    return names
