"""Horovod's operations for torch that begin at once, and what it tells of the ranks."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..common import process_sets as sets
from ..common import timeline
from ..common import world as worlds
from ..common.channel import Operation, wait
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, global_process_set
from ..common.world import is_initialized
from .operations import (
    Adasum,
    Allgather,
    Allreduce,
    Alltoall,
    Average,
    Barrier,
    Broadcast,
    Reducescatter,
    Sum,
)

ADASUM = (
    "hvlab_horovod has no Adasum: torch.distributed has none; what to do: op=hvd.Average, or Horovod itself"
)


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Connect the ranks. ``process_sets`` are registered; more can be added at any time."""
    if comm is not None and not isinstance(comm, (list, tuple)):
        raise NotImplementedError("init with an MPI communicator; what to do: hvd.add_process_set([ranks])")
    if not is_initialized():
        own = worlds.enter()
        if comm and sorted(comm) != list(range(own.size)):
            worlds.leave()
            raise NotImplementedError(
                f"init with ranks {comm} of {own.size}; what to do: hvd.init(), hvd.add_process_set({comm})"
            )
        sets.begin(own, process_sets)


@atexit.register
def shutdown() -> None:
    """Disconnect the ranks."""
    sets.end()
    worlds.leave()


def size() -> int:
    """Return the number of ranks."""
    return int(worlds.world().size)


def rank() -> int:
    """Return this process' rank."""
    return int(worlds.world().rank)


def local_size() -> int:
    """Return the number of ranks on this host."""
    return worlds.world().local_size


def local_rank() -> int:
    """Return this process' rank on this host."""
    return worlds.world().local_rank


def cross_size() -> int:
    """Return the number of hosts that have a rank with this local rank."""
    return worlds.world().cross_size


def cross_rank() -> int:
    """Return this host's number among those."""
    return worlds.world().cross_rank


def is_homogeneous() -> bool:
    """Return whether all hosts have equally many ranks."""
    return worlds.world().homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Record operations; rank 0 writes the file."""
    worlds.world()
    timeline.start(file_path, mark_cycles)


def stop_timeline() -> None:
    """Write the timeline."""
    timeline.stop(rank() == 0)


def _answer(value: Any) -> Callable[[], Any]:
    return lambda: value


mpi_threads_supported = mpi_enabled = mpi_built = ddl_built = ccl_built = _answer(False)
gloo_enabled = gloo_built = _answer(True)
nccl_built = _answer(int(torch.cuda.is_available() and dist.is_nccl_available()))
cuda_built = _answer(torch.version.cuda is not None)
rocm_built = _answer(torch.version.hip is not None)


def reduction(op: int | None, average: bool | None) -> int:
    """Return the reduction that a caller means. Raises for Adasum."""
    if average is not None:
        warnings.warn("`average` is replaced by `op`", DeprecationWarning, stacklevel=3)
        if op is not None:
            raise ValueError("both `op` and `average` are given; what to do: `op` alone")
        return Average if average else Sum
    if op == Adasum:
        raise NotImplementedError(ADASUM)
    return Average if op is None else op


def _submit(operation: Operation, process_set: ProcessSet) -> Operation:
    channel = process_set.channel
    if worlds.world().rank not in channel.ranks:
        raise HorovodInternalError(f"rank {rank()} is none of {process_set}")
    return channel.submit(operation)


def _checked(tensors: Any) -> Any:
    for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
        if tensor.is_sparse:
            raise ValueError(f"{tensor.type()} is not supported; what to do: hvd.sparse_allreduce_async()")
        if not tensor.is_contiguous():
            raise ValueError("the tensor has to be contiguous; what to do: tensor.contiguous()")
    return tensors


def poll(handle: Operation) -> bool:
    """Return whether synchronize() would return at once."""
    if not handle.issued:
        handle.channel.advance(None, block=False)
    return handle.is_complete()


def synchronize(handle: Any) -> Any:
    """Return an operation's result when it is there. Raises HorovodInternalError."""
    return wait(handle, worlds.world().channels)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begin to reduce a tensor; it keeps its values."""
    output = torch.empty_like(_checked(tensor))
    scales = prescale_factor, postscale_factor
    return _submit(Allreduce(tensor, output, name, reduction(op, average), scales), process_set)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begin to reduce a tensor in place."""
    scales = prescale_factor, postscale_factor
    return _submit(Allreduce(_checked(tensor), tensor, name, reduction(op, average), scales), process_set)


def allreduce_(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    """Reduce a tensor in place."""
    return synchronize(allreduce_async_(tensor, *arguments, **options))


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begin to reduce tensors as one; they keep their values."""
    outputs = [torch.empty_like(tensor) for tensor in _checked(tensors)]
    scales = prescale_factor, postscale_factor
    return _submit(Allreduce(tensors, outputs, name, reduction(op, average), scales), process_set)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begin to reduce tensors as one, in place."""
    scales = prescale_factor, postscale_factor
    return _submit(Allreduce(_checked(tensors), tensors, name, reduction(op, average), scales), process_set)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> Any:
    """Reduce tensors as one, in place."""
    return synchronize(grouped_allreduce_async_(tensors, *arguments, **options))


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Begin to add sparse tensors; return a function that waits and returns the sum or average."""
    if op not in (Average, Sum):
        raise NotImplementedError("sparse tensors: Average and Sum alone")
    tensor = tensor.coalesce()
    indices = allgather_async(tensor.indices().t().contiguous(), f"{name}.indices", process_set)
    values = allgather_async(tensor.values(), f"{name}.values", process_set)

    def handle() -> torch.Tensor:
        numbers = synchronize(values)
        if op == Average:
            numbers = numbers / process_set.channel.size
        return torch.sparse_coo_tensor(
            synchronize(indices).t(), numbers, tensor.size(), check_invariants=False
        )

    return handle


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Operation:
    """Begin to concatenate the tensors of all ranks on their first dimension, which may differ."""
    return _submit(Allgather(_checked(tensor), name), process_set)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Operation:
    """Begin to concatenate each of several tensors."""
    return _submit(Allgather(_checked(tensors), name), process_set)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begin to send the root's tensor; the others' keep their values."""
    return _broadcast(tensor, torch.empty_like(_checked(tensor)), root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begin to send the root's tensor in place."""
    return _broadcast(tensor, tensor, root_rank, name, process_set)


def _broadcast(
    tensor: torch.Tensor, output: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
) -> Operation:
    if root_rank not in process_set.channel.ranks:
        raise HorovodInternalError(f"broadcast: the root, rank {root_rank}, is none of {process_set}")
    return _submit(Broadcast(_checked(tensor), output, name, root_rank), process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Send the root's tensor in place."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Operation:
    """Begin to send each rank its rows; the result has the lengths of what was received, too."""
    return _submit(Alltoall(_checked(tensor), splits, name, process_set.channel.size), process_set)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Operation:
    """Begin to reduce a tensor and to give each rank its rows."""
    scales = prescale_factor, postscale_factor
    return _submit(Reducescatter(_checked(tensor), name, reduction(op, None), scales), process_set)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Operation:
    """Begin to reduce tensors as one and to give each rank its rows of each."""
    scales = prescale_factor, postscale_factor
    return _submit(Reducescatter(_checked(tensors), name, reduction(op, None), scales), process_set)


def join(device: int = -1) -> int:
    """Take part in the others' allreduces with zeros until all have joined; return the rank that was last."""
    return global_process_set.channel.join()


def barrier(process_set: ProcessSet = global_process_set, name: str | None = None) -> None:
    """Wait until all ranks are here."""
    synchronize(_submit(Barrier(name), process_set))
