"""Train the labs' CNN on digits with TensorFlow, as train.py does with torch.

The same network and first weights, samples, schedule and checks, and the same file of results. Ranks begin
with rank 0's weights. A step is one graph, made before the first, in which Horovod's gradient tape averages
the gradients; compute alone is the same without the tape. Runs as every rank under any launcher, or alone
with --serial and then without Horovod; rank 0 writes one JSON file, nothing is printed. Needs Python 3.9+ and
TensorFlow 2.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, Callable, Iterable, Iterator, Sequence

import numpy

import samples
import training
import world as ranks_of
import world_tensorflow as connected
from ranks import Alone
from world_tensorflow import tf

TEST_BATCH = 1000


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = training.parser(__doc__, ("none", "fp16"), "tensorflow")
    options = training.check_options(parser, ("mnist",), argv)
    if options.ddp:
        parser.error("DDP is torch's own")
    return options


def measure(options: argparse.Namespace, world: Alone, result: dict[str, Any]) -> None:
    task = training.make_ready(lambda: Digits(options, world), world, result["checks"])
    if result["checks"]:
        return
    run = Run(task)
    run.train()
    result.update(run.results())
    result["checks"] += run.checks()
    # A step ends with its loss, also on a GPU.
    result["compute"] = training.compute_alone(step_alone(task), world, {**result, "device": "cpu"})
    gradients = [tf.fill(variable.shape, 1e-3) for variable in task.model.trainable_variables]
    numbers = sum(int(tf.size(gradient)) for gradient in gradients)
    width = 2 if options.compression == "fp16" else 4
    result["sent_bytes"] = numbers * width if world.size > 1 else 0
    result["proof"] = ranks_of.prove(options.output, world, run.sender(gradients), ("_ALLREDUCE",))
    result["model"] = {
        "name": "digits",
        "parameters": numbers,
        "gradient_bytes": 4 * numbers,
        "flops_per_sample": None if world.rank else flops_per_sample(task.model),
    }


class Run(training.Run):
    """A training with TensorFlow."""

    def __init__(self, task: Digits) -> None:
        super().__init__(task)
        self.model, self.hvd = task.model, task.world.hvd
        self.compression = getattr(self.hvd.Compression, task.options.compression) if self.hvd else None
        self.optimizer = tf.keras.optimizers.SGD(task.rate, momentum=task.momentum)
        weight = task.share * task.world.size / task.batch
        self.graph = step_of(self.model, self.optimizer, task.share, self.averaging, weight)
        if self.hvd:
            self.hvd.broadcast_variables(self.model.variables, root_rank=0)
            self.hvd.broadcast_variables(self.optimizer.variables, root_rank=0)

    def averaging(self, tape: Any) -> Any:
        if not self.hvd:
            return tape
        return self.hvd.DistributedGradientTape(tape, compression=self.compression, op=self.hvd.Average)

    def step(self, inputs: Any, targets: Any) -> float:
        return float(self.graph(inputs, targets))

    def set_rate(self, rate: float) -> None:
        self.optimizer.learning_rate.assign(rate)

    def weights(self) -> Iterable[bytes]:
        return [variable.numpy().tobytes() for variable in self.model.trainable_variables]

    def sender(self, gradients: Sequence[Any]) -> Any:

        def send(name: str) -> None:
            for number, gradient in enumerate(gradients):
                own = "{}.{}".format(name, number)
                self.hvd.allreduce(gradient, op=self.hvd.Average, compression=self.compression, name=own)

        return send


def step_alone(task: Digits) -> Any:
    """Return a step that leaves the training unchanged and sends nothing."""
    optimizer = tf.keras.optimizers.SGD(1e-6, momentum=task.momentum)
    graph = step_of(network(), optimizer, task.share, lambda tape: tape)
    batch = next(iter(task.batches(0)))
    return lambda: float(graph(*batch))


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
    """Return a step over ``size`` samples as a graph of images and labels, which returns the mean loss.

    ``average`` turns the gradient tape into one that averages over the ranks; gradients are those of the loss
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


def flops_per_sample(model: Any) -> int:
    """Return the floating point operations of a sample forward and back, a multiply-add being two.

    Only products with weights count, as in torch: one forward, and back one for the weights and one for the
    inputs, except the first layer's.
    """
    layers = [layer for layer in model.layers if layer.trainable_weights]
    there: list[int] = [
        2 * int(tf.size(layer.kernel)) * math.prod(layer.output.shape[1:-1]) for layer in layers
    ]
    return 3 * sum(there) - there[0]


class Digits(samples.Digits):
    """The labs' CNN on handwritten digits."""

    def __init__(self, options: argparse.Namespace, world: Alone) -> None:
        super().__init__(options, world, tf.keras.utils.set_random_seed)
        images = pictures(self.images)
        mean, deviation = images.mean(), images.std(ddof=1)
        self.images = (images - mean) / deviation
        self.test_images = (pictures(self.test_images) - mean) / deviation
        self.model = network()

    def batches(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        for numbers in self.numbers(epoch):
            yield tf.constant(self.images[numbers]), tf.constant(self.labels[numbers])

    def count_right(self) -> int:
        right = 0
        for start in range(0, len(self.test_labels), TEST_BATCH):
            part = slice(start, start + TEST_BATCH)
            scores = self.model(tf.constant(self.test_images[part]), training=False).numpy()
            right += int((scores.argmax(axis=1) == self.test_labels[part]).sum())
        return right


def pictures(images: numpy.ndarray) -> numpy.ndarray:
    """Return images (N, 28, 28, 1) from images (N, rows, columns)."""
    values = images.astype(numpy.float32)[..., numpy.newaxis]
    if values.shape[1:3] == (samples.SIDE, samples.SIDE):
        return values
    resized: numpy.ndarray = tf.image.resize(values, (samples.SIDE, samples.SIDE)).numpy()
    return resized


if __name__ == "__main__":
    ranks_of.end(ranks_of.run(parse(), measure, (connected.Alone, connected.Ranks)))
