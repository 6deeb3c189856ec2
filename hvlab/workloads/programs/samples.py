"""Images with their labels: from IDX files as MNIST has them, or synthetic; and each rank's share.

The needs of a training, whatever its framework. Needs Python 3.8+ and numpy.
"""

from __future__ import annotations

import argparse
import gzip
import os
from typing import Any, Callable, Iterator, NamedTuple

import numpy

from ranks import Alone

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# How an IDX file of unsigned bytes begins; the number of dimensions follows.
UNSIGNED_BYTES = b"\0\0\x08"
CLASSES = 10
SIDE = 28
TRAIN_COUNT, TEST_COUNT = 6000, 1000
NOISE = 60.0


class Samples(NamedTuple):
    """Images (N, rows, columns) and labels (N,), unsigned bytes."""

    train_images: numpy.ndarray
    train_labels: numpy.ndarray
    test_images: numpy.ndarray
    test_labels: numpy.ndarray


def read(path: str) -> numpy.ndarray:
    """Return an IDX file of unsigned bytes, plain or .gz. Raises ValueError that names a wrong file."""
    compressed = not os.path.exists(path)
    with gzip.open(path + ".gz") if compressed else open(path, "rb") as file:
        content = file.read()
    if content[:3] != UNSIGNED_BYTES or len(content) == len(UNSIGNED_BYTES):
        raise ValueError("{} is no IDX file of unsigned bytes".format(path))
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError("{} ends within its header".format(path))
    shape = tuple(int(length) for length in numpy.frombuffer(content[4:start], ">u4"))
    values = numpy.frombuffer(content, numpy.uint8, offset=start)
    if values.size != int(numpy.prod(shape)):
        raise ValueError("{}: {} values, its header says {}".format(path, values.size, shape))
    return values.reshape(shape)


def load(folder: str) -> Samples:
    """Return the samples of a folder. Raises ValueError if files do not belong together."""
    folder = os.path.expanduser(folder)
    samples = Samples(*(read(os.path.join(folder, name)) for name in FILES))
    for images, labels in (samples[:2], samples[2:]):
        if (images.ndim, labels.ndim) != (3, 1) or len(images) != len(labels):
            raise ValueError("{}: images {}, labels {}".format(folder, images.shape, labels.shape))
    return samples


def make(seed: int) -> Samples:
    """Return synthetic samples: for each class one image of random squares, under noise."""
    random = numpy.random.RandomState(seed)
    squares = random.randint(0, 256, (CLASSES, SIDE // 7, SIDE // 7))
    pictures = squares.repeat(7, axis=1).repeat(7, axis=2)
    labels = random.randint(0, CLASSES, TRAIN_COUNT + TEST_COUNT).astype(numpy.uint8)
    noisy = pictures[labels] + random.normal(0, NOISE, (len(labels), SIDE, SIDE))
    images = noisy.clip(0, 255).astype(numpy.uint8)
    return Samples(images[:TRAIN_COUNT], labels[:TRAIN_COUNT], images[TRAIN_COUNT:], labels[TRAIN_COUNT:])


def shares(batch: int, ranks: int, scaling: str) -> list[int]:
    """Return each rank's samples of a step; strong scaling shares the batch among the ranks."""
    if scaling == "weak":
        return [batch] * ranks
    return [batch // ranks + (rank < batch % ranks) for rank in range(ranks)]


def order(count: int, seed: int, epoch: int) -> numpy.ndarray:
    """Return the order of the samples in an epoch, the same on every rank."""
    permutation: numpy.ndarray = numpy.random.RandomState([seed, epoch]).permutation(count)
    return permutation


def place_of_rank(step: int, among: list[int], rank: int) -> slice:
    """Return the place of a rank's samples of a step in the order."""
    start = step * sum(among) + sum(among[:rank])
    return slice(start, start + among[rank])


class Task:
    """A training of ``epochs`` times ``steps`` steps; ``shares`` are the ranks' samples of each.

    ``rate`` is the learning rate of one rank's batch; if it ``learns``, the rate is scaled with the global
    batch, and follows a schedule. ``seed`` is the framework's. Raises ValueError if a rank would have no
    sample.
    """

    model: Any
    data: dict[str, Any] | None = None
    epochs = 1
    # As in Horovod's own synthetic benchmark: what is learnt there does not matter.
    rate = 0.01
    momentum = 0.0
    learns = False

    def __init__(self, options: argparse.Namespace, world: Alone, seed: Callable[[int], Any]) -> None:
        self.options, self.world = options, world
        self.shares = shares(options.batch, world.size, options.scaling)
        if not min(self.shares):
            raise ValueError("a batch of {} is too small for {} ranks".format(options.batch, world.size))
        self.batch, self.share = sum(self.shares), self.shares[world.rank]
        # Weights differ, so that ranks that were never given those of rank 0 are noticed.
        seed(options.seed + world.rank)
        # Sum of the numbers of all samples used, and of their squares.
        self.used = [0, 0]
        self.expected = [0, 0]

    def accuracy(self) -> float | None:
        """Return the share of test samples classified correctly, in percent, if there are any."""
        return None


class Digits(Task):
    """Handwritten digits for the labs' CNN, this rank's part. Raises ValueError if too few for one step."""

    momentum = 0.9
    learns = True

    def __init__(self, options: argparse.Namespace, world: Alone, seed: Callable[[int], Any]) -> None:
        super().__init__(options, world, seed)
        digits = make(options.seed) if options.data == "synthetic" else load(options.data)
        train, test = len(digits.train_labels), len(digits.test_labels)
        self.data = {"name": os.path.basename(options.data), "train": train, "test": test}
        self.epochs, self.rate, self.steps = options.epochs, options.lr, train // self.batch
        if not self.steps:
            raise ValueError("{} training samples are less than the {} of a step".format(train, self.batch))
        mine = slice(world.rank, None, world.size)
        self.images: Any = digits.train_images
        self.labels: Any = digits.train_labels.astype(numpy.int64)
        self.test_images: Any = digits.test_images[mine]
        self.test_labels: Any = digits.test_labels[mine].astype(numpy.int64)

    def numbers(self, epoch: int) -> Iterator[numpy.ndarray]:
        """Yield the numbers of this rank's samples of each step; none twice in an epoch on any rank."""
        every = order(len(self.labels), self.options.seed, epoch)
        note(self.expected, every[: self.steps * self.batch])
        for step in range(self.steps):
            numbers = every[place_of_rank(step, self.shares, self.world.rank)]
            note(self.used, numbers)
            yield numbers

    def accuracy(self) -> float | None:
        correct, total = self.world.total([self.count_right(), len(self.test_labels)], "accuracy")
        return 100 * correct / total if total else None

    def count_right(self) -> int:
        """Return the number of this rank's test samples classified correctly."""
        raise NotImplementedError


def note(sums: list[int], numbers: numpy.ndarray) -> None:
    sums[0] += int(numbers.sum())
    sums[1] += int((numbers.astype(numpy.int64) ** 2).sum())
