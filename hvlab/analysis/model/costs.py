"""The cost of an allreduce in the latency and bandwidth (alpha-beta) model.

A message of S bytes takes alpha + S * beta; an algorithm has a number of consecutive messages (`messages`)
and crossings of a rank's link by the buffer of S bytes (`volume`), both for n ranks. Beta includes the
additions.

Several ranks on each of several hosts make two levels. With a fixed number of ranks a host, the work inside a
host costs the same however many hosts there are: a start and a time a byte. Between hosts the algorithm runs
over the hosts. That holds for a hierarchical allreduce; a flat ring over all ranks is of the same form, as
its messages and its volume across the slow links grow linearly with those of a ring over the hosts.

Sources:
    Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, IJHPCA 19
    (2005), section 4.5: recursive doubling, recursive halving, ring.
    Patarasuk, Yuan: Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, JPDC 69 (2009):
    2(n-1)/n is the least volume of an allreduce, and the ring has it.
    Karonis et al.: Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective Operation
    Performance, IPDPS 2000: levels of a network, each with its own cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Consecutive ``messages``, and ``volume`` in buffers, of an algorithm on n ranks."""

    messages: float
    volume: float


@dataclass(frozen=True)
class CostTerms:
    """The time of operations in its parts, in seconds."""

    start_s: float
    latency_s: float
    bandwidth_s: float

    @property
    def seconds(self) -> float:
        """Total time."""
        return self.start_s + self.latency_s + self.bandwidth_s


# Rounds of doubling are log2 n, rounded up. Tree: recursive doubling with the whole buffer; a binomial reduce
# and broadcast has twice the messages: the same curve, with half of this alpha and beta. Halving:
# Rabenseifner's recursive halving, then doubling; exact for powers of two, others cost a little more.
ALGORITHMS: Mapping[str, Callable[[int], Shape]] = {
    "ring": lambda n: Shape(2 * (n - 1), 2 * (n - 1) / n),
    "tree": lambda n: Shape((n - 1).bit_length(), (n - 1).bit_length()),
    "halving": lambda n: Shape(2 * (n - 1).bit_length(), 2 * (n - 1) / n),
}


@dataclass(frozen=True)
class Cost:
    """Alpha, beta and the start of each operation (for Horovod, its cycle) of an allreduce; SI units.

    With several ranks a host (``slots``), alpha and beta are those between hosts; the start and
    ``inner_s_per_byte`` include the work inside a host.
    """

    algorithm: str
    alpha_s: float
    beta_s_per_byte: float
    constant_s: float = 0.0
    inner_s_per_byte: float = 0.0
    slots: int = 1

    @property
    def bandwidth_gb_per_s(self) -> float | None:
        """1/beta in GB/s (10^9 bytes); None if the sizes do not show it."""
        return 1e-9 / self.beta_s_per_byte if self.beta_s_per_byte else None

    def terms(self, ranks: int, size_bytes: float, *, operations: int = 1) -> CostTerms:
        """Split the time of these bytes, sent in these operations, into the terms of the model."""
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
    """Return the size in bytes at which both take equally long; None if one is always faster."""
    fixed = other.seconds(ranks, 0) - one.seconds(ranks, 0)
    slope = one.terms(ranks, 1).bandwidth_s - other.terms(ranks, 1).bandwidth_s
    return fixed / slope if slope and fixed / slope > 0 else None
