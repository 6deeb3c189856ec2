"""The carrier of a collective, by Horovod's timeline and torch's profiler. Pure.

Activities end as in ``operations``; torch's process groups name theirs ``gloo:all_reduce``. In Horovod
0.28.1, Gloo's alltoall shows as MPI_ALLTOALL (common/ops/gloo_operations.cc), so that Horovod's own state
must tell the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hvlab.lab.backends import BACKENDS, DDP, DDP_BACKENDS, PARALLEL
from hvlab.workloads.case import Case
from hvlab.workloads.operations import OPERATIONS

# Compression may send gradients by other ways than an allreduce.
_TRAINING = (*OPERATIONS["allreduce"].shown, *OPERATIONS["allgather"].shown)
_ALL = {*(name for operation in OPERATIONS.values() for name in operation.shown), "REDUCE"}
_EVIDENCE = {DDP: "torch's profiler"}
# In the user's own training, torch.distributed reports its process groups; nobody profiles it.
_GROUP = "process_group"
_ANY = {*_ALL, _GROUP}


def proved(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return the backends with activities, joined by +, if any; one process alone proves itself."""
    if not BACKENDS[case.backend].parallel:
        return case.backend
    carriers = _carriers(case, _activities(result), _ANY)
    return case.backend if _own(case, carriers) else "+".join(carriers) or None


def unproved(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return why nothing proves that the requested backend, and no other, carried the case."""
    if not BACKENDS[case.backend].parallel:
        return None
    names = _activities(result)
    carriers = _carriers(case, names, _ANY)
    evidence = _EVIDENCE.get(BACKENDS[case.backend].framework, "Horovod's timeline")
    shown = ", ".join(names) or "nothing"
    if set(carriers) != expected(case) and not _own(case, carriers):
        carried = "+".join(carriers) or "no known backend"
        return f"asked for {case.backend}, but {carried} carried it ({evidence} shows {shown})"
    own = OPERATIONS.get(case.workload)
    activities = _ANY if case.command else own.shown if own else _TRAINING
    if not expected(case) & set(_carriers(case, names, activities)):
        return f"asked for {case.workload}, but {evidence} shows {shown}"
    return None


def expected(case: Case) -> set[str]:
    """Return the required carriers of a case: its backend, and MPI too if the allreduce is hierarchical."""
    between_hosts = BACKENDS[case.backend].hierarchical
    both = between_hosts and case.params.get("hierarchical_allreduce") and len(case.hosts) > 1
    return {case.backend, between_hosts} if both else {case.backend}


def _own(case: Case, carriers: Iterable[str]) -> bool:
    """Whether a user's own training sends on GPUs as it should: it may send from CPUs, too."""
    return bool(case.command) and BACKENDS[case.backend].gpu and case.backend in carriers


def _carriers(case: Case, names: Iterable[str], operations: Iterable[str]) -> list[str]:
    operations = set(operations)
    known = DDP_BACKENDS if BACKENDS[case.backend].framework == DDP else PARALLEL
    return [name for name in known if any(f"{BACKENDS[name].proof}{what}" in names for what in operations)]


def _activities(result: Mapping[str, Any]) -> list[str]:
    """Return the activities in the timeline, under their carrier's own name."""
    proof = result.get("proof") or {}
    names = [*(proof.get("activities") or []), *(f"{group}:{_GROUP}" for group in proof.get("groups") or [])]
    state = (result.get("state") or {}).get("horovod") or {}
    if state.get("gloo_enabled") == 1 and state.get("mpi_enabled") == 0:
        return ["GLOO_ALLTOALL" if name == "MPI_ALLTOALL" else name for name in names]
    return names
