"""Infeasible cases, and why: known before anything runs. Pure.

Horovod's abilities are those of 0.28.1: the operations of common/operations.cc, the types of
common/message.h, and the refusals of torch/mpi_ops.py. DDP's and FSDP's are those of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hvlab.lab.backends import BACKENDS, DDP, FSDP, PARALLEL, SHIM, of_framework
from hvlab.lab.inventory import Host
from hvlab.lab.variants import carries
from hvlab.workloads.case import Case
from hvlab.workloads.operations import OPERATIONS
from hvlab.workloads.parameters import TUNING
from hvlab.workloads.sizes import DTYPES

# The type in which Horovod itself sends gradients.
_WIRE = {"fp16": "float16"}
# Gradients of train_tensorflow.py.
_TENSORFLOWS = ("none", "fp16")
# Gradients of torch's own libraries here.
_TORCHS = {DDP: ("none", "fp16"), FSDP: ("none",), SHIM: ("none", "fp16", "bf16", "8bit", "naive8")}
_SHARDED = ("lm", "rnn")
_HOROVODS = tuple(item for item in TUNING if item.name != "threads")
# 8-bit sums have 127 steps; each rank needs one at least.
_STEPS_OF_8BIT = 127


def reason(case: Case, collective: str, hosts: Sequence[Host]) -> str | None:
    """Return why ``case`` cannot be run on ``hosts``, if so; ``collective`` is its collective."""
    if "command" in case.params and not case.command:
        return "no command was given: write it after --, as in `hvlab bench -- python train.py`"
    if not BACKENDS[case.backend].parallel:
        return _serial(case)
    reasons = (
        _operation(case, collective, hosts),
        _sizes(case, collective),
        *(check(case) for check in _CHECKS),
    )
    return next(filter(None, reasons), None)


def step(case: Case, collective: str) -> int:
    """Return the bytes that each size must be a multiple of: an element, for each rank if all share."""
    parts = case.world_size if OPERATIONS[collective].shared else 1
    tensors = 1 if case.params.get("form", "single") == "single" else case.params["tensors"]
    return DTYPES[case.params["dtype"]] * parts * int(tensors)


def _serial(case: Case) -> str | None:
    if case.world_size > 1:
        return "serial is one process alone"
    if "dtype" in case.params:
        return "one process alone has nobody to communicate with"
    if case.params.get("compression", "none") != "none":
        return "serial sends no gradients, so there is nothing to compress"
    return None


def _operation(case: Case, collective: str, hosts: Sequence[Host]) -> str | None:
    # How train.py sends bfloat16, which Horovod does not have.
    by_parts = case.params.get("compression") == "bf16" and not BACKENDS[case.backend].group
    needed = ("alltoall", "allgather") if by_parts else (collective,)
    missing = [name for name in needed if not carries(case.backend, name, hosts, case.framework)]
    if missing and BACKENDS[case.backend].group:
        return f"torch has no {missing[0]} of its own over {BACKENDS[case.backend].group}"
    return f"Horovod has no {missing[0]} over {case.backend}: MPI would carry it" if missing else None


def _device(case: Case) -> str | None:
    if BACKENDS[case.backend].gpu and case.params["device"] != "cuda":
        return f"{case.backend} carries the memory of GPUs only"
    return None


def _hierarchical(case: Case) -> str | None:
    if case.params["hierarchical_allreduce"] and not BACKENDS[case.backend].hierarchical:
        able = ", ".join(name for name in PARALLEL if BACKENDS[name].hierarchical)
        return f"Horovod has a hierarchical allreduce over {able} only, not over {case.backend}"
    return None


def _torch(case: Case) -> str | None:
    backend = BACKENDS[case.backend]
    if not backend.group:
        return None
    title = "hvlab_horovod" if backend.framework == SHIM else backend.framework.upper()
    if backend.framework == FSDP and case.workload not in _SHARDED:
        return f"FSDP is measured with {', '.join(_SHARDED)}: take {of_framework(case.backend, DDP)} for this"
    tuned = [item.name for item in _HOROVODS if case.params.get(item.name, item.default) != item.default]
    if tuned:
        return f"{tuned[0]} is a setting of Horovod, which {title} is without"
    if case.params.get("form", "single") != "single" and backend.framework != SHIM:
        return f"torch.distributed has no {case.params['form']} allreduce: DDP itself fuses gradients"
    able = _TORCHS.get(backend.framework, ("none",))
    if case.params.get("compression", "none") not in able:
        return f"{title} has no {case.params['compression']} gradients here, only {', '.join(able)}"
    return None


def _elements(case: Case) -> str | None:
    dtype, op = str(case.params.get("dtype", "")), case.params.get("op")
    owner = "torch" if BACKENDS[case.backend].group else "Horovod"
    if dtype == "bfloat16" and owner == "Horovod":
        return "Horovod has no bfloat16"
    sent_as = _WIRE.get(case.params.get("compression", ""), dtype)
    if sent_as in BACKENDS[case.backend].unsupported_dtypes:
        return f"{owner} has no {sent_as} over {case.backend}"
    if op == "adasum":
        return _adasum(case, dtype)
    if op == "average" and "int" in dtype:
        return f"the average of {dtype} elements is not whole"
    return None


def _adasum(case: Case, dtype: str) -> str | None:
    if not BACKENDS[case.backend].adasum:
        able = ", ".join(name for name in PARALLEL if BACKENDS[name].adasum)
        return f"Horovod has Adasum over {able} only, not over {case.backend}"
    if case.world_size & (case.world_size - 1):
        return f"Adasum needs a power of two of ranks, not {case.world_size}"
    return f"Adasum has no {dtype}" if "int" in dtype else None


def _sizes(case: Case, collective: str) -> str | None:
    sizes = case.params.get("sizes")
    if sizes is None or min(sizes):
        return None
    return f"one of the sizes is less than {step(case, collective)} bytes, an element for each part"


def _framework(case: Case) -> str | None:
    compression = case.params.get("compression")
    if case.framework == "torch" or compression in _TENSORFLOWS:
        return None
    return f"Horovod for {case.framework} has no {compression} gradients"


def _counts(case: Case) -> str | None:
    params, ranks = case.params, case.world_size
    if params.get("form") == "single" and params["tensors"] > 1:
        return f"a single call has one tensor, not {params['tensors']}"
    if params.get("compression") == "8bit" and ranks > _STEPS_OF_8BIT:
        return f"8bit has {_STEPS_OF_8BIT} steps, too few for {ranks} ranks"
    if params.get("scaling") == "strong" and params["batch"] % ranks:
        return f"a batch of {params['batch']} cannot be shared evenly by {ranks} ranks"
    return None


_CHECKS: Sequence[Callable[[Case], str | None]] = (
    _device,
    _torch,
    _hierarchical,
    _elements,
    _framework,
    _counts,
)
