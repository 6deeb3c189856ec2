"""The table of backends, backends.yml: every difference between data planes is here, and nowhere else.

Horovod and torch's own DistributedDataParallel (DDP) send the same bytes over the same libraries in different
ways, so each of DDP's data planes is a backend beside Horovod's; so are those of torch's fully_shard (FSDP2),
and those of hvlab_horovod, which answers Horovod's API by torch.distributed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvlab.base.yaml_files import read_shipped

HOROVOD = "horovod"
DDP = "ddp"
FSDP = "fsdp"
SHIM = "horovod-on-ddp"


@dataclass(frozen=True)
class Backend:
    """A data plane of Horovod, DDP or FSDP, or ``serial``: one process alone, without either.

    What Horovod can do over each is that of horovod 0.28.1 (common/operations.cc, common/message.h), what DDP
    can is that of torch 2.13 (torch/distributed/distributed_c10d.py).
    """

    name: str
    title: str
    """How the field writes it."""
    launchers: tuple[str, ...]
    """Who may start its ranks; the first does unless another is asked for."""
    proof: str
    """How the activities of Horovod's timeline, or the events of torch's profiler, begin that this backend,
    and no other, carries."""
    framework: str = HOROVOD
    """Who averages gradients over it: Horovod, DDP, FSDP, hvlab_horovod; nobody for one process alone."""
    group: str = ""
    """Its name in torch.distributed; empty if that takes no part."""
    counterpart: str = ""
    """The backend of Horovod that ``--library ddp``, say, replaces by this one."""
    wheel: bool = True
    """Whether it is in the packages of torch; otherwise it is measured where it is named."""
    env: Mapping[str, str] = field(default_factory=dict)
    """How the ranks are told to use it; values may hold ``{interface}``, and ``{alias}`` for the
    folder in which ``import horovod`` finds hvlab_horovod."""
    gpu: bool = False
    """Whether it carries GPU memory only, and each rank needs a GPU of its own."""
    meeting: bool = False
    """Whether Horovod's ranks meet without MPI, at a place that horovodrun keeps."""
    parallel: bool = True
    architectures: tuple[str, ...] = ("x86_64", "aarch64")
    """Where it can be had."""
    unsupported_operations: tuple[str, ...] = ()
    """Collectives that Horovod hands to MPI instead, and those that torch makes of others."""
    unsupported_dtypes: tuple[str, ...] = ()
    adasum: bool = False
    mpi: bool = False
    """Whether it sends tensors through MPI's collectives, which Open MPI's rules choose."""
    hierarchical: str = ""
    """Who carries a hierarchical allreduce between hosts; empty if Horovod has none."""


def _backend(name: str, row: Mapping[str, Any]) -> Backend:
    fields: dict[str, Any] = {key: tuple(it) if isinstance(it, list) else it for key, it in row.items()}
    return Backend(name, **fields)


BACKENDS: Mapping[str, Backend] = {
    name: _backend(name, row) for name, row in read_shipped(Path(__file__).with_suffix(".yml")).items()
}
SERIAL = next(name for name, backend in BACKENDS.items() if not backend.parallel)
# Horovod's, which are measured unless others are named.
PARALLEL = tuple(name for name, backend in BACKENDS.items() if backend.framework == HOROVOD)
DDP_BACKENDS = tuple(name for name, backend in BACKENDS.items() if backend.framework == DDP)
LIBRARIES = (HOROVOD, SHIM, DDP, FSDP)
LAUNCHERS = sorted({name for backend in BACKENDS.values() for name in backend.launchers})


def of_framework(name: str, framework: str) -> str | None:
    """Return a backend's counterpart in another framework; None if that has none."""
    if not BACKENDS[name].framework:
        return name
    own = BACKENDS[name].counterpart or name
    alike = (other for other, it in BACKENDS.items() if it.framework == framework)
    return next((other for other in alike if own in (other, BACKENDS[other].counterpart)), None)
