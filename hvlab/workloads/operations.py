"""The table of collectives: everything that differs between them.

The size of a measurement is the whole buffer. Where each rank has a share of it, that is what all ranks send
to one, or one sends to all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hvlab.lab.backends import DDP, HOROVOD
from hvlab.workloads.parameters import Parameter


def _whole(_: int) -> float:
    return 1.0


def _but_own(ranks: int) -> float:
    return (ranks - 1) / ranks


def _there_and_back(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True)
class Operation:
    """A collective that hvlab runs, or that a tool runs whose output it reads.

    ``nccl_tests`` and ``osu`` are its names in nccl-tests and in the titles of the OSU benchmarks
    (c/util/osu_util_mpi.c). ``busbw`` returns busbw/algbw for a number of ranks (nccl-tests,
    doc/PERFORMANCE.md). ``shared``: each rank has a share of the buffer. ``reduces``: it combines the ranks'
    elements. ``shown`` are the ends of its names in the profiles of Horovod 0.28.1 (common/common.h) and
    torch 2.13 (torch/csrc/distributed/c10d). ``mpi`` is the MPI call that each framework makes for it
    (mpi_operations.cc, ProcessGroupMPI.cpp), ``settings`` what can be set of it beside what all have.
    """

    name: str
    nccl_tests: str
    osu: str | None = None
    busbw: Callable[[int], float] = _whole
    shared: bool = False
    reduces: bool = False
    shown: tuple[str, ...] = ()
    mpi: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[Parameter, ...] = ()


_IN_PLACE = Parameter("in_place", "flag", True, "Whether the result overwrites the buffer.")


def _reduced(*names: str) -> Parameter:
    return Parameter("op", "text", "sum", "How elements are reduced.", names)


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
            settings=(
                _reduced("sum", "average", "adasum"),
                Parameter(
                    "form",
                    "text",
                    "single",
                    "One call, one grouped call, or several calls that Horovod fuses.",
                    ("single", "grouped", "fused"),
                ),
                Parameter("tensors", "int", 1, "How many tensors share the buffer (grouped, fused)."),
                _IN_PLACE,
            ),
        ),
        Operation(
            "broadcast",
            "broadcast",
            "Broadcast Latency",
            shown=("BCAST", "broadcast"),
            mpi={HOROVOD: "bcast", DDP: "bcast"},
            settings=(_IN_PLACE,),
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
            settings=(_reduced("sum", "average"),),
        ),
        # hvlab only reads figures of these.
        Operation("reduce", "reduce", "Reduce Latency", reduces=True),
        Operation("gather", "gather", "Gather Latency", _but_own, shared=True),
        Operation("scatter", "scatter", "Scatter Latency", _but_own, shared=True),
        Operation("sendrecv", "sendrecv"),
        Operation("hypercube", "hypercube"),
    )
}
COLLECTIVES = tuple(name for name, operation in OPERATIONS.items() if operation.mpi)
