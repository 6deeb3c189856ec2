"""What Horovod's timeline and torch's profiler prove: who carried a collective. Pure.

Names of activities are those of horovod 0.28.1 (common/common.h), and of torch 2.13, whose process groups
name theirs ``gloo:all_reduce`` (torch/csrc/distributed/c10d). In Horovod, Gloo's alltoall shows as
MPI_ALLTOALL (common/ops/gloo_operations.cc), so that Horovod's own state has to tell the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hvlab.lab.backends import BACKENDS, DDP, DDP_BACKENDS, PARALLEL
from hvlab.workloads.case import Case

# What a workload's backend has to show at least one of.
_SHOWN: Mapping[str, tuple[str, ...]] = {
    "allreduce": ("ALLREDUCE", "ADASUM_ALLREDUCE", "all_reduce"),
    "broadcast": ("BCAST", "broadcast"),
    "allgather": ("ALLGATHER", "CROSS_ALLGATHER", "all_gather", "_all_gather_base"),
    "alltoall": ("ALLTOALL", "all_to_all"),
    "reducescatter": ("REDUCESCATTER", "reduce_scatter", "_reduce_scatter_base"),
}
# Compression may send gradients by other ways than an allreduce.
_TRAINING = (*_SHOWN["allreduce"], *_SHOWN["allgather"])
_ALL = {*(name for names in _SHOWN.values() for name in names), "REDUCE"}
_EVIDENCE = {DDP: "torch's profiler"}
# Of a user's own training, torch.distributed says which process groups it has; nobody profiles it.
_GROUP = "process_group"
_ANY = {*_ALL, _GROUP}


def proved(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return the backend whose activity is shown; several are joined by +, none is None.

    One process alone carries nothing, and so proves itself by being alone.
    """
    if not BACKENDS[case.backend].parallel:
        return case.backend
    carriers = _carriers(case, _activities(result), _ANY)
    return case.backend if _own(case, carriers) else "+".join(carriers) or None


def unproved(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return why nothing proves that the backend asked for, and no other, carried the case."""
    if not BACKENDS[case.backend].parallel:
        return None
    names = _activities(result)
    carriers = _carriers(case, names, _ANY)
    evidence = _EVIDENCE.get(BACKENDS[case.backend].framework, "Horovod's timeline")
    shown = ", ".join(names) or "nothing"
    if set(carriers) != expected(case) and not _own(case, carriers):
        carried = "+".join(carriers) or "no known backend"
        return f"asked for {case.backend}, but {carried} carried it ({evidence} shows {shown})"
    activities = _ANY if case.command else _SHOWN.get(case.workload, _TRAINING)
    if not expected(case) & set(_carriers(case, names, activities)):
        return f"asked for {case.workload}, but {evidence} shows {shown}"
    return None


def expected(case: Case) -> set[str]:
    """Return who has to carry a case: its backend, and MPI too where the allreduce is hierarchical."""
    between_hosts = BACKENDS[case.backend].hierarchical
    both = between_hosts and case.params.get("hierarchical_allreduce") and len(case.hosts) > 1
    return {case.backend, between_hosts} if both else {case.backend}


def _own(case: Case, carriers: Iterable[str]) -> bool:
    """Return whether a user's own training sends on GPUs as it should: it may send from CPUs, too."""
    return bool(case.command) and BACKENDS[case.backend].gpu and case.backend in carriers


def _carriers(case: Case, names: Iterable[str], operations: Iterable[str]) -> list[str]:
    operations = set(operations)
    known = DDP_BACKENDS if BACKENDS[case.backend].framework == DDP else PARALLEL
    return [name for name in known if any(f"{BACKENDS[name].proof}{what}" in names for what in operations)]


def _activities(result: Mapping[str, Any]) -> list[str]:
    """Return the activities the timeline shows, under their carrier's own name."""
    proof = result.get("proof") or {}
    names = [*(proof.get("activities") or []), *(f"{group}:{_GROUP}" for group in proof.get("groups") or [])]
    state = (result.get("state") or {}).get("horovod") or {}
    if state.get("gloo_enabled") == 1 and state.get("mpi_enabled") == 0:
        return ["GLOO_ALLTOALL" if name == "MPI_ALLTOALL" else name for name in names]
    return names
