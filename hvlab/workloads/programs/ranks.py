"""A rank's view of the others: its place among them, and the means to exchange data.

Needs Python 3.8+.
"""

from __future__ import annotations

import contextlib
import json
import platform
from importlib import import_module
from typing import Any, Sequence

import evidence

with contextlib.suppress(ImportError):  # TensorFlow's environment has none
    import torch


class UnavailableError(Exception):
    """The framework that connects the ranks is not installed; ``rank`` is this one's."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class Alone:
    """A single process without Horovod; ``hvd`` connects ranks: Horovod, or a module with the same calls."""

    rank, size, local_rank = 0, 1, 0
    hvd: Any = None
    # The library that averages gradients, by its own name.
    library = ""
    # torch's profiler, where it shows who carried the data; else Horovod's timeline does.
    profile: Any = None
    # Whether torch.distributed connects them.
    ddp = False
    # Whether a training shares out its weights among them.
    sharded = False

    def gather(self, data: Any, name: str) -> list[Any]:
        """Return the data of every rank, in the order of the ranks; any JSON value."""
        return [data]

    def total(self, values: Sequence[float], name: str) -> list[float]:
        """Return the sums of the values over all ranks."""
        return [float(value) for value in values]

    def barrier(self) -> None:
        """Wait for all ranks."""

    def place(self, kind: str) -> str:
        """Return the device of this rank's tensors. Raises RuntimeError if torch can use no GPU."""
        if kind == "cpu":
            return kind
        count = torch.cuda.device_count()
        if not count:
            message = "rank {} on {} can use no GPU: torch {} was built for CUDA {}"
            built = torch.version.cuda or "none"
            raise RuntimeError(message.format(self.rank, platform.node(), torch.__version__, built))
        index = self.local_rank % count
        torch.cuda.set_device(index)
        return "{}:{}".format(kind, index)

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}

    def state(self) -> dict[str, Any]:
        """Return Horovod's own report."""
        return {"horovod": evidence.horovod_state(self.hvd) if self.hvd else {}}

    def leave(self) -> None:
        """Leave the process group."""


class Ranks(Alone):
    """All ranks that Horovod connects; ``hvd`` is Horovod for ``framework``."""

    framework = "torch"

    def __init__(self) -> None:
        self.hvd = hvd = import_module("horovod." + self.framework)
        hvd.init()
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()
        self.library = getattr(import_module("horovod"), "LIBRARY", "horovod")
        if self.library != "horovod":
            self.profile = import_module("profiled").Profile(self.rank)

    def gather(self, data: Any, name: str) -> list[Any]:
        text = json.dumps(data).encode()
        lengths = self.concatenate([len(text)], "int64", name + ".lengths")
        texts = bytes(self.concatenate(list(text), "uint8", name + ".texts"))
        ends = [sum(lengths[: rank + 1]) for rank in range(len(lengths))]
        return [json.loads(texts[end - length : end]) for end, length in zip(ends, lengths)]

    def concatenate(self, numbers: list[int], dtype: str, name: str) -> list[int]:
        """Return the numbers of all ranks, one after another."""
        own = torch.tensor(numbers, dtype=getattr(torch, dtype))
        every: list[int] = self.hvd.allgather(own, name=name).tolist()
        return every

    def total(self, values: Sequence[float], name: str) -> list[float]:
        own = torch.tensor([float(value) for value in values], dtype=torch.float64)
        return [float(value) for value in self.hvd.allreduce(own, op=self.hvd.Sum, name=name)]

    def barrier(self) -> None:
        self.hvd.barrier()

    def leave(self) -> None:
        self.barrier()
        self.hvd.shutdown()
