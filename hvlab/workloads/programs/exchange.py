"""Averaging gradients over all ranks, in each of the ways to send them.

none, fp16      Horovod's DistributedOptimizer, which sends each gradient as soon as it is ready.
8bit            After the backward pass: the maxima in one allreduce, all gradients in another. One scale for
                each tensor, the same on all ranks, from the largest gradient anywhere; whole numbers whose
                sum over all ranks fits into 8 bits; the rounding error is added to the next step's gradient
                (error feedback: Seide et al. 2014, Interspeech; Karimireddy et al. 2019, arXiv:1901.09847).
                Four numbers make one 32 bit word, and words are summed up: as no number's sum leaves its 8
                bits, none runs into another.
bf16, naive8    After the backward pass. Horovod 0.28 sums up neither bfloat16 nor, for torch, 8 bit integers;
                so bytes go to the rank that averages them with an alltoall, and from there to all with an
                allgather. That sends as many bytes as a ring allreduce. naive8 casts gradients to integers,
                as the lab's students did, so that nearly all is lost: it shows why that does not train.

With --ddp, none and fp16 are those of torch's DistributedDataParallel, with torch's own hook for fp16
gradients. With --sharded, torch's fully_shard (FSDP2) gathers a block's weights where they are needed,
and scatters the averages of its gradients.

``EightBit`` and ``Shares`` are one rank's side, and send nothing. Needs Python 3.8+ and torch 1.10+.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Sequence

import torch

from ranks import Alone

NAMES = ("none", "fp16", "bf16", "8bit", "naive8")
LARGEST = 127
NUMBERS = 4
MAXIMUM_BYTES = 4
SHARED = {"bf16": torch.bfloat16, "naive8": torch.int8}


class EightBit:
    """One rank's side of the 8 bit exchange. Raises ValueError for more ranks than 8 bits have levels."""

    def __init__(self, ranks: int) -> None:
        if ranks > LARGEST:
            raise ValueError("8 bits hold the sums of at most {} ranks, not of {}".format(LARGEST, ranks))
        self.ranks = ranks
        self.levels = LARGEST // ranks
        self.residuals: list[torch.Tensor] = []

    def take(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Take this step's gradients, and return the largest magnitude in each: one number a tensor."""
        if not self.residuals:
            self.residuals = [torch.zeros_like(gradient) for gradient in gradients]
        for residual, gradient in zip(self.residuals, gradients):
            residual.add_(gradient)
        return torch.stack([residual.abs().max() for residual in self.residuals])

    def pack(self, maxima: torch.Tensor) -> torch.Tensor:
        """Return all gradients as 32 bit words, scaled by the maxima over all ranks; keep the remainder."""
        parts = []
        for residual, largest in zip(self.residuals, maxima):
            # Whole numbers from -levels to levels, in steps of largest / levels.
            scale = self.levels / torch.where(largest > 0, largest, torch.ones_like(largest))
            part = (residual * scale).round().clamp(-self.levels, self.levels)
            residual.sub_(part * (largest / self.levels))
            parts.append((part + self.levels).to(torch.uint8).flatten())
        numbers = torch.cat(parts)
        return torch.nn.functional.pad(numbers, (0, -numbers.numel() % NUMBERS)).view(torch.int32)

    def unpack(self, total: torch.Tensor, maxima: torch.Tensor) -> list[torch.Tensor]:
        offset, steps = self.levels * self.ranks, self.levels * self.ranks
        parts = split(total.view(torch.uint8), [residual.shape for residual in self.residuals])
        return [(part.to(largest.dtype) - offset) * (largest / steps) for part, largest in zip(parts, maxima)]


def split(flat: torch.Tensor, shapes: Sequence[torch.Size]) -> list[torch.Tensor]:
    """Return tensors of these shapes that lie one after the other in ``flat``."""
    sizes = [shape.numel() for shape in shapes]
    return [part.reshape(shape) for part, shape in zip(torch.split(flat[: sum(sizes)], sizes), shapes)]


class Shares:
    """One rank's side of the exchange of shares; gradients are sent as ``dtype``, in bytes."""

    def __init__(self, ranks: int, dtype: torch.dtype) -> None:
        self.ranks, self.dtype = ranks, dtype
        self.shapes: list[torch.Size] = []

    def pack(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the bytes of all gradients, padded with zeros to equal shares."""
        self.shapes = [gradient.shape for gradient in gradients]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        return self.small(torch.nn.functional.pad(flat, (0, -flat.numel() % self.ranks)))

    def reduce(self, received: torch.Tensor) -> torch.Tensor:
        """Average this rank's share over all ranks; ``received`` holds every rank's copy."""
        return self.small(self.large(received).reshape(self.ranks, -1).mean(dim=0))

    def unpack(self, gathered: torch.Tensor) -> list[torch.Tensor]:
        return split(self.large(gathered), self.shapes)

    def small(self, values: torch.Tensor) -> torch.Tensor:
        """Return the bytes of the values. Cast to integers, all below 1 is lost."""
        return values.to(self.dtype).view(torch.uint8)

    def large(self, small: torch.Tensor) -> torch.Tensor:
        return small.view(self.dtype).to(torch.float32)


class Nothing:
    """One process alone keeps its own gradients."""

    shown: tuple[str, ...] = ()
    # Whether a rank keeps its part of the weights alone.
    shards = False

    def wrap(self, optimizer: Any, model: torch.nn.Module) -> Any:
        """Return an optimizer whose steps average the gradients first."""
        return optimizer

    def forward(self, model: torch.nn.Module) -> Any:
        return model

    def count_bytes(self, numbers: int, tensors: int) -> int:
        """Return the bytes a rank hands to Horovod for this many numbers in this many tensors."""
        return 0

    def send_once(self, gradient: torch.Tensor, name: str) -> None:
        """Send an unused gradient like the others, under a name of its own."""


class ByHorovod(Nothing):
    """Horovod's own optimizer. With one rank it sends nothing."""

    shown = ("_ALLREDUCE",)

    def __init__(self, world: Alone, compression: Any) -> None:
        self.hvd, self.ranks, self.compression = world.hvd, world.size, compression

    def wrap(self, optimizer: Any, model: torch.nn.Module) -> Any:
        named = model.named_parameters()
        return self.hvd.DistributedOptimizer(
            optimizer, named_parameters=named, compression=self.compression, op=self.hvd.Average
        )

    def count_bytes(self, numbers: int, tensors: int) -> int:
        small, _ = self.compression.compress(torch.zeros(1))
        return numbers * small.element_size() if self.ranks > 1 else 0

    def send_once(self, gradient: torch.Tensor, name: str) -> None:
        small, _ = self.compression.compress(gradient)
        self.hvd.allreduce(small, op=self.hvd.Average, name=name)


class ByDdp(Nothing):
    """torch's DistributedDataParallel by its defaults, which averages gradients in the backward pass."""

    shown = ("all_reduce",)

    def __init__(self, world: Alone, name: str) -> None:
        self.group, self.ranks, self.name = world.hvd, world.size, name

    def forward(self, model: torch.nn.Module) -> Any:
        device = next(model.parameters()).device
        own = [device.index] if device.type == "cuda" else None
        parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=own)
        if self.name == "fp16":
            hooks = import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
            parallel.register_comm_hook(None, hooks.fp16_compress_hook)
        return parallel

    def count_bytes(self, numbers: int, tensors: int) -> int:
        return numbers * self.small(torch.zeros(1)).element_size() if self.ranks > 1 else 0

    def send_once(self, gradient: torch.Tensor, name: str) -> None:
        self.group.allreduce(self.small(gradient), op=self.group.Average, name=name)

    def small(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.to(torch.float16) if self.name == "fp16" else gradient


class ByFsdp(Nothing):
    """torch's fully_shard by its defaults, for each block of the model and for what is left of it."""

    shards = True

    def __init__(self, world: Alone) -> None:
        self.ranks = world.size

    def forward(self, model: torch.nn.Module) -> Any:
        shard = import_module("torch.distributed.fsdp").fully_shard
        for block in getattr(model, "blocks", ()):
            shard(block)
        return shard(model)

    def count_bytes(self, numbers: int, tensors: int) -> int:
        # Its weights in the forward and in the backward pass, and its gradients.
        return 3 * numbers * torch.zeros(1).element_size() if self.ranks > 1 else 0


class Averaging(Nothing):
    """All gradients at once, after the backward pass. With one rank nothing is sent in training."""

    def __init__(self, world: Alone) -> None:
        self.world, self.hvd, self.ranks = world, world.hvd, world.size

    def wrap(self, optimizer: Any, model: torch.nn.Module) -> Any:
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
        self.optimizer.zero_grad()

    def step(self) -> None:
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
        maxima = self.hvd.allreduce(self.side.take(gradients), op=self.hvd.Max, name=name + ".maxima")
        total = self.hvd.allreduce(self.side.pack(maxima), op=self.hvd.Sum, name=name)
        return self.side.unpack(total, maxima)

    def count_bytes(self, numbers: int, tensors: int) -> int:
        return numbers + -numbers % NUMBERS + tensors * MAXIMUM_BYTES if self.ranks > 1 else 0

    def send_once(self, gradient: torch.Tensor, name: str) -> None:
        ByEightBit(self.world).average([gradient], name)


class ByShares(Averaging):
    """Each rank averages its share of what all ranks send."""

    shown = ("_ALLTOALL", "_ALLGATHER")

    def __init__(self, world: Alone, dtype: torch.dtype) -> None:
        super().__init__(world)
        self.side = Shares(world.size, dtype)

    def average(self, gradients: Sequence[torch.Tensor], name: str = "gradients") -> list[torch.Tensor]:
        received = self.hvd.alltoall(self.side.pack(gradients), name=name + ".shares")
        return self.side.unpack(self.hvd.allgather(self.side.reduce(received), name=name))

    def count_bytes(self, numbers: int, tensors: int) -> int:
        width = self.side.small(torch.zeros(1)).numel()
        return (numbers + -numbers % self.ranks) * width if self.ranks > 1 else 0

    def send_once(self, gradient: torch.Tensor, name: str) -> None:
        self.average([gradient], name)


def create(name: str, world: Alone) -> Nothing:
    """Return the exchange of that name. Raises ValueError if it cannot work among this many ranks."""
    if world.hvd is None:
        return Nothing()
    if world.sharded:
        if name != "none":
            raise ValueError("FSDP has no {} gradients here".format(name))
        return ByFsdp(world)
    if world.ddp:
        if name not in ("none", "fp16"):
            raise ValueError("DDP has no {} gradients here".format(name))
        return ByDdp(world, name)
    if name == "8bit":
        return ByEightBit(world)
    if name in SHARED:
        return ByShares(world, SHARED[name])
    return ByHorovod(world, getattr(world.hvd.Compression, name))
