"""The carrier of a collective, by Horovod's timeline and torch's profiler. Pure.

Activities end as in ``operations``; torch's process groups name theirs ``gloo:all_reduce``. In Horovod
0.28.1, Gloo's alltoall shows as MPI_ALLTOALL (common/ops/gloo_operations.cc), so that Horovod's own state
must tell the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hvlab.lab.backends import BACKENDS, FSDP, SHIM
from hvlab.workloads.case import Case
from hvlab.workloads.operations import OPERATIONS

# Compression may send gradients by other ways than an allreduce.
_TRAINING = (*OPERATIONS["allreduce"].shown, *OPERATIONS["allgather"].shown)
_ALL = {*(name for operation in OPERATIONS.values() for name in operation.shown), "REDUCE"}
# What carries a sharded training: weights are gathered, gradients scattered (torch/distributed/fsdp).
_SHARDED = {"all_gathers": "c10d::_allgather_base_", "reduce_scatters": "c10d::_reduce_scatter_base_"}
# In the user's own training, torch.distributed reports its process groups; nobody profiles it.
_GROUP = "process_group"
_ANY = {*_ALL, _GROUP}
# As hvlab_horovod names itself where ranks import Horovod.
_SHIM = "hvlab_horovod"


def find_proved(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return the backends with activities, joined by +, if any; one process alone proves itself."""
    if _is_alone(case, result):
        return case.backend
    if stranger := _stranger(case, result):
        return stranger
    carriers = _carriers(case, _activities(result), _ANY)
    return case.backend if _is_own(case, carriers) else "+".join(carriers) or None


def explain_unproved(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return why nothing proves that the requested backend, and no other, carried the case."""
    if _is_alone(case, result):
        return None
    if stranger := _stranger(case, result):
        return f"asked for {case.backend}, but {stranger} answered the ranks' imports"
    names = _activities(result)
    carriers = _carriers(case, names, _ANY)
    evidence = "torch's profiler" if BACKENDS[case.backend].group else "Horovod's timeline"
    shown = ", ".join(names) or "nothing"
    if set(carriers) != find_expected(case) and not _is_own(case, carriers):
        carried = "+".join(carriers) or "no known backend"
        return f"asked for {case.backend}, but {carried} carried it ({evidence} shows {shown})"
    own = OPERATIONS.get(case.workload)
    activities = _ANY if case.command else own.shown if own else _TRAINING
    if not find_expected(case) & set(_carriers(case, names, activities)):
        return f"asked for {case.workload}, but {evidence} shows {shown}"
    counted = collectives(result)
    if BACKENDS[case.backend].framework == FSDP and not all(counted.values()):
        kinds = ", ".join(f"{count:g} {name}" for name, count in counted.items())
        return f"asked for a sharded training, but {evidence} counts {kinds} in a step"
    return None


def _is_alone(case: Case, result: Mapping[str, Any]) -> bool:
    """Whether nothing is to be sent: one process, or FSDP on one rank, whose collectives torch leaves out."""
    sharded = BACKENDS[case.backend].framework == FSDP and case.world_size == 1
    shown = any(name.startswith("FSDP::") for name in _activities(result))
    return not BACKENDS[case.backend].parallel or (sharded and shown)


def _stranger(case: Case, result: Mapping[str, Any]) -> str | None:
    """Return the libraries that ranks imported, if hvlab_horovod answered where Horovod should, or not."""
    libraries = (result.get("state") or {}).get("libraries") or []
    on_torch = BACKENDS[case.backend].framework == SHIM
    if (libraries == [_SHIM]) if on_torch else (_SHIM not in libraries):
        return None
    return " and ".join(libraries) or "no known library"


def collectives(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the number of all-gathers and reduce-scatters torch's profiler counted in a step."""
    counts = (result.get("proof") or {}).get("counts") or {}
    return {name: float(counts.get(call, 0)) for name, call in _SHARDED.items()}


def find_expected(case: Case) -> set[str]:
    """Return the required carriers of a case: its backend, and MPI too if the allreduce is hierarchical."""
    between_hosts = BACKENDS[case.backend].hierarchical
    both = between_hosts and case.params.get("hierarchical_allreduce") and len(case.hosts) > 1
    return {case.backend, between_hosts} if both else {case.backend}


def _is_own(case: Case, carriers: Iterable[str]) -> bool:
    """Whether a user's own training sends on GPUs as it should: it may send from CPUs, too."""
    return bool(case.command) and BACKENDS[case.backend].gpu and case.backend in carriers


def _carriers(case: Case, names: Iterable[str], operations: Iterable[str]) -> list[str]:
    operations = set(operations)
    known = [name for name, it in BACKENDS.items() if it.framework == BACKENDS[case.backend].framework]
    return [name for name in known if any(f"{BACKENDS[name].proof}{what}" in names for what in operations)]


def _activities(result: Mapping[str, Any]) -> list[str]:
    proof = result.get("proof") or {}
    names = [*(proof.get("activities") or []), *(f"{group}:{_GROUP}" for group in proof.get("groups") or [])]
    state = (result.get("state") or {}).get("horovod") or {}
    if state.get("gloo_enabled") == 1 and state.get("mpi_enabled") == 0:
        return ["GLOO_ALLTOALL" if name == "MPI_ALLTOALL" else name for name in names]
    return names
