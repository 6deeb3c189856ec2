"""Time a collective of Horovod, or of torch.distributed, over a list of sizes, and prove its backend.

Runs as every rank under any launcher; rank 0 writes one JSON file, nothing is printed. Needs Python 3.8+.

Conventions are those of nccl-tests. S is the size in bytes of one rank's buffer: for allgather the output,
for alltoall and reducescatter the input. If the ranks share S it is rounded down to equal parts, and `count`
is one part's elements. t of one iteration is the mean over the ranks, which meet in a barrier before each;
all iterations are kept. Every timed result is compared with the expected one, see patterns.py. With --device
cuda the buffers are in GPU memory: a host's ranks take its GPUs in turn, and the clock is read when the GPU
has finished.
"""

from __future__ import annotations

import argparse
from typing import Any, Callable, NamedTuple, Sequence

import torch

import patterns
import world as ranks_of
from ranks import Alone

DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64")
PROOF_BYTES = 16384
Tensors = Sequence[torch.Tensor]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = ranks_of.parser(__doc__)
    parser.add_argument("--sizes", type=lambda text: [int(x) for x in text.split(",")], required=True)
    parser.add_argument("--iterations", type=int, default=25)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--op", choices=("sum", "average", "adasum"), default="sum")
    parser.add_argument("--form", choices=("single", "grouped", "fused"), default="single")
    parser.add_argument("--tensors", type=int, default=1, help="that share the buffer, unless single")
    parser.add_argument("--in-place", type=ranks_of.flag, default=True)
    options = parser.parse_args(argv)
    if options.workload not in CALLS:
        parser.error("no collective: {}".format(options.workload))
    if options.serial:
        parser.error("one process alone has nobody to communicate with")
    if options.form == "single":
        options.tensors = 1
    return options


def measure(options: argparse.Namespace, world: Alone, result: dict[str, Any]) -> None:
    result["sizes"] = []
    try:
        refuse(options, world)
        for size in options.sizes:
            result["sizes"].append(sweep(size, options, world, result))
        proof = Exchange(PROOF_BYTES * world.size * options.tensors, options, world, result["device"])
        result["proof"] = ranks_of.prove(options.output, world, proof.run, (CALLS[options.workload].shown,))
    except (NotImplementedError, ValueError) as error:
        # Raised before anything was sent, and so by all ranks.
        message = "{} has no such {} of {}: {}"
        owner = "torch.distributed" if options.ddp else "Horovod"
        result["checks"].append(message.format(owner, options.workload, options.dtype, error))


def refuse(options: argparse.Namespace, world: Alone) -> None:
    """Raise ValueError if Horovod would end the process instead of refusing."""
    if not hasattr(world.hvd, options.workload):
        raise ValueError("this release is without")
    if options.op == "adasum":
        if options.ddp:
            raise ValueError("Adasum is Horovod's")
        if not world.hvd.mpi_enabled():
            raise ValueError("Adasum needs MPI, which these ranks lack")
        if not getattr(torch, options.dtype).is_floating_point:
            raise ValueError("Adasum needs floating point numbers")


def sweep(size: int, options: argparse.Namespace, world: Alone, result: dict[str, Any]) -> dict[str, Any]:
    """Return the times of one size in seconds, for each iteration the mean and the longest of the ranks."""
    exchange = Exchange(size, options, world, result["device"])
    name = "{}.{}.{}".format(options.workload, options.dtype, size)
    times, wrong = [], 0
    for _ in range(options.iterations):
        exchange.refill()
        times.append(ranks_of.time_operation(lambda: exchange.run(name), world, result["device"]))
        wrong += exchange.wrong()
    total = int(world.total([wrong], name + ".wrong")[0])
    if total:
        result["checks"].append("{}: {} wrong elements at {} bytes".format(options.workload, total, size))
    everyone = world.gather(times, name + ".times")
    return {
        "size_bytes": size,
        "count": exchange.count * options.tensors,
        "wrong": total,
        "mean_s": [sum(column) / world.size for column in zip(*everyone)],
        "max_s": [max(column) for column in zip(*everyone)],
    }


