"""The operations through which gradients flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..common.process_sets import ProcessSet, global_process_set
from . import asynchronous
from .asynchronous import synchronize
from .compression import Compression
from .operations import Average, Sum


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: dict[str, Any], name: str | None, *tensors: torch.Tensor) -> Any:
        ctx.options = options
        detached = [tensor.detach() for tensor in tensors]
        return tuple(synchronize(asynchronous.grouped_allreduce_async(detached, name=name, **options)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, *_Allreduce.apply(ctx.options, None, *map(torch.Tensor.contiguous, gradients))


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Return the tensors, reduced over all ranks as one."""
    small, contexts = zip(*map(compression.compress, asynchronous._checked(tensors)), strict=True)
    options = {
        "op": asynchronous.reduction(op, average),
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
        "process_set": process_set,
    }
    reduced = _Allreduce.apply(options, name, *small)
    return [compression.decompress(one, context) for one, context in zip(reduced, contexts, strict=True)]


def allreduce(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    """Return the tensor, reduced over all ranks; the arguments are those of grouped_allreduce()."""
    return grouped_allreduce([tensor], *arguments, **options)[0]


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        ctx.rows, ctx.process_set = [len(tensor) for tensor in tensors], process_set
        return tuple(synchronize(asynchronous.grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        reduced = grouped_allreduce(
            [one.contiguous() for one in gradients], op=Average, process_set=ctx.process_set
        )
        rows = grouped_allgather([torch.tensor([own]) for own in ctx.rows], process_set=ctx.process_set)
        own = ctx.process_set.rank()
        parts = [one.split(each.tolist())[own] for one, each in zip(reduced, rows, strict=True)]
        return None, None, *parts


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Return each tensor with those of all ranks after one another."""
    return list(_Allgather.apply(name, process_set, *tensors))


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensors of all ranks after one another."""
    return grouped_allgather([tensor], name, process_set)[0]


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root: int, name: str | None, process_set: ProcessSet) -> Any:
        ctx.root, ctx.process_set = root, process_set
        return synchronize(asynchronous.broadcast_async(tensor, root, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        reduced = allreduce(gradients[0].contiguous(), op=Average, process_set=ctx.process_set)
        return reduced * (asynchronous.rank() == ctx.root), None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the root's tensor."""
    result: torch.Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)
    return result


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> Any:
        received, counts = synchronize(asynchronous.alltoall_async(tensor, splits, name, process_set))
        ctx.counts, ctx.process_set, ctx.rows = counts, process_set, len(tensor)
        ctx.mark_non_differentiable(counts)
        return received, counts

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        back, _ = alltoall(gradients[0].contiguous(), ctx.counts, process_set=ctx.process_set)
        return back, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the rows that all ranks sent here; with ``splits``, their numbers by rank, too."""
    received, counts = _Alltoall.apply(tensor, splits, name, process_set)
    return received if splits is None else (received, counts)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: dict[str, Any], name: str | None, *tensors: torch.Tensor) -> Any:
        ctx.options = options
        return tuple(synchronize(asynchronous.grouped_reducescatter_async(tensors, name, **options)))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        process_set = ctx.options["process_set"]
        factor = ctx.options["prescale_factor"] * ctx.options["postscale_factor"]
        if ctx.options["op"] == Sum:
            factor *= process_set.size()
        return (
            None,
            None,
            *grouped_allgather([one.contiguous() * factor for one in gradients], None, process_set),
        )


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Return this rank's rows of each tensor, reduced over all ranks."""
    small, contexts = zip(*map(compression.compress, asynchronous._checked(tensors)), strict=True)
    options = {
        "op": op,
        "process_set": process_set,
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
    }
    reduced = _Reducescatter.apply(options, name, *small)
    return [compression.decompress(one, context) for one, context in zip(reduced, contexts, strict=True)]


def reducescatter(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    """Return this rank's rows of the reduced tensor; the arguments are those of grouped_reducescatter()."""
    return grouped_reducescatter([tensor], *arguments, **options)[0]
