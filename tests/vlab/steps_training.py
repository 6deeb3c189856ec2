"""A training as a user brings it, with a fault on request: `loader`, `host`, or `slow` on the last rank."""

import os
import sys
import time
from importlib import import_module

import torch
from torch.utils.data import DataLoader, Dataset

STEPS = 40
fault = (*sys.argv[1:], "")[0]


class Samples(Dataset):
    """Numbers that take a while to load where the loader is slow."""

    def __len__(self):
        return 64 * STEPS

    def __getitem__(self, index):
        if fault == "loader" and index % 64 == 0:
            time.sleep(0.3)
        return torch.rand(256), index % 10


model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if os.environ.get("HVLAB_DDP_BACKEND"):
    dist = import_module("torch.distributed")
    dist.init_process_group(os.environ["HVLAB_DDP_BACKEND"])
    is_last = dist.get_rank() == dist.get_world_size() - 1
    model = torch.nn.parallel.DistributedDataParallel(model)
else:
    hvd = import_module("horovod.torch")
    hvd.init()
    is_last = hvd.rank() == hvd.size() - 1
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for samples, labels in DataLoader(Samples(), batch_size=64):
    if fault == "host":
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
    optimizer.zero_grad()
    for _ in range(20 if fault == "slow" and is_last else 1):
        loss = torch.nn.functional.cross_entropy(model(samples), labels)
    loss.backward()
    optimizer.step()
