"""What an allreduce costs in the latency and bandwidth (alpha-beta) model.

A message of S bytes takes alpha + S * beta; an algorithm is described by how many messages follow one another
(`messages`) and how often the buffer of S bytes crosses a rank's link (`volume`), both for n ranks. The time
of the additions themselves is part of beta.

Several ranks on each of several hosts make two levels. With a fixed number of ranks a host, what happens
inside a host costs the same however many hosts there are: a start and a time a byte. Between hosts the
algorithm runs over the hosts. That holds for a hierarchical allreduce; a flat ring over all ranks is of the
same form, as its messages and its volume across the slow links grow linearly with those of a ring over the
hosts.

Sources:
    Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, IJHPCA 19
    (2005), section 4.5: recursive doubling, recursive halving, ring.
    Patarasuk, Yuan: Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, JPDC 69 (2009):
    2(n-1)/n is the least volume that an allreduce can have, and the ring has it.
    Karonis et al.: Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective Operation
    Performance, IPDPS 2000: levels of a network, each with a cost of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """``messages`` that follow one another, and ``volume`` in buffers, of an algorithm on n ranks."""

    messages: float
    volume: float


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


def _rounds(ranks: int) -> int:
    """Return log2 of the ranks, rounded up."""
    return (ranks - 1).bit_length()


def _ring(ranks: int) -> Shape:
    """Reduce-scatter and allgather round a ring: 2(n-1) messages, volume 2(n-1)/n."""
    return Shape(2 * (ranks - 1), 2 * (ranks - 1) / ranks)


def _tree(ranks: int) -> Shape:
    """Recursive doubling: log2 n messages of the whole buffer.

    A binomial reduce and broadcast takes twice as many: the same curve, with half of this alpha and beta.
    """
    return Shape(_rounds(ranks), _rounds(ranks))


def _halving(ranks: int) -> Shape:
    """Rabenseifner's: recursive halving, then doubling: 2 log2 n messages, volume 2(n-1)/n.

    Exact for powers of two; others cost some more, which is left out here.
    """
    return Shape(2 * _rounds(ranks), 2 * (ranks - 1) / ranks)


ALGORITHMS: Mapping[str, Callable[[int], Shape]] = {"ring": _ring, "tree": _tree, "halving": _halving}


@dataclass(frozen=True)
class Cost:
    """Alpha, beta and the start of each operation (for Horovod, its cycle) of an allreduce; SI units.

    With several ranks a host (``slots``), alpha and beta are those between hosts; what happens inside a host
    is part of the start, and ``inner_s_per_byte``.
    """

    algorithm: str
    alpha_s: float
    beta_s_per_byte: float
    constant_s: float = 0.0
    inner_s_per_byte: float = 0.0
    slots: int = 1

    @property
    def bandwidth_gb_per_s(self) -> float | None:
        """Return 1/beta in GB/s (10^9 bytes); None where the sizes measured do not show it."""
        return 1e-9 / self.beta_s_per_byte if self.beta_s_per_byte else None

    def terms(self, ranks: int, size_bytes: float, *, operations: int = 1) -> CostTerms:
        """Split the time of these bytes, sent by this many operations, into the terms of the model."""
        done = ALGORITHMS[self.algorithm](max(1, ranks // self.slots))
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
