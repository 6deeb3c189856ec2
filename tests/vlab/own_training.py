"""A training as a user brings it: Horovod's, or torch's own where hvlab measures DDP. It sums up ranks."""

import os
import sys
import time
from importlib import import_module
from pathlib import Path

import torch

STEPS, BATCH = 20, 32


def connected():
    """Return (rank, number of ranks, what sums a tensor up over them)."""
    if os.environ.get("HVLAB_DDP_BACKEND"):
        dist = import_module("torch.distributed")

        dist.init_process_group(os.environ["HVLAB_DDP_BACKEND"])
        return dist.get_rank(), dist.get_world_size(), dist.all_reduce
    hvd = import_module("horovod.torch")

    hvd.init()
    return hvd.rank(), hvd.size(), lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum)


rank, size, reduce = connected()
name, wish = (*sys.argv[1:], "")[:2]
if wish == "fail" and rank == size - 1:
    print("out of luck")
    sys.exit(3)
if wish == "hang":
    time.sleep(600)
started = time.time()
for _ in range(STEPS):
    ones = torch.ones(1000)
    reduce(ones)
    assert float(ones.sum()) == 1000 * size
if os.environ.get("HVLAB_DDP_BACKEND"):
    import_module("torch.distributed").destroy_process_group()
if rank == 0:
    print(f"name={name!r} in {Path.cwd().name}")
    print(f"images/sec: {STEPS * BATCH * size / (time.time() - started):.1f}")
