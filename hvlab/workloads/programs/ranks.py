"""The ranks of a case as one of them sees the others: who it is, and what they tell one another.

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
    """What connects the ranks is not part of this installation, as ``rank`` tells."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class Alone:
    """One process without Horovod, which is all ranks there are.

    ``hvd`` is what connects ranks: Horovod, or what has its calls.
    """

    rank, size, local_rank = 0, 1, 0
    hvd: Any = None
    # Whether that is torch.distributed.
    ddp = False

    def gather(self, data: Any, name: str) -> list[Any]:
        """Return what every rank gave, in the order of the ranks; anything that JSON holds."""
        return [data]

    def total(self, values: Sequence[float], name: str) -> list[float]:
        """Return the sums of the values over all ranks."""
        return [float(value) for value in values]

    def barrier(self) -> None:
        """Return when all ranks are here."""

    def place(self, kind: str) -> str:
        """Return the device of this rank's tensors. Raises RuntimeError where torch can use no GPU."""
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
        """Return the framework's version."""
        return {"torch": torch.__version__}

    def state(self) -> dict[str, Any]:
        """Return what connects the ranks says of itself."""
        return {"horovod": evidence.horovod_state(self.hvd) if self.hvd else {}}

    def leave(self) -> None:
        """Take leave of the other ranks."""


class Ranks(Alone):
    """All ranks that Horovod connects; ``hvd`` is Horovod for torch."""

    def __init__(self) -> None:
        self.hvd = hvd = import_module("horovod.torch")
        hvd.init()
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()

    def gather(self, data: Any, name: str) -> list[Any]:
        """Return what every rank gave, in the order of the ranks; anything that JSON holds."""
        text = json.dumps(data).encode()
        lengths = self.hvd.allgather(torch.tensor([len(text)]), name=name + ".lengths").tolist()
        bytes_ = self.hvd.allgather(
            torch.tensor(list(text), dtype=torch.uint8), name=name + ".texts"
        ).tolist()
        ends = [sum(lengths[: rank + 1]) for rank in range(len(lengths))]
        return [json.loads(bytes(bytes_[end - length : end])) for end, length in zip(ends, lengths)]

    def total(self, values: Sequence[float], name: str) -> list[float]:
        """Return the sums of the values over all ranks."""
        own = torch.tensor([float(value) for value in values], dtype=torch.float64)
        return [float(value) for value in self.hvd.allreduce(own, op=self.hvd.Sum, name=name)]

    def barrier(self) -> None:
        """Return when all ranks are here."""
        self.hvd.barrier()

    def leave(self) -> None:
        """Take leave of the other ranks."""
        self.hvd.barrier()
        self.hvd.shutdown()
