"""Train a model with torch on all ranks, time its steps, and check that it was one training.

Runs as every rank under any launcher, or alone with --serial and then without Horovod; rank 0 writes one JSON
file, nothing is printed. Ranks begin with rank 0's weights and average their gradients in every step. Compute
alone is the same without the exchange, measured after the training by all ranks at once. Bytes sent are those
handed to Horovod, or with --ddp to torch.distributed, by one rank in one step. Needs Python 3.8+.
"""

from __future__ import annotations

import argparse
import copy
import sys
from typing import Any, Callable, Iterable, Sequence

import torch
from torch.nn.functional import cross_entropy

import exchange as exchanges
import models
import tasks
import training
import world as ranks_of
from ranks import Alone

PROOF_NUMBERS = 2**18


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = training.parser(__doc__, exchanges.NAMES, "torch")
    parser.add_argument("--model", choices=sorted(models.IMAGE_MODELS), default="resnet50")
    for name, default in {"image": 224, "hidden": 256, "layers": 2, "length": 64, "steps": 30}.items():
        parser.add_argument("--" + name, type=int, default=default)
    return training.checked(parser, tasks.TASKS, argv)


def measure(options: argparse.Namespace, world: Alone, result: dict[str, Any]) -> None:
    device, checks = result["device"], result["checks"]
    task = training.ready(lambda: tasks.TASKS[options.workload](options, world, device), world, checks)
    exchange = training.ready(lambda: exchanges.create(options.compression, world), world, checks)
    if checks:
        return
    run = Run(task, exchange)
    run.train()
    result.update(run.results())
    checks += run.checks()
    result["compute"] = training.compute_alone(by_itself(task), world, result)
    sizes = [p.numel() for p in task.model.parameters() if p.requires_grad]
    result["sent_bytes"] = exchange.sent(sum(sizes), len(sizes))
    gradient = torch.full((min(max(sizes), PROOF_NUMBERS),), 1e-3, device=device)
    result["proof"] = ranks_of.prove(
        options.output, world, lambda name: exchange.once(gradient, name), exchange.shown
    )
    result["model"] = {
        "name": options.model if options.workload == "synthetic" else type(task.model).__name__.lower(),
        "parameters": sum(sizes),
        "gradient_bytes": models.gradient_bytes(task.model),
        "flops_per_sample": None if world.rank else models.flops_per_sample(task.model, *first(task)),
    }


class Run(training.Run):
    """A training with torch."""

    def __init__(self, task: Any, exchange: exchanges.Nothing) -> None:
        super().__init__(task)
        base = torch.optim.SGD(task.model.parameters(), lr=task.rate, momentum=task.momentum)
        if self.world.hvd:
            self.world.hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
            # Not the optimizer's state: all ranks begin with the same, and Horovod would unpickle rank 0's.
        self.optimizer = exchange.wrap(base, task.model)
        self.model = exchange.forward(task.model)
        # So that shares of different sizes make the average over all samples.
        self.weight = task.share * task.world.size / task.batch

    def step(self, inputs: Any, targets: Any) -> float:
        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(inputs), targets)
        (loss * self.weight).backward()
        self.optimizer.step()
        ranks_of.wait(self.task.device)
        return float(loss.detach())

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def weights(self) -> Iterable[bytes]:
        return (weight.detach().cpu().numpy().tobytes() for weight in self.task.model.parameters())


def first(task: Any) -> Any:
    return next(iter(task.batches(0)))


def by_itself(task: Any) -> Callable[[], Any]:
    """Return a step that changes nothing of the training and sends nothing."""
    model = copy.deepcopy(task.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=task.momentum)
    inputs, targets = first(task)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    sys.exit(ranks_of.run(parse(), measure))
