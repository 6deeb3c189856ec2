"""Train the labs' CNN on digits with TensorFlow, as train.py does with torch.

The same network, samples, schedule and checks, and the same file of results. Ranks begin with rank 0's
weights. A step is one graph, made before the first, in which Horovod's gradient tape averages the gradients;
compute alone is the same without the tape. Runs as every rank under any launcher, or alone with --serial and
then without Horovod; rank 0 writes one JSON file, nothing is printed. Needs Python 3.9+ and TensorFlow 2.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Iterable, Sequence

import digits_tensorflow
import training
import world as ranks_of
import world_tensorflow as connected
from digits_tensorflow import Digits
from ranks import Alone
from world_tensorflow import tf

NAMES = ("none", "fp16")
MOMENTUM = 0.9


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = ranks_of.parser(__doc__)
    parser.add_argument("--data", default="synthetic", help="synthetic, or a folder of four IDX files")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05, help="for one rank's batch")
    parser.add_argument("--lr-scaling", choices=("linear", "none"), default="linear")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--compression", choices=NAMES, default="none")
    parser.add_argument("--scaling", choices=("weak", "strong"), default="weak")
    parser.add_argument("--framework", choices=("tensorflow",), default="tensorflow")
    options = parser.parse_args(argv)
    if options.ddp:
        parser.error("DDP is torch's own")
    if options.workload != "mnist":
        parser.error("TensorFlow trains mnist, not {}".format(options.workload))
    if options.serial and options.compression != "none":
        parser.error("one process alone sends no gradients to compress")
    return options


def measure(options: argparse.Namespace, world: Alone, result: dict[str, Any]) -> None:
    """Train, check, and tell everything about it."""
    task = training.ready(lambda: Digits(options, world), world, result["checks"])
    if result["checks"]:
        return
    run = Run(task)
    run.train()
    result.update(run.results())
    result["checks"] += run.checks()
    hosts = [host for _, _, host, _ in result["world"]["placement"]]
    result["compute"] = {"by_host_s": training.compute_alone(by_itself(task), world, "cpu", hosts)}
    gradients = [tf.fill(variable.shape, 1e-3) for variable in task.model.trainable_variables]
    numbers = sum(int(tf.size(gradient)) for gradient in gradients)
    width = 2 if options.compression == "fp16" else 4
    result["sent_bytes"] = numbers * width if world.size > 1 else 0
    result["proof"] = ranks_of.prove(options.output, world, run.sender(gradients), ("_ALLREDUCE",))
    result["model"] = {
        "name": "digits",
        "parameters": numbers,
        "gradient_bytes": 4 * numbers,
        "flops_per_sample": None if world.rank else digits_tensorflow.flops_per_sample(task.model),
    }


class Run(training.Run):
    """A training with TensorFlow."""

    def __init__(self, task: Digits) -> None:
        super().__init__(task)
        self.model, self.hvd = task.model, task.world.hvd
        self.compression = getattr(self.hvd.Compression, task.options.compression) if self.hvd else None
        self.optimizer = tf.keras.optimizers.SGD(task.rate, momentum=MOMENTUM)
        weight = task.share * task.world.size / task.batch
        self.graph = digits_tensorflow.step_of(self.model, self.optimizer, task.share, self.averaging, weight)
        if self.hvd:
            self.hvd.broadcast_variables(self.model.variables, root_rank=0)
            self.hvd.broadcast_variables(self.optimizer.variables, root_rank=0)

    def averaging(self, tape: Any) -> Any:
        """Return a gradient tape that averages over all ranks."""
        if not self.hvd:
            return tape
        return self.hvd.DistributedGradientTape(tape, compression=self.compression, op=self.hvd.Average)

    def step(self, inputs: Any, targets: Any) -> float:
        """Make one step, to its end, and return the loss."""
        return float(self.graph(inputs, targets))

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        self.optimizer.learning_rate.assign(rate)

    def weights(self) -> Iterable[bytes]:
        """Return all weights that are trained."""
        return [variable.numpy().tobytes() for variable in self.model.trainable_variables]

    def sender(self, gradients: Sequence[Any]) -> Any:
        """Return what sends gradients that nobody needs, under a name of their own."""

        def send(name: str) -> None:
            for number, gradient in enumerate(gradients):
                own = "{}.{}".format(name, number)
                self.hvd.allreduce(gradient, op=self.hvd.Average, compression=self.compression, name=own)

        return send


def by_itself(task: Digits) -> Any:
    """Return a step that changes nothing of the training and sends nothing."""
    optimizer = tf.keras.optimizers.SGD(1e-6, momentum=MOMENTUM)
    graph = digits_tensorflow.step_of(
        digits_tensorflow.network(), optimizer, task.share, digits_tensorflow.alone
    )
    batch = next(iter(task.batches(0)))
    return lambda: float(graph(*batch))


if __name__ == "__main__":
    sys.exit(ranks_of.run(parse(), measure, (connected.Alone, connected.Ranks)))
