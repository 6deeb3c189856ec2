"""What ranks do together, in terms of torch.distributed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from ..common.agreement import Request
from ..common.channel import STAND_INS, Channel, Operation, gather_into

# Horovod's numbers.
NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")
Average, Sum, Adasum, Min, Max, Product = range(len(NAMES))
REDUCTIONS = {
    Average: dist.ReduceOp.SUM,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}
# Types that no group reduces, or whose sums are too large for them, and those that hold them on the way.
WIRE_DTYPES = dict.fromkeys((torch.int8, torch.uint8, torch.int16), torch.int32)


def describe(tensor: torch.Tensor, first: int = 0) -> list[Any]:
    """Return the properties that must agree on all ranks; sizes from dimension ``first`` on."""
    return [str(tensor.dtype)[6:], tensor.dim(), list(tensor.shape[first:]), tensor.device.type]


def blank(description: Sequence[Any]) -> torch.Tensor:
    """Return zeros of a description with all its sizes."""
    dtype, _, shape, device = description
    return torch.zeros(shape, dtype=getattr(torch, dtype), device=device)


def scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiply in place; integers are rounded towards zero, as Horovod does."""
    if factor != 1.0:
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.mul_(factor)
        else:
            tensor.copy_(tensor.double() * factor)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bytes: groups move those of every type."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


class Allreduce(Operation):
    """Reduces tensors, one or a group, into ``outputs``."""

    kind = "allreduce"

    def __init__(
        self, tensors: Any, outputs: Any, name: str | None, op: int, scales: tuple[float, float]
    ) -> None:
        super().__init__(name)
        self.tensors, self.outputs, self.op, self.scales = tensors, outputs, op, scales
        self.single = isinstance(tensors, torch.Tensor)
        self.inputs = [tensors] if self.single else list(tensors)
        self.targets = [outputs] if self.single else list(outputs)
        self.buffers: dict[Any, tuple[torch.Tensor, list[int]]] = {}

    def request(self) -> Request:
        scales = [
            f"{name}scale_factor {factor}" for name, factor in zip(("pre", "post"), self.scales, strict=True)
        ]
        return Request(self.kind, [NAMES[self.op], *scales, [describe(one) for one in self.inputs]])

    def issue(self, channel: Channel, owns: list[Any]) -> None:
        self.divisor = channel.size if self.op == Average else 1
        members: dict[Any, list[int]] = {}
        for number, tensor in enumerate(self.inputs):
            members.setdefault((tensor.dtype, tensor.device), []).append(number)
        for (dtype, _), numbers in members.items():
            target = self.targets[numbers[0]].detach()
            if len(numbers) == 1 and dtype not in WIRE_DTYPES and target.is_contiguous():
                # No copy; but into an output of its own.
                flat = target.copy_(self.inputs[numbers[0]].detach()).view(-1)
            else:
                flat = torch.cat([self.inputs[number].detach().reshape(-1) for number in numbers])
                flat = flat.to(WIRE_DTYPES.get(dtype, dtype))
            scale(flat, self.scales[0])
            self.works.append(dist.all_reduce(flat, REDUCTIONS[self.op], group=channel.group, async_op=True))
            self.buffers[dtype, len(self.buffers)] = flat, numbers

    def finish(self) -> Any:
        for flat, numbers in self.buffers.values():
            scale(flat, self.scales[1] / self.divisor)
            parts = flat.split([self.targets[number].numel() for number in numbers])
            for number, part in zip(numbers, parts, strict=True):
                target = self.targets[number].detach()
                if part.data_ptr() != target.data_ptr():
                    target.copy_(part.view(target.shape))
        self.buffers = {}
        return self.outputs


class Allgather(Operation):
    """Concatenates tensors of all ranks, whose first dimensions may differ."""

    kind = "allgather"

    def __init__(self, tensors: Any, name: str | None) -> None:
        super().__init__(name)
        self.single = isinstance(tensors, torch.Tensor)
        self.inputs = [tensors.detach()] if self.single else [one.detach() for one in tensors]
        if any(tensor.dim() == 0 for tensor in self.inputs):
            raise ValueError("allgather of a tensor without dimensions; what to do: tensor.unsqueeze(0)")
        self.gathered: list[tuple[torch.Tensor, list[int], int]] = []

    def request(self) -> Request:
        same = [describe(one, 1) for one in self.inputs]
        return Request(self.kind, same, [len(one) for one in self.inputs])

    def issue(self, channel: Channel, owns: list[Any]) -> None:
        for number, tensor in enumerate(self.inputs):
            row = tensor.element_size() * tensor.shape[1:].numel()
            rows = [own[number] for own in owns]
            sizes = [count * row for count in rows]
            longest = max(sizes)
            own = raw(tensor)
            every = own.new_empty(longest * channel.size)
            if longest:
                own = torch.nn.functional.pad(own, (0, longest - own.numel()))
                work = gather_into(every, own, group=channel.group, async_op=True)
                self.works.append(work)
            self.gathered.append((every, sizes, sum(rows)))

    def finish(self) -> Any:
        results = []
        for tensor, (every, sizes, rows) in zip(self.inputs, self.gathered, strict=True):
            longest = max(sizes)
            parts = [every[n * longest :][:size] for n, size in enumerate(sizes)]
            whole = torch.cat(parts) if min(sizes) < longest else every
            results.append(whole.view(tensor.dtype).view(rows, *tensor.shape[1:]))
        return results[0] if self.single else results


