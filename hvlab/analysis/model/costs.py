"""What a collective costs in the latency and bandwidth (alpha-beta) model.

A message of S bytes takes alpha + S * beta; an algorithm is described by how many messages follow one another
(`messages`) and how often the buffer crosses a rank's link (`volume`), both for n ranks. S is the size as
nccl-tests counts it: the whole buffer of allreduce, broadcast and reduce-scatter, what a rank holds at the
end of allgather, what it sends in all to alltoall. The time of the additions themselves is part of beta.

Several ranks on each of several hosts make two levels. With a fixed number of ranks a host, what happens
inside a host costs the same however many hosts there are: a start and a time a byte. Between hosts the
algorithm runs over the hosts. That holds for a hierarchical allreduce; a flat ring over all ranks is of the
same form, as its messages and its volume across the slow links grow linearly with those of a ring over the
hosts.

Sources (those of the algorithms are in `hvlab/workloads/operations.py`):
    Karonis et al.: Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective Operation
    Performance, IPDPS 2000: levels of a network, each with a cost of its own.
    nccl-tests, doc/PERFORMANCE.md: sizes, and the same factors as busbw/algbw.
"""

from __future__ import annotations

from dataclasses import dataclass

from hvlab.base.errors import UsageError
from hvlab.workloads.operations import OPERATIONS, Shape


@dataclass(frozen=True)
class CostTerms:
    """Where the time of operations goes, in seconds."""

    start_s: float
    latency_s: float
    bandwidth_s: float

    @property
    def seconds(self) -> float:
        """Return the whole time."""
        return self.start_s + self.latency_s + self.bandwidth_s


SHAPES = {name: operation.algorithms for name, operation in OPERATIONS.items() if operation.algorithms}
COLLECTIVES = frozenset(SHAPES)


def shape(collective: str, algorithm: str, ranks: int) -> Shape:
    """Return what an algorithm does on that many ranks; on one rank it sends nothing."""
    try:
        return SHAPES[collective][algorithm](ranks)
    except KeyError:
        known = ", ".join(f"{name} ({', '.join(algorithms)})" for name, algorithms in SHAPES.items())
        raise UsageError(
            f"there is no cost of a {algorithm} {collective}", remedy=f"known are: {known}"
        ) from None


@dataclass(frozen=True)
class Cost:
    """Alpha, beta and the start of each operation (for Horovod, its cycle) of a collective; SI units.

    With several ranks a host (``slots``), alpha and beta are those between hosts; what happens inside a host
    is part of the start, and ``inner_s_per_byte``.
    """

    collective: str
    algorithm: str
    alpha_s: float
    beta_s_per_byte: float
    constant_s: float = 0.0
    inner_s_per_byte: float = 0.0
    slots: int = 1

    def terms(self, ranks: int, size_bytes: float, *, operations: int = 1) -> CostTerms:
        """Return where the time of so many bytes goes, sent by so many operations."""
        done = shape(self.collective, self.algorithm, max(1, ranks // self.slots))
        return CostTerms(
            operations * self.constant_s,
            operations * done.messages * self.alpha_s,
            size_bytes * (done.volume * self.beta_s_per_byte + self.inner_s_per_byte),
        )

    def seconds(self, ranks: int, size_bytes: float) -> float:
        """Return constant + messages * alpha + volume * S * beta."""
        return self.terms(ranks, size_bytes).seconds


def crossing(one: Cost, other: Cost, ranks: int) -> float | None:
    """Return the size in bytes at which both take as long; None where one is faster at every size."""
    fixed = other.seconds(ranks, 0) - one.seconds(ranks, 0)
    slope = one.terms(ranks, 1).bandwidth_s - other.terms(ranks, 1).bandwidth_s
    return fixed / slope if slope and fixed / slope > 0 else None
