"""What can be trained: a model, its batches, and how good it has become. Needs Python 3.8+ and torch 1.5+."""

from __future__ import annotations

import argparse
from typing import Iterator, Tuple

import numpy
import torch
from torch import nn

import models
import samples
from ranks import Alone

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
    """Return images (N, 1, 28, 28) of any images (N, rows, columns)."""
    values = torch.from_numpy(images.astype(numpy.float32)).unsqueeze(1)
    if values.shape[-2:] == (samples.SIDE, samples.SIDE):
        return values
    size = (samples.SIDE, samples.SIDE)
    return nn.functional.interpolate(values, size=size, mode="bilinear", align_corners=False)


TASKS = {"mnist": Digits, "synthetic": Images, "rnn": Sequences}