class Broadcast(Operation):
    """Copies the root's tensor into ``output``; the root is a global rank."""

    kind = "broadcast"

    def __init__(self, tensor: torch.Tensor, output: torch.Tensor, name: str | None, root: int) -> None:
        super().__init__(name)
        self.tensor, self.output, self.root = tensor, output, root

    def request(self) -> Request:
        return Request(self.kind, [f"root_rank {self.root}", describe(self.tensor)])

    def issue(self, channel: Channel, owns: list[Any]) -> None:
        self.buffer = raw(
            self.tensor.detach().clone() if self.output is not self.tensor else self.tensor.detach()
        )
        if self.buffer.numel():
            self.works = [dist.broadcast(self.buffer, self.root, group=channel.group, async_op=True)]

    def finish(self) -> torch.Tensor:
        output = self.output.detach()
        if self.buffer.data_ptr() != output.data_ptr():
            output.copy_(self.buffer.view(output.dtype).view(output.shape))
        return self.output


class Alltoall(Operation):
    """Sends parts of the first dimension to each rank; returns what was received, and its parts' lengths."""

    kind = "alltoall"

    def __init__(self, tensor: torch.Tensor, splits: Any, name: str | None, size: int) -> None:
        super().__init__(name)
        if tensor.dim() == 0:
            raise ValueError("alltoall of a tensor without dimensions; what to do: tensor.unsqueeze(0)")
        rows = len(tensor)
        if splits is None:
            if rows % size:
                raise ValueError(
                    f"alltoall: {rows} rows cannot be shared by {size} ranks; what to do: give splits"
                )
            splits = torch.full((size,), rows // size, dtype=torch.int32)
        self.splits = splits if isinstance(splits, torch.Tensor) else torch.tensor(splits, dtype=torch.int32)
        if self.splits.is_floating_point() or self.splits.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"alltoall: splits are whole numbers of 32 bits, not {self.splits.dtype}")
        self.parts = self.splits.tolist()
        if len(self.parts) != size or sum(self.parts) > rows or min(self.parts) < 0:
            raise ValueError(f"alltoall: splits {self.parts} of {rows} rows among {size} ranks")
        self.tensor = tensor.detach()

    def request(self) -> Request:
        return Request(self.kind, describe(self.tensor, 1), self.parts)

    def issue(self, channel: Channel, owns: list[Any]) -> None:
        own = channel.ranks.index(dist.get_rank())
        self.counts = [parts[own] for parts in owns]
        row = self.tensor.element_size() * self.tensor.shape[1:].numel()
        self.buffer = torch.empty(sum(self.counts) * row, dtype=torch.uint8, device=self.tensor.device)
        sent = raw(self.tensor[: sum(self.parts)])
        sizes = [[count * row for count in counts] for counts in (self.counts, self.parts)]
        self.works = [dist.all_to_all_single(self.buffer, sent, *sizes, group=channel.group, async_op=True)]

    def finish(self) -> tuple[torch.Tensor, torch.Tensor]:
        received = self.buffer.view(self.tensor.dtype).view(sum(self.counts), *self.tensor.shape[1:])
        return received, torch.tensor(self.counts, dtype=self.splits.dtype, device=self.splits.device)


class Reducescatter(Allreduce):
    """Reduces tensors, and keeps this rank's rows; of an uneven number the first ranks have one more.

    Over Gloo, torch's own is an allreduce, too.
    """

    kind = "reducescatter"

    def __init__(self, tensors: Any, name: str | None, op: int, scales: tuple[float, float]) -> None:
        if op not in (Average, Sum):
            raise NotImplementedError("reducescatter: Average and Sum alone")
        outputs = (
            torch.empty_like(tensors)
            if isinstance(tensors, torch.Tensor)
            else list(map(torch.empty_like, tensors))
        )
        super().__init__(tensors, outputs, name, op, scales)
        if any(tensor.dim() == 0 for tensor in self.inputs):
            raise ValueError("reducescatter of a tensor without dimensions; what to do: tensor.unsqueeze(0)")

    def issue(self, channel: Channel, owns: list[Any]) -> None:
        super().issue(channel, owns)
        self.own, self.size = channel.ranks.index(dist.get_rank()), channel.size

    def finish(self) -> Any:
        super().finish()
        parts = [self._rows(target) for target in self.targets]
        return parts[0] if self.single else parts

    def _rows(self, tensor: torch.Tensor) -> torch.Tensor:
        each, more = divmod(len(tensor), self.size)
        ends = list(accumulate(each + (rank < more) for rank in range(self.size)))
        return tensor[ends[self.own] - each - (self.own < more) : ends[self.own]].clone()


class Barrier(Operation):
    """Nothing but the agreement."""

    kind = "barrier"


def _stand_in(request: Request) -> Allreduce:
    op, *scales, descriptions = request.same
    before, after = (float(text.split()[1]) for text in scales)
    zeros = [blank(one) for one in descriptions]
    return Allreduce(zeros, zeros, None, NAMES.index(op), (before, after))


STAND_INS["allreduce"] = _stand_in
