"""Averaging gradients over all ranks, in each of the ways they can be sent.

none, fp16      Horovod's DistributedOptimizer, which sends each gradient as soon as it is there.
8bit            After the backward pass: the maxima in one allreduce, all gradients in another.
bf16, naive8    After the backward pass. Horovod 0.28 sums up neither bfloat16 nor, for torch, 8 bit integers;
                so bytes go to the rank that averages them with an alltoall, and from there to all with an
                allgather. That sends as many bytes as a ring allreduce does. naive8 casts gradients to
                integers, as the lab's students did, so that nearly all is lost: it shows why that does not
                train.

With --ddp, none and fp16 are what torch's DistributedDataParallel does by itself, with torch's own hook for
fp16 gradients.

Needs Python 3.8+.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Sequence

import torch

from gradients import NUMBERS, EightBit, Shares
from ranks import Alone

NAMES = ("none", "fp16", "bf16", "8bit", "naive8")
MAXIMUM_BYTES = 4
SHARED = {"bf16": torch.bfloat16, "naive8": torch.int8}


class Nothing:
    """One process alone: gradients are its own."""

    shown: tuple[str, ...] = ()

    def wrap(self, optimizer: Any, model: torch.nn.Module) -> Any:
        """Return an optimizer whose steps average the gradients first."""
        return optimizer

    def forward(self, model: torch.nn.Module) -> Any:
        """Return the model as it is called in training."""
        return model

    def sent(self, numbers: int, tensors: int) -> int:
        """Return the bytes a rank hands to Horovod for gradients of so many numbers in so many tensors."""
        return 0

    def once(self, gradient: torch.Tensor, name: str) -> None:
        """Send a gradient that nobody needs, as others are sent, under a name of its own."""


class ByHorovod(Nothing):
    """What Horovod's own optimizer does. With one rank it sends nothing."""

    shown = ("_ALLREDUCE",)

    def __init__(self, world: Alone, compression: Any) -> None:
        self.hvd, self.ranks, self.compression = world.hvd, world.size, compression

    def wrap(self, optimizer: Any, model: torch.nn.Module) -> Any:
        """Return an optimizer whose steps average the gradients first."""
        named = model.named_parameters()
        return self.hvd.DistributedOptimizer(
            optimizer, named_parameters=named, compression=self.compression, op=self.hvd.Average
        )

    def sent(self, numbers: int, tensors: int) -> int:
        """Return the bytes a rank hands to Horovod for gradients of so many numbers in so many tensors."""
        small, _ = self.compression.compress(torch.zeros(1))
        return numbers * small.element_size() if self.ranks > 1 else 0

    def once(self, gradient: torch.Tensor, name: str) -> None:
        """Send a gradient that nobody needs, as others are sent, under a name of its own."""
        small, _ = self.compression.compress(gradient)
        self.hvd.allreduce(small, op=self.hvd.Average, name=name)


