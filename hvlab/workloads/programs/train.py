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
    """Return the options."""
    parser = ranks_of.parser(__doc__)
    parser.add_argument("--data", default="synthetic", help="synthetic, or a folder of four IDX files")
    parser.add_argument("--model", choices=sorted(models.IMAGE_MODELS), default="resnet50")
    whole = {"image": 224, "hidden": 256, "layers": 2, "length": 64, "batch": 64, "epochs": 2, "steps": 30}
    for name, default in whole.items():
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--lr", type=float, default=0.05, help="for one rank's batch")
    parser.add_argument("--lr-scaling", choices=("linear", "none"), default="linear")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--compression", choices=exchanges.NAMES, default="none")
    parser.add_argument("--scaling", choices=("weak", "strong"), default="weak")
    parser.add_argument("--framework", choices=("torch",), default="torch")
    options = parser.parse_args(argv)
    if options.workload not in tasks.TASKS:
        parser.error("no training: {}".format(options.workload))
    if options.serial and options.compression != "none":
        parser.error("one process alone sends no gradients to compress")
    return options


def measure(options: argparse.Namespace, world: Alone, result: dict[str, Any]) -> None:
    """Train, check, and tell everything about it."""
    device, checks = result["device"], result["checks"]
    task = training.ready(lambda: tasks.TASKS[options.workload](options, world, device), world, checks)
    exchange = training.ready(lambda: exchanges.create(options.compression, world), world, checks)
    if checks:
        return
    run = Run(task, exchange)
    run.train()
    result.update(run.results())
    checks += run.checks()
    hosts = [host for _, _, host, _ in result["world"]["placement"]]
    result["compute"] = {"by_host_s": training.compute_alone(by_itself(task), world, device, hosts)}
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

    def __init__(self, task: tasks.Task, exchange: exchanges.Nothing) -> None:
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
        """Make one step, to its end, and return the loss."""
        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(inputs), targets)
        (loss * self.weight).backward()
        self.optimizer.step()
        ranks_of.wait(self.task.device)
        return float(loss.detach())

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def weights(self) -> Iterable[bytes]:
        """Return all weights that are trained."""
        return (weight.detach().cpu().numpy().tobytes() for weight in self.task.model.parameters())


def first(task: tasks.Task) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs and targets of a first step."""
    return next(iter(task.batches(0)))


def by_itself(task: tasks.Task) -> Callable[[], Any]:
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
