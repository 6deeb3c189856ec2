"""The labs' CNN on handwritten digits, and its step as a graph, with TensorFlow's tensors.

The network is that of models.py, and begins as torch begins it; the samples, and who gets which, are those of
samples.py. Needs Python 3.9+ and TensorFlow 2.
"""

from __future__ import annotations

import argparse
import math
import os
from typing import Any, Callable, Iterator

import numpy

import samples
from ranks import Alone
from world_tensorflow import tf

TEST_BATCH = 1000


def network() -> Any:
    """Return the labs' CNN: it takes images (N, 28, 28, 1), and gives the classes' scores (N, 10)."""
    layers = tf.keras.layers

    def begun(inputs: int) -> dict[str, Any]:
        """Return torch's first weights of a layer: evenly within 1 / sqrt(inputs) of zero."""
        even = tf.keras.initializers.RandomUniform
        limit = inputs**-0.5
        return {"kernel_initializer": even(-limit, limit), "bias_initializer": even(-limit, limit)}

    return tf.keras.Sequential(
        [
            layers.Input((samples.SIDE, samples.SIDE, 1)),
            layers.Conv2D(10, 5, **begun(25)),
            layers.MaxPool2D(2),
            layers.ReLU(),
            layers.Conv2D(20, 5, **begun(250)),
            layers.SpatialDropout2D(0.5),
            layers.MaxPool2D(2),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(50, activation="relu", **begun(320)),
            layers.Dropout(0.5),
            layers.Dense(samples.CLASSES, **begun(50)),
        ]
    )


def step_of(model: Any, optimizer: Any, size: int, average: Callable[[Any], Any], weight: float = 1.0) -> Any:
    """Return a step over ``size`` samples as a graph, which takes images and labels, and gives the mean loss.

    ``average`` makes of the gradient tape one that averages over the ranks; gradients are those of the loss
    times ``weight``. The graph is built here, and not run.
    """
    variables = model.trainable_variables
    lossy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(variables)

    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = lossy(labels, model(images, training=True))
            weighted = loss * weight
        gradients = average(tape).gradient(weighted, variables)
        optimizer.apply_gradients(zip(gradients, variables))
        return loss

    images = tf.TensorSpec((size, samples.SIDE, samples.SIDE, 1), tf.float32)
    return tf.function(step).get_concrete_function(images, tf.TensorSpec((size,), tf.int64))


def alone(tape: Any) -> Any:
    """Return the tape as it is: gradients are this rank's own."""
    return tape


def flops_per_sample(model: Any) -> int:
    """Return the floating point operations of a sample's way there and back, a multiply-add being two.

    Counted are the products with weights, as torch counts them: one way there, and back one for the weights
    and one for the inputs, which the first layer's nobody needs.
    """
    layers = [layer for layer in model.layers if layer.trainable_weights]
    there: list[int] = [
        2 * int(tf.size(layer.kernel)) * math.prod(layer.output.shape[1:-1]) for layer in layers
    ]
    return 3 * sum(there) - there[0]


class Digits:
    """Images and labels, and this rank's part of them. Raises ValueError where they do not fill one step."""

    learns = True

    def __init__(self, options: argparse.Namespace, world: Alone) -> None:
        self.options, self.world = options, world
        self.shares = samples.shares(options.batch, world.size, options.scaling)
        self.batch, self.share = sum(self.shares), self.shares[world.rank]
        synthetic = options.data == "synthetic"
        digits = samples.make(options.seed) if synthetic else samples.load(options.data)
        train, test = len(digits.train_labels), len(digits.test_labels)
        self.data = {"name": os.path.basename(options.data), "train": train, "test": test}
        self.epochs, self.rate, self.steps = options.epochs, options.lr, train // self.batch
        if not self.steps:
            raise ValueError("{} training samples are less than the {} of a step".format(train, self.batch))
        images = pictures(digits.train_images)
        mean, deviation = images.mean(), images.std(ddof=1)
        self.images, self.labels = (images - mean) / deviation, digits.train_labels.astype(numpy.int64)
        mine = slice(world.rank, None, world.size)
        self.test_images = (pictures(digits.test_images[mine]) - mean) / deviation
        self.test_labels = digits.test_labels[mine]
        # Weights differ, so that ranks that were never given those of rank 0 are noticed.
        tf.keras.utils.set_random_seed(options.seed + world.rank)
        self.model = network()
        # Sum of the numbers of all samples used, and of their squares.
        self.used = [0, 0]
        self.expected = [0, 0]

    def batches(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        """Yield this rank's inputs and targets, one pair a step; no sample twice in an epoch on any rank."""
        order = samples.order(len(self.labels), self.options.seed, epoch)
        note(self.expected, order[: self.steps * self.batch])
        for step in range(self.steps):
            numbers = order[samples.own(step, self.shares, self.world.rank)]
            note(self.used, numbers)
            yield tf.constant(self.images[numbers]), tf.constant(self.labels[numbers])

    def accuracy(self) -> float | None:
        """Return the share of test samples classified correctly, in percent; None where there are none."""
        right = 0
        for start in range(0, len(self.test_labels), TEST_BATCH):
            part = slice(start, start + TEST_BATCH)
            scores = self.model(tf.constant(self.test_images[part]), training=False).numpy()
            right += int((scores.argmax(axis=1) == self.test_labels[part]).sum())
        correct, total = self.world.total([right, len(self.test_labels)], "accuracy")
        return 100 * correct / total if total else None


def note(totals: list[int], numbers: numpy.ndarray) -> None:
    """Add samples' numbers to the sum of numbers and to that of their squares."""
    totals[0] += int(numbers.sum())
    totals[1] += int((numbers.astype(numpy.int64) ** 2).sum())


def pictures(images: numpy.ndarray) -> numpy.ndarray:
    """Return images (N, 28, 28, 1) of any images (N, rows, columns)."""
    values = images.astype(numpy.float32)[..., numpy.newaxis]
    if values.shape[1:3] == (samples.SIDE, samples.SIDE):
        return values
    resized: numpy.ndarray = tf.image.resize(values, (samples.SIDE, samples.SIDE)).numpy()
    return resized
