"""What can be trained: a model, its batches, and how good it has become. Needs Python 3.8+ and torch 1.5+."""

from __future__ import annotations

import argparse
import os
from typing import Any, Iterator

import numpy
import torch
from torch import nn

import models
import samples
from ranks import Alone

CLASSES = 1000
VOCABULARY = 1000
TEST_BATCH = 1000
# As in Horovod's own synthetic benchmark: what is learnt there does not matter.
SYNTHETIC_RATE = 0.01


class Task:
    """A training of ``epochs`` times ``steps`` steps; ``shares`` are the ranks' samples of each.

    ``rate`` is the learning rate of one rank's batch; where ``learns``, it is scaled with the global batch,
    and follows a schedule. Raises ValueError where a rank would have no sample.
    """

    model: nn.Module
    data: dict[str, Any] | None = None
    epochs = 1
    rate = SYNTHETIC_RATE
    momentum = 0.0
    learns = False

    def __init__(self, options: argparse.Namespace, world: Alone, device: str) -> None:
        self.options, self.world, self.device = options, world, device
        self.shares = samples.shares(options.batch, world.size, options.scaling)
        if not min(self.shares):
            raise ValueError("a batch of {} is too small for {} ranks".format(options.batch, world.size))
        self.steps: int = options.steps
        # Weights differ, so that ranks that were never given those of rank 0 are noticed.
        torch.manual_seed(options.seed + world.rank)
        # Sum of the numbers of all samples used, and of their squares.
        self.used = [0, 0]
        self.expected = [0, 0]

    @property
    def batch(self) -> int:
        """Return the samples of a step, all ranks together."""
        return sum(self.shares)

    @property
    def share(self) -> int:
        """Return this rank's samples of a step."""
        return self.shares[self.world.rank]

    def batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield this rank's inputs and targets, one pair a step."""
        raise NotImplementedError

    def accuracy(self) -> float | None:
        """Return the share of test samples classified correctly, in percent; None where there are none."""
        return None


class Repeated(Task):
    """The same random samples in every step."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield this rank's inputs and targets, one pair a step."""
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


class Digits(Task):
    """The labs' CNN on handwritten digits. Raises ValueError where there are too few for one step."""

    momentum = 0.9
    learns = True

    def __init__(self, options: argparse.Namespace, world: Alone, device: str) -> None:
        super().__init__(options, world, device)
        synthetic = options.data == "synthetic"
        digits = samples.make(options.seed) if synthetic else samples.load(options.data)
        train, test = len(digits.train_labels), len(digits.test_labels)
        self.data = {"name": os.path.basename(options.data), "train": train, "test": test}
        self.epochs, self.rate, self.steps = options.epochs, options.lr, train // self.batch
        if not self.steps:
            raise ValueError("{} training samples are less than the {} of a step".format(train, self.batch))
        images = pictures(digits.train_images)
        mean, deviation = images.mean(), images.std()
        self.images = ((images - mean) / deviation).to(device)
        self.labels = torch.from_numpy(digits.train_labels.astype(numpy.int64)).to(device)
        mine = slice(world.rank, None, world.size)
        self.test_images = ((pictures(digits.test_images[mine]) - mean) / deviation).to(device)
        self.test_labels = torch.from_numpy(digits.test_labels[mine].astype(numpy.int64)).to(device)
        self.model = models.Cnn(samples.CLASSES).to(device)

    def batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield this rank's inputs and targets, one pair a step; no sample twice in an epoch on any rank."""
        order = samples.order(len(self.labels), self.options.seed, epoch)
        note(self.expected, order[: self.steps * self.batch])
        for step in range(self.steps):
            numbers = order[samples.own(step, self.shares, self.world.rank)]
            note(self.used, numbers)
            index = torch.from_numpy(numbers).to(self.device)
            yield self.images[index], self.labels[index]

    def accuracy(self) -> float | None:
        """Return the share of test samples classified correctly, in percent; None where there are none."""
        right = 0
        self.model.eval()
        with torch.no_grad():
            for images, labels in zip(self.test_images.split(TEST_BATCH), self.test_labels.split(TEST_BATCH)):
                right += int((self.model(images).argmax(dim=1) == labels).sum())
        self.model.train()
        correct, total = self.world.total([right, len(self.test_labels)], "accuracy")
        return 100 * correct / total if total else None


def note(sums: list[int], numbers: numpy.ndarray) -> None:
    """Add samples' numbers to the sum of numbers and to that of their squares."""
    sums[0] += int(numbers.sum())
    sums[1] += int((numbers.astype(numpy.int64) ** 2).sum())


def pictures(images: numpy.ndarray) -> torch.Tensor:
    """Return images (N, 1, 28, 28) of any images (N, rows, columns)."""
    values = torch.from_numpy(images.astype(numpy.float32)).unsqueeze(1)
    if values.shape[-2:] == (samples.SIDE, samples.SIDE):
        return values
    size = (samples.SIDE, samples.SIDE)
    return nn.functional.interpolate(values, size=size, mode="bilinear", align_corners=False)


TASKS: dict[str, type[Task]] = {"mnist": Digits, "synthetic": Images, "rnn": Sequences}
