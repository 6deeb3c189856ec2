"""The table of backends: all that sets one data plane apart from another, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Backend:
    """A data plane of Horovod, or ``serial``: one process alone, without Horovod.

    What Horovod can do over each is that of horovod 0.28.1 (common/operations.cc, common/message.h).
    """

    name: str
    title: str
    """How the field writes it."""
    launchers: tuple[str, ...]
    """Who may start its ranks; the first does unless another is asked for."""
    proof: str
    """How the activities of Horovod's timeline begin that this backend, and no other, carries."""
    env: Mapping[str, str] = field(default_factory=dict)
    """How the ranks are told to use it; values may hold ``{interface}``."""
    gpu: bool = False
    """Whether it carries GPU memory only, and each rank needs a GPU of its own."""
    parallel: bool = True
    architectures: tuple[str, ...] = ("x86_64", "aarch64")
    """Where it can be had."""
    unsupported_operations: tuple[str, ...] = ()
    """Collectives that Horovod hands to MPI instead."""
    unsupported_dtypes: tuple[str, ...] = ()
    adasum: bool = False
    hierarchical: str = ""
    """Who carries a hierarchical allreduce between hosts; empty where Horovod has none."""


BACKENDS: Mapping[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            "mpi",
            "MPI",
            ("mpirun",),
            proof="MPI_",
            env={"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "MPI"},
            adasum=True,
        ),
        Backend(
            "gloo",
            "Gloo",
            ("horovodrun",),
            proof="GLOO_",
            env={"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "GLOO"},
        ),
        Backend(
            "nccl",
            "NCCL",
            ("mpirun",),
            proof="NCCL_",
            env={"HOROVOD_CONTROLLER": "mpi", "NCCL_SOCKET_IFNAME": "{interface}"},
            gpu=True,
            hierarchical="mpi",
        ),
        Backend(
            "ccl",
            "oneCCL",
            ("mpirun",),
            proof="CCL_",
            env={
                "HOROVOD_CONTROLLER": "mpi",
                "HOROVOD_CPU_OPERATIONS": "CCL",
                "CCL_ATL_TRANSPORT": "ofi",
                "FI_PROVIDER": "tcp",
                "FI_TCP_IFACE": "{interface}",
                "CCL_KVS_IFACE": "{interface}",
                "CCL_OFI_LIBRARY_PATH": "libfabric.so.1",
                "CCL_LOG_LEVEL": "error",
            },
            architectures=("x86_64",),
            unsupported_operations=("reducescatter",),
            unsupported_dtypes=("float16",),
        ),
        Backend("serial", "serial", ("local",), proof="", parallel=False),
    )
}
SERIAL = next(name for name, backend in BACKENDS.items() if not backend.parallel)
PARALLEL = tuple(name for name, backend in BACKENDS.items() if backend.parallel)