class ByDdp(Nothing):
    """torch's DistributedDataParallel as it is by default, which averages gradients in the backward pass."""

    shown = ("all_reduce",)

    def __init__(self, world: Alone, name: str) -> None:
        self.group, self.ranks, self.name = world.hvd, world.size, name

    def forward(self, model: torch.nn.Module) -> Any:
        """Return the model as it is called in training."""
        device = next(model.parameters()).device
        own = [device.index] if device.type == "cuda" else None
        parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=own)
        if self.name == "fp16":
            hooks = import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
            parallel.register_comm_hook(None, hooks.fp16_compress_hook)
        return parallel

    def sent(self, numbers: int, tensors: int) -> int:
        """Return the bytes a rank hands to torch.distributed for gradients of so many numbers."""
        return numbers * self.small(torch.zeros(1)).element_size() if self.ranks > 1 else 0

    def once(self, gradient: torch.Tensor, name: str) -> None:
        """Send a gradient that nobody needs, as others are sent, under a name of its own."""
        self.group.allreduce(self.small(gradient), op=self.group.Average, name=name)

    def small(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return a gradient as it is sent."""
        return gradient.to(torch.float16) if self.name == "fp16" else gradient


class Averaging(Nothing):
    """All gradients at once, after the backward pass. With one rank nothing is sent in training."""

    def __init__(self, world: Alone) -> None:
        self.world, self.hvd, self.ranks = world, world.hvd, world.size

    def wrap(self, optimizer: Any, model: torch.nn.Module) -> Any:
        """Return an optimizer whose steps average the gradients first."""
        return optimizer if self.ranks == 1 else AveragingOptimizer(optimizer, self, model)

    def average(self, gradients: Sequence[torch.Tensor], name: str = "gradients") -> list[torch.Tensor]:
        """Return the averages of the gradients over all ranks."""
        raise NotImplementedError


class AveragingOptimizer:
    """An optimizer that averages all gradients before each step."""

    def __init__(self, optimizer: Any, exchange: Averaging, model: torch.nn.Module) -> None:
        self.optimizer, self.exchange = optimizer, exchange
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.param_groups = optimizer.param_groups

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self.optimizer.zero_grad()

    def step(self) -> None:
        """Average the gradients, and make the step."""
        averages = self.exchange.average([parameter.grad for parameter in self.parameters])
        for parameter, average in zip(self.parameters, averages):
            parameter.grad = average
        self.optimizer.step()


class ByEightBit(Averaging):
    """8 bit numbers with a shared scale and error feedback."""

    shown = ("_ALLREDUCE",)

    def __init__(self, world: Alone) -> None:
        super().__init__(world)
        self.side = EightBit(world.size)

    def average(self, gradients: Sequence[torch.Tensor], name: str = "gradients") -> list[torch.Tensor]:
        """Return the averages of the gradients over all ranks."""
        maxima = self.hvd.allreduce(self.side.take(gradients), op=self.hvd.Max, name=name + ".maxima")
        total = self.hvd.allreduce(self.side.pack(maxima), op=self.hvd.Sum, name=name)
        return self.side.unpack(total, maxima)

    def sent(self, numbers: int, tensors: int) -> int:
        """Return the bytes a rank hands to Horovod for gradients of so many numbers in so many tensors."""
        return numbers + -numbers % NUMBERS + tensors * MAXIMUM_BYTES if self.ranks > 1 else 0

    def once(self, gradient: torch.Tensor, name: str) -> None:
        """Send a gradient that nobody needs, as others are sent, under a name of its own."""
        ByEightBit(self.world).average([gradient], name)


class ByShares(Averaging):
    """Each rank averages its share of what all ranks send."""

    shown = ("_ALLTOALL", "_ALLGATHER")

    def __init__(self, world: Alone, dtype: torch.dtype) -> None:
        super().__init__(world)
        self.side = Shares(world.size, dtype)

    def average(self, gradients: Sequence[torch.Tensor], name: str = "gradients") -> list[torch.Tensor]:
        """Return the averages of the gradients over all ranks."""
        received = self.hvd.alltoall(self.side.pack(gradients), name=name + ".shares")
        return self.side.unpack(self.hvd.allgather(self.side.reduce(received), name=name))

    def sent(self, numbers: int, tensors: int) -> int:
        """Return the bytes a rank hands to Horovod, counted once as an allreduce of them would be."""
        width = self.side.small(torch.zeros(1)).numel()
        return (numbers + -numbers % self.ranks) * width if self.ranks > 1 else 0

    def once(self, gradient: torch.Tensor, name: str) -> None:
        """Send a gradient that nobody needs, as others are sent, under a name of its own."""
        self.average([gradient], name)


def create(name: str, world: Alone) -> Nothing:
    """Return the exchange of that name. Raises ValueError where it cannot work among so many ranks."""
    if world.hvd is None:
        return Nothing()
    if world.ddp:
        if name not in ("none", "fp16"):
            raise ValueError("DDP has no {} gradients here".format(name))
        return ByDdp(world, name)
    if name == "8bit":
        return ByEightBit(world)
    if name in SHARED:
        return ByShares(world, SHARED[name])
    return ByHorovod(world, getattr(world.hvd.Compression, name))
