"""The table of operations: all that sets one collective apart from another, for whoever runs or reads them.

S, the size of a measurement, is the whole buffer: of one rank for allreduce and broadcast, and where ranks
have shares of it, of what all send one rank or one rank sends all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hvlab.lab.backends import DDP, HOROVOD


def _whole(_: int) -> float:
    return 1.0


def _but_own(ranks: int) -> float:
    return (ranks - 1) / ranks


def _there_and_back(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True)
class Operation:
    """A collective of hvlab's, or of the tools whose output it reads.

    ``nccl_tests`` and ``osu`` are what nccl-tests' programs and the titles of the OSU benchmarks
    (c/util/osu_util_mpi.c) call it. ``busbw`` gives busbw/algbw of a number of ranks (nccl-tests,
    doc/PERFORMANCE.md). ``shared``: each rank has a share of the buffer. ``reduces``: it combines what ranks
    hold. ``shown`` are the ends of what Horovod 0.28.1 (common/common.h) and torch 2.13
    (torch/csrc/distributed/c10d) call it in a profile. ``mpi`` is the call of MPI that each makes
    (mpi_operations.cc, ProcessGroupMPI.cpp).
    """

    name: str
    nccl_tests: str
    osu: str | None = None
    busbw: Callable[[int], float] = _whole
    shared: bool = False
    reduces: bool = False
    shown: tuple[str, ...] = ()
    mpi: Mapping[str, str] = field(default_factory=dict)


OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            "allreduce",
            "all_reduce",
            "Allreduce Latency",
            _there_and_back,
            reduces=True,
            shown=("ALLREDUCE", "ADASUM_ALLREDUCE", "all_reduce"),
            mpi={HOROVOD: "allreduce", DDP: "allreduce"},
        ),
        Operation(
            "broadcast",
            "broadcast",
            "Broadcast Latency",
            shown=("BCAST", "broadcast"),
            mpi={HOROVOD: "bcast", DDP: "bcast"},
        ),
        Operation(
            "allgather",
            "all_gather",
            "Allgather Latency",
            _but_own,
            shared=True,
            shown=("ALLGATHER", "CROSS_ALLGATHER", "all_gather", "_all_gather_base"),
            mpi={HOROVOD: "allgatherv", DDP: "allgather"},
        ),
        Operation(
            "alltoall",
            "alltoall",
            "All-to-All Personalized Exchange Latency",
            _but_own,
            shared=True,
            shown=("ALLTOALL", "all_to_all"),
            mpi={HOROVOD: "alltoallv", DDP: "alltoall"},
        ),
        Operation(
            "reducescatter",
            "reduce_scatter",
            "Reduce_scatter Latency",
            _but_own,
            shared=True,
            reduces=True,
            shown=("REDUCESCATTER", "reduce_scatter", "_reduce_scatter_base"),
            mpi={HOROVOD: "reduce_scatter", DDP: "reduce_scatter_block"},
        ),
        # hvlab reads figures of these, and runs none of them.
        Operation("reduce", "reduce", "Reduce Latency", reduces=True),
        Operation("gather", "gather", "Gather Latency", _but_own, shared=True),
        Operation("scatter", "scatter", "Scatter Latency", _but_own, shared=True),
        Operation("sendrecv", "sendrecv"),
        Operation("hypercube", "hypercube"),
    )
}
COLLECTIVES = tuple(name for name, operation in OPERATIONS.items() if operation.mpi)
