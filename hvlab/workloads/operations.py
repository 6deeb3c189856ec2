"""The table of collectives: everything that differs between them.

The size of a measurement is the whole buffer. Where each rank has a share of it, that is what all ranks send
to one, or one sends to all.

Algorithms:
    Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, IJHPCA 19
    (2005), sections 4.1-4.5: recursive doubling, recursive halving, ring, binomial tree, Bruck, pairwise.
    Patarasuk, Yuan: Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, JPDC 69 (2009):
    2(n-1)/n is the least volume that an allreduce can have, and the ring has it.
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
class Shape:
    """``messages`` that follow one another, and ``volume`` in buffers, of an algorithm on n ranks."""

    messages: float
    volume: float


def _rounds(ranks: int) -> int:
    """Return log2 of the ranks, rounded up."""
    return (ranks - 1).bit_length()


def _ring_allreduce(ranks: int) -> Shape:
    """Reduce-scatter and allgather round a ring: 2(n-1) messages, volume 2(n-1)/n."""
    return Shape(2 * (ranks - 1), _there_and_back(ranks))


def _tree_allreduce(ranks: int) -> Shape:
    """Recursive doubling: log2 n messages of the whole buffer.

    A binomial reduce and broadcast takes twice as many: the same curve, with half of this alpha and beta.
    """
    return Shape(_rounds(ranks), _rounds(ranks))


def _halving_allreduce(ranks: int) -> Shape:
    """Rabenseifner's: recursive halving, then doubling: 2 log2 n messages, volume 2(n-1)/n.

    Exact for powers of two; others cost some more, which is left out here.
    """
    return Shape(2 * _rounds(ranks), _there_and_back(ranks))


def _ring(ranks: int) -> Shape:
    """Ring, or pairwise exchange: n-1 messages, volume (n-1)/n."""
    return Shape(ranks - 1, _but_own(ranks))


def _doubling(ranks: int) -> Shape:
    """Recursive doubling or halving: log2 n messages, volume (n-1)/n."""
    return Shape(_rounds(ranks), _but_own(ranks))


def _bruck(ranks: int) -> Shape:
    """Bruck's alltoall: log2 n messages of half the buffer."""
    return Shape(_rounds(ranks), _rounds(ranks) / 2)


def _binomial(ranks: int) -> Shape:
    """Binomial tree: log2 n messages of the whole buffer."""
    return Shape(_rounds(ranks), _rounds(ranks))


def _scattered(ranks: int) -> Shape:
    """Broadcast of a long message: binomial scatter, then allgather round a ring."""
    return Shape(_rounds(ranks) + ranks - 1, _there_and_back(ranks))


@dataclass(frozen=True)
class Operation:
    """A collective that hvlab runs, or that a tool runs whose output it reads.

    ``nccl_tests`` and ``osu`` are its names in nccl-tests and in the titles of the OSU benchmarks
    (c/util/osu_util_mpi.c). ``busbw`` returns busbw/algbw for a number of ranks (nccl-tests,
    doc/PERFORMANCE.md). ``shared``: each rank has a share of the buffer. ``reduces``: it combines the ranks'
    elements. ``shown`` are the ends of its names in the profiles of Horovod 0.28.1 (common/common.h) and
    torch 2.13 (torch/csrc/distributed/c10d). ``mpi`` is the MPI call that each framework makes for it
    (mpi_operations.cc, ProcessGroupMPI.cpp), ``settings`` what can be set of it beside what all have,
    ``algorithms`` what each costs.
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
    algorithms: Mapping[str, Callable[[int], Shape]] = field(default_factory=dict)


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
            algorithms={"ring": _ring_allreduce, "tree": _tree_allreduce, "halving": _halving_allreduce},
        ),
        Operation(
            "broadcast",
            "broadcast",
            "Broadcast Latency",
            shown=("BCAST", "broadcast"),
            mpi={HOROVOD: "bcast", DDP: "bcast"},
            settings=(_IN_PLACE,),
            algorithms={"ring": _scattered, "tree": _binomial},
        ),
        Operation(
            "allgather",
            "all_gather",
            "Allgather Latency",
            _but_own,
            shared=True,
            shown=("ALLGATHER", "CROSS_ALLGATHER", "all_gather", "_all_gather_base"),
            mpi={HOROVOD: "allgatherv", DDP: "allgather"},
            algorithms={"ring": _ring, "tree": _doubling},
        ),
        Operation(
            "alltoall",
            "alltoall",
            "All-to-All Personalized Exchange Latency",
            _but_own,
            shared=True,
            shown=("ALLTOALL", "all_to_all"),
            mpi={HOROVOD: "alltoallv", DDP: "alltoall"},
            algorithms={"ring": _ring, "tree": _bruck},
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
            algorithms={"ring": _ring, "tree": _doubling},
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
