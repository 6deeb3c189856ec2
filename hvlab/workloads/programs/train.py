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
from typing import Any, Callable, Iterable, Iterator, Sequence, Tuple

import numpy
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import exchange as exchanges
import models
import samples
import training
import world as ranks_of
from ranks import Alone

PROOF_NUMBERS = 2**18


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = training.parser(__doc__, exchanges.NAMES, "torch")
    parser.add_argument("--model", choices=sorted(models.IMAGE_MODELS), default="resnet50")
    for name, default in {"image": 224, "hidden": 256, "layers": 2, "length": 64, "steps": 30}.items():
        parser.add_argument("--" + name, type=int, default=default)
    return training.checked(parser, TASKS, argv)


def measure(options: argparse.Namespace, world: Alone, result: dict[str, Any]) -> None:
    device, checks = result["device"], result["checks"]
    task = training.ready(lambda: TASKS[options.workload](options, world, device), world, checks)
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
    """Return a step that leaves the training unchanged and sends nothing."""
    model = copy.deepcopy(task.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=task.momentum)
    inputs, targets = first(task)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


CLASSES = 1000
VOCABULARY = 1000
TEST_BATCH = 1000
Batches = Iterator[Tuple[torch.Tensor, torch.Tensor]]


class Repeated(samples.Task):
    """The same random samples in every step."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def __init__(self, options: argparse.Namespace, world: Alone, device: str) -> None:
        super().__init__(options, world, torch.manual_seed)
        self.steps: int = options.steps
        self.device = device

    def batches(self, epoch: int) -> Batches:
        for _ in range(self.steps):
            yield self.inputs, self.targets


class Images(Repeated):
    """A large network on random images."""

    def __init__(self, options: argparse.Namespace, world: Alone, device: str) -> None:
        super().__init__(options, world, device)
        self.model = models.IMAGE_MODELS[options.model](options.image, CLASSES).to(device)
        self.inputs = torch.randn(self.share, 3, options.image, options.image, device=device)
        self.targets = torch.randint(CLASSES, (self.share,), device=device)


class Sequences(Repeated):
    """A language model on random tokens."""

    def __init__(self, options: argparse.Namespace, world: Alone, device: str) -> None:
        super().__init__(options, world, device)
        self.model = models.Lstm(VOCABULARY, options.hidden, options.layers).to(device)
        tokens = torch.randint(VOCABULARY, (self.share, options.length + 1), device=device)
        self.inputs, self.targets = tokens[:, :-1], tokens[:, 1:]


class Digits(samples.Digits):
    """The labs' CNN on handwritten digits."""

    def __init__(self, options: argparse.Namespace, world: Alone, device: str) -> None:
        super().__init__(options, world, torch.manual_seed)
        self.device = device
        images = pictures(self.images)
        mean, deviation = images.mean(), images.std()
        self.images = ((images - mean) / deviation).to(device)
        self.labels = torch.from_numpy(self.labels).to(device)
        self.test_images = ((pictures(self.test_images) - mean) / deviation).to(device)
        self.test_labels = torch.from_numpy(self.test_labels).to(device)
        self.model = models.Cnn(samples.CLASSES).to(device)

    def batches(self, epoch: int) -> Batches:
        for numbers in self.numbers(epoch):
            index = torch.from_numpy(numbers).to(self.device)
            yield self.images[index], self.labels[index]

    def right(self) -> int:
        right = 0
        self.model.eval()
        with torch.no_grad():
            for images, labels in zip(self.test_images.split(TEST_BATCH), self.test_labels.split(TEST_BATCH)):
                right += int((self.model(images).argmax(dim=1) == labels).sum())
        self.model.train()
        return right


def pictures(images: numpy.ndarray) -> torch.Tensor:
    """Return images (N, 1, 28, 28) from images (N, rows, columns)."""
    values = torch.from_numpy(images.astype(numpy.float32)).unsqueeze(1)
    if values.shape[-2:] == (samples.SIDE, samples.SIDE):
        return values
    size = (samples.SIDE, samples.SIDE)
    return nn.functional.interpolate(values, size=size, mode="bilinear", align_corners=False)


TASKS = {"mnist": Digits, "synthetic": Images, "rnn": Sequences}


if __name__ == "__main__":
    sys.exit(ranks_of.run(parse(), measure))
