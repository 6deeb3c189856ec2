"""The ranks of a case, as Horovod for TensorFlow connects them. Needs Python 3.9+ and TensorFlow 2.

TensorFlow gets its threads and devices before it starts, so this is imported before anything else uses it.
"""

from __future__ import annotations

import os
import platform
from typing import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Its C++ part reads that variable once.
import tensorflow as tf

import ranks

__all__ = ["Alone", "Ranks", "tf"]

# One for the work, one that hands tensors to Horovod meanwhile.
BETWEEN_OPERATIONS = 2

tf.get_logger().setLevel("ERROR")
tf.config.threading.set_intra_op_parallelism_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
tf.config.threading.set_inter_op_parallelism_threads(BETWEEN_OPERATIONS)


class Alone(ranks.Alone):
    """One process without Horovod, whose tensors are TensorFlow's."""

    def versions(self) -> dict[str, str]:
        return {"tensorflow": str(tf.__version__)}

    def place(self, kind: str) -> str:
        usable = tf.config.list_physical_devices("GPU")
        if kind == "cpu":
            tf.config.set_visible_devices([], "GPU")
            return kind
        if not usable:
            message = "rank {} on {} can use no GPU: TensorFlow {} finds none"
            raise RuntimeError(message.format(self.rank, platform.node(), tf.__version__))
        index = self.local_rank % len(usable)
        tf.config.set_visible_devices(usable[index], "GPU")
        tf.config.experimental.set_memory_growth(usable[index], True)
        return "{}:{}".format(kind, index)


class Ranks(Alone, ranks.Ranks):
    """All ranks that Horovod connects; ``hvd`` is Horovod for TensorFlow."""

    framework = "tensorflow"

    def concatenate(self, numbers: list[int], dtype: str, name: str) -> list[int]:
        own = tf.constant(numbers, dtype=getattr(tf, dtype))
        every: list[int] = self.hvd.allgather(own, name=name).numpy().tolist()
        return every

    def total(self, values: Sequence[float], name: str) -> list[float]:
        own = tf.constant([float(value) for value in values], dtype=tf.float64)
        return [float(value) for value in self.hvd.allreduce(own, op=self.hvd.Sum, name=name).numpy()]

    def barrier(self) -> None:
        self.total([1], "barrier")
