"""Images with their labels: read from IDX files as MNIST has them, or synthetic; and which rank gets which.

Needs Python 3.8+ and numpy.
"""

from __future__ import annotations

import gzip
import os
from typing import NamedTuple

import numpy

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
    """Return an IDX file of unsigned bytes, plain or with .gz at its name's end.

    Raises ValueError that names the file where it is no such file, or cut off.
    """
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
    """Return the samples of a folder. Raises ValueError where files do not belong together."""
    folder = os.path.expanduser(folder)
    samples = Samples(*(read(os.path.join(folder, name)) for name in FILES))
    for images, labels in (samples[:2], samples[2:]):
        if (images.ndim, labels.ndim) != (3, 1) or len(images) != len(labels):
            raise ValueError("{}: images {}, labels {}".format(folder, images.shape, labels.shape))
    return samples


def make(seed: int) -> Samples:
    """Return synthetic samples: of each class one image of random squares, under noise."""
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


def own(step: int, among: list[int], rank: int) -> slice:
    """Return where in the order a rank's samples of a step stand."""
    start = step * sum(among) + sum(among[:rank])
    return slice(start, start + among[rank])
