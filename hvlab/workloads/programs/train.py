"""Train a model with torch on all ranks, time its steps, and check that it was one training.

Runs as every rank under any launcher, or alone with --serial and then without Horovod; rank 0 writes one JSON
file, nothing is printed. Ranks begin with rank 0's weights and average their gradients in every step. Compute
alone is the same without the exchange, measured after the training by all ranks at once. Bytes sent are those
handed to Horovod, or with --ddp to torch.distributed, by one rank in one step. With --sharded each rank keeps
its part of the weights alone (FSDP2), and collectives of one step are counted. Needs Python 3.8+.
"""

from __future__ import annotations

import argparse
import copy
import resource
from functools import partial
from typing import Any, Callable, Iterable, Iterator, Sequence, Tuple

import numpy
import torch
from torch import nn

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
    for name, default in {
        "image": 224,
        "hidden": 256,
        "layers": 2,
        "length": 64,
        "heads": 4,
        "vocabulary": 1000,
        "steps": 30,
    }.items():
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    return training.check_options(parser, TASKS, argv)


def measure(options: argparse.Namespace, world: Alone, result: dict[str, Any]) -> None:
    device, checks = result["device"], result["checks"]
    before = peak_memory(device)
    make = partial(TASKS[options.workload], options, world, device)
    task = training.make_ready(make, world, checks)
    exchange = training.make_ready(lambda: exchanges.create(options.compression, world), world, checks)
    if checks:
        return
    run = Run(task, exchange)
    run.train()
    result.update(run.results())
    checks += run.checks()
    result["memory_bytes"] = max(world.gather(peak_memory(device) - before, "memory"))
    if device != "cpu":
        result["gpu"] = torch.cuda.get_device_name()
    if exchange.shards:
        # A sharded model cannot be copied, and this one has all its weights.
        task = make()
    result["compute"] = training.compute_alone(step_alone(task), world, result)
    sizes = [p.numel() for p in task.model.parameters() if p.requires_grad]
    result["sent_bytes"] = exchange.count_bytes(sum(sizes), len(sizes))
    gradient = torch.full((min(max(sizes), PROOF_NUMBERS),), 1e-3, device=device)
    once = run.step_unused if exchange.shards else partial(exchange.send_once, gradient)
    result["proof"] = ranks_of.prove(options.output, world, once, exchange.shown)
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
        if self.world.hvd:
            self.world.hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
            # Not the optimizer's state: all ranks begin with the same, and Horovod would unpickle rank 0's.
        self.model = exchange.forward(task.model)
        base = torch.optim.SGD(task.model.parameters(), lr=task.rate, momentum=task.momentum)
        self.optimizer = exchange.wrap(base, task.model)
        # So that shares of different sizes make the average over all samples.
        self.weight = task.share * task.world.size / task.batch

    def step(self, inputs: Any, targets: Any) -> float:
        self.optimizer.zero_grad()
        loss = self.task.loss(self.model, inputs, targets)
        (loss * self.weight).backward()
        self.optimizer.step()
        ranks_of.wait(self.task.device)
        return float(loss.detach())

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def weights(self) -> Iterable[bytes]:
        whole = (
            getattr(weight, "full_tensor", lambda w=weight: w)() for weight in self.task.model.parameters()
        )
        return (weight.detach().cpu().numpy().tobytes() for weight in whole)

    def step_unused(self, name: str) -> None:
        """Make a step, but for the update: the proof of a sharded model, in place of a single exchange."""
        self.task.loss(self.model, *first(self.task)).backward()
        self.optimizer.zero_grad()


def first(task: Any) -> Any:
    return next(iter(task.batches(0)))


def step_alone(task: Any) -> Callable[[], Any]:
    """Return a step that leaves the training unchanged and sends nothing."""
    model = copy.deepcopy(task.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=task.momentum)
    inputs, targets = first(task)

    def step() -> None:
        optimizer.zero_grad()
        task.loss(model, inputs, targets).backward()
        optimizer.step()

    return step


def peak_memory(device: str) -> int:
    """Return the most bytes that this rank has had in use so far: of its GPU, else of its process."""
    if device != "cpu":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


CLASSES = 1000
VOCABULARY = 1000
TEST_BATCH = 1000
Batches = Iterator[Tuple[torch.Tensor, torch.Tensor]]


class Task(samples.Task):
    """A training with torch; forward passes may be in another precision than the weights."""

    def loss(self, model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        lower = self.options.precision == "bfloat16"
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=lower):
            return models.loss(model(inputs), targets)


class Repeated(Task):
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
    """A language model on random tokens: an LSTM, or a GPT."""

    vocabulary = VOCABULARY

    def __init__(self, options: argparse.Namespace, world: Alone, device: str) -> None:
        super().__init__(options, world, device)
        self.model = self.language(options).to(device)
        tokens = torch.randint(self.vocabulary, (self.share, options.length + 1), device=device)
        self.inputs, self.targets = tokens[:, :-1], tokens[:, 1:]

    def language(self, options: argparse.Namespace) -> nn.Module:
        return models.Lstm(self.vocabulary, options.hidden, options.layers)


class Lm(Sequences):
    """A GPT; by its defaults on GPUs it is the smallest GPT-2."""

    def language(self, options: argparse.Namespace) -> nn.Module:
        self.vocabulary = options.vocabulary
        return models.Gpt(options.vocabulary, options.hidden, options.layers, options.heads, options.length)


class Digits(samples.Digits, Task):
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

    def count_right(self) -> int:
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


TASKS = {"mnist": Digits, "synthetic": Images, "rnn": Sequences, "lm": Lm}


if __name__ == "__main__":
    ranks_of.end(ranks_of.run(parse(), measure))