class Exchange:
    """One rank's tensors of a collective of ``size`` bytes. Raises ValueError if no element fits."""

    def __init__(self, size: int, options: argparse.Namespace, world: Alone, device: str) -> None:
        self.options, self.ranks, self.rank = options, world.size, world.rank
        self.dtype, self.device = getattr(torch, options.dtype), device
        parts = world.size if CALLS[options.workload].shared else options.tensors
        self.count = size // torch.empty(0, dtype=self.dtype).element_size() // parts
        if not self.count:
            raise ValueError("{} bytes hold no element for each of {}".format(size, parts))
        self.base = patterns.base_for(world.size, options.dtype)
        self.own, self.expected = getattr(self, options.workload)()
        self.call: Callable[[Tensors, str], Tensors] = CALLS[options.workload].ready(world.hvd, options)
        self.buffers = [tensor.clone() for tensor in self.own]
        self.received: Tensors = ()

    def refill(self) -> None:
        """Reset the buffers to this rank's input."""
        for buffer, own in zip(self.buffers, self.own):
            buffer.copy_(own)

    def run(self, name: str) -> None:
        """Do the collective, its tensors named ``name``."""
        self.received = self.call(self.buffers, name)

    def wrong(self) -> int:
        """Return the number of wrong elements received."""
        error = self.error()
        bad: int = sum(expected.numel() for expected in self.expected[len(self.received) :])
        for received, expected in zip(self.received, self.expected):
            if received.shape != expected.shape:
                bad += expected.numel()
            elif error:
                far = (received.to(torch.float64) - expected.to(torch.float64)).abs()
                bad += int((~(far <= error * expected.to(torch.float64).abs().clamp(min=1))).sum())
            else:
                bad += int((received != expected).sum())
        return bad

    def error(self) -> float:
        """Return the tolerance for elements, as a share of their value or of 1."""
        if self.options.op == "sum" or self.options.workload not in ("allreduce", "reducescatter"):
            return 0.0
        known = patterns.ADASUM_ERROR if self.options.op == "adasum" else patterns.AVERAGE_ERROR
        return known.get(self.options.dtype, 0.0)

    def tiled(self, table: Sequence[float], count: int) -> torch.Tensor:
        """Return a tensor of ``count`` elements that repeats the table."""
        once = torch.tensor(table, dtype=torch.float64).to(self.dtype)
        return once.repeat(-(-count // len(table)))[:count].to(self.device)

    def tables(self, tensor: int = 0, tensors: int = 1) -> list[list[int]]:
        """Return every rank's table of one of ``tensors`` tensors."""
        labels = tensors * self.ranks
        return [patterns.table(tensor * self.ranks + r, labels, self.base) for r in range(self.ranks)]

    def reduced(self, tables: Sequence[Sequence[float]], count: int) -> list[float]:
        """Return the reduction of the ranks' tables."""
        if self.options.op == "adasum":
            return patterns.adasum(tables, count)
        if self.options.op == "average":
            whole = not self.dtype.is_floating_point
            return [int(x) if whole else x for x in patterns.average_tables(tables)]
        return patterns.sum_tables(tables)

    def allreduce(self) -> tuple[Tensors, Tensors]:
        every = [self.tables(number, self.options.tensors) for number in range(self.options.tensors)]
        own = [self.tiled(tables[self.rank], self.count) for tables in every]
        return own, [self.tiled(self.reduced(tables, self.count), self.count) for tables in every]

    def broadcast(self) -> tuple[Tensors, Tensors]:
        """Return this rank's initial tensor, and the one from rank 0."""
        tables = self.tables()
        return [self.tiled(tables[self.rank], self.count)], [self.tiled(tables[0], self.count)]

    def allgather(self) -> tuple[Tensors, Tensors]:
        """Return this rank's part, and all parts."""
        parts = [self.tiled(table, self.count) for table in self.tables()]
        return [parts[self.rank]], [torch.cat(parts)]

    def alltoall(self) -> tuple[Tensors, Tensors]:
        """Return this rank's parts for all ranks, and all ranks' parts for this one."""
        ranks = range(self.ranks)

        def part(source: int, target: int) -> torch.Tensor:
            label = source * self.ranks + target
            return self.tiled(patterns.table(label, self.ranks**2, self.base), self.count)

        own = torch.cat([part(self.rank, other) for other in ranks])
        return [own], [torch.cat([part(other, self.rank) for other in ranks])]

    def reducescatter(self) -> tuple[Tensors, Tensors]:
        """Return this rank's input, and its part of the reduced result."""
        tables, count = self.tables(), self.count * self.ranks
        start = self.count * self.rank
        reduced = self.tiled(self.reduced(tables, count), count)[start : start + self.count]
        return [self.tiled(tables[self.rank], count)], [reduced]


def allreduce(hvd: Any, options: argparse.Namespace) -> Callable[[Tensors, str], Tensors]:
    """Return the reduction: one call for each tensor, which Horovod may fuse, or one call for all."""
    op = {"sum": hvd.Sum, "average": hvd.Average, "adasum": hvd.Adasum}[options.op]
    if options.form == "grouped":
        whole = hvd.grouped_allreduce_ if options.in_place else hvd.grouped_allreduce
        return lambda tensors, name: whole(tensors, op=op, name=name)
    begin = hvd.allreduce_async_ if options.in_place else hvd.allreduce_async

    def call(tensors: Tensors, name: str) -> Tensors:
        numbered = enumerate(tensors)
        handles = [begin(tensor, op=op, name="{}.{}".format(name, number)) for number, tensor in numbered]
        return [hvd.synchronize(handle) for handle in handles]

    return call


def broadcast(hvd: Any, options: argparse.Namespace) -> Callable[[Tensors, str], Tensors]:
    whole = hvd.broadcast_ if options.in_place else hvd.broadcast
    return lambda tensors, name: [whole(tensors[0], 0, name=name)]


def reducescatter(hvd: Any, options: argparse.Namespace) -> Callable[[Tensors, str], Tensors]:
    op = {"sum": hvd.Sum, "average": hvd.Average}[options.op]
    return lambda tensors, name: [hvd.reducescatter(tensors[0], op=op, name=name)]


class Call(NamedTuple):
    """A collective: the end of its activities in Horovod's timeline, and whether ranks share the buffer."""

    shown: str
    shared: bool
    ready: Callable[[Any, argparse.Namespace], Callable[[Tensors, str], Tensors]]


CALLS = {
    "allreduce": Call("_ALLREDUCE", False, allreduce),
    "broadcast": Call("_BCAST", False, broadcast),
    "allgather": Call("_ALLGATHER", True, lambda hvd, _: lambda own, name: [hvd.allgather(*own, name=name)]),
    "alltoall": Call("_ALLTOALL", True, lambda hvd, _: lambda own, name: [hvd.alltoall(*own, name=name)]),
    "reducescatter": Call("_REDUCESCATTER", True, reducescatter),
}

if __name__ == "__main__":
    ranks_of.end(ranks_of.run(parse(), measure))
