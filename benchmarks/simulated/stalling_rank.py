"""A rank of benchmarks/bench_stalls.py: tiny steps, and at rank 1 a fault after a few of them.

stalling_rank.py ddp|gloo|mpi FAULT FOLDER
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

FIRST = 3


def world(stack: str) -> tuple[int, Callable[[int, str], object]]:
    """Return this rank, and a function that sums a tensor over all."""
    import torch  # noqa: PLC0415 - after the stack is known

    if stack == "ddp":
        import torch.distributed as dist  # noqa: PLC0415

        for name in ("RANK", "SIZE"):
            os.environ[name.replace("SIZE", "WORLD_SIZE")] = os.environ[f"OMPI_COMM_WORLD_{name}"]
        dist.init_process_group("gloo")
        return dist.get_rank(), lambda size, _: dist.all_reduce(torch.ones(size))
    import horovod.torch as hvd  # noqa: PLC0415

    # Ranks that look every millisecond take a core each.
    os.environ["HOROVOD_CYCLE_TIME"] = "20"
    hvd.init()
    return hvd.rank(), lambda size, name: hvd.allreduce(torch.ones(size), name=name)


class Waiting:
    """Samples of which one never comes."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, number: int) -> float:
        if number == self.at:
            # A pipe into which nobody writes.
            os.read(os.pipe()[0], 1)
        return float(number)


def checkpoint(folder: str) -> None:
    """Write a checkpoint, again until there is space."""
    while True:
        try:
            Path(folder, "full", "checkpoint").write_bytes(bytes(2**21))
        except OSError:
            time.sleep(0.5)
        else:
            return


def grow(folder: str) -> None:
    """Take memory until the kernel ends it, once there is a limit."""
    while not Path(folder, "planted").exists():
        time.sleep(0.05)
    hoard = []
    while True:
        hoard.append(b"x" * 2**22)


def work(rank: int, step: int, *, healthy: bool) -> None:
    """Be slow in a healthy way: one rank computes, waits or reads longest."""
    if not healthy or rank != step % 3:
        return
    end = time.monotonic() + random.uniform(1, 3)  # noqa: S311
    if step % 2:
        time.sleep(end - time.monotonic())
    while time.monotonic() < end:
        sum(range(10_000))


def train(stack: str, fault: str, folder: str) -> None:
    """Do steps for ever."""
    rank, total = world(stack)
    odd = rank == 1
    loader = None
    if fault == "loader":
        from torch.utils.data import DataLoader  # noqa: PLC0415

        loader = iter(DataLoader(Waiting(FIRST if odd else -1), batch_size=1, num_workers=1))
    for step in range(10_000):
        if loader:
            next(loader)
        work(rank, step, healthy=fault == "healthy")
        if fault == "full" and odd and step == FIRST:
            checkpoint(folder)
        if fault == "memory" and odd and step == FIRST:
            grow(folder)
        if not (fault == "skip" and odd and step == FIRST):
            total(8 if fault in ("shapes", "detail") and odd and step == FIRST else 4, "gradient")
        total(2, "loss")
        if step == FIRST - 1:
            Path(folder, f"ready-{rank}").touch()
        time.sleep(0.05)


if __name__ == "__main__":
    train(*sys.argv[1:4])
