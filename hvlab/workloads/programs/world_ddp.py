"""The ranks of a case, as torch.distributed connects them; Horovod is not imported.

Needs Python 3.8+ and torch 2.1+.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
from datetime import timedelta
from typing import Any, Mapping, Sequence

import torch
import torch.distributed as dist

import launched
import profiled
import ranks

# As long as Horovod waits for ranks that do not answer.
PATIENCE = timedelta(seconds=80)


def meeting_place(rank: int, size: int, environment: Mapping[str, str]) -> Any:
    """Return the store through which the ranks find one another; rank 0 serves it, or torchrun.

    It listens on the ranks' network alone if ``MASTER_ADDR`` is the host's address there, else on all.
    """
    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    bound: dict[str, Any] = {}
    serves = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if serves:
        with contextlib.suppress(ValueError, OSError):
            family = {4: socket.AF_INET, 6: socket.AF_INET6}[ipaddress.ip_address(host).version]
            listener = socket.create_server((host, port), family=family)
            # Under libuv, releases such as torch 2.4 take no socket.
            bound = {"master_listen_fd": listener.detach(), "use_libuv": False}
    return dist.TCPStore(host, port, size, serves, PATIENCE, **bound)


class Group:
    """A process group with Horovod's names for the calls that programs make.

    ``name`` is torch's: gloo, nccl or mpi. Messages of ranks beside the measurement go through ``control``,
    which takes tensors of CPUs.
    """

    Sum, Average, Max, Adasum = "sum", "average", "max", "adasum"

    def __init__(self, name: str) -> None:
        self.name = name
        rank, size, self.own_local_rank = launched.place()
        if name == "mpi":
            dist.init_process_group(name)
        else:
            store = meeting_place(rank, size, os.environ)
            dist.init_process_group(name, store=store, rank=rank, world_size=size, timeout=PATIENCE)
        self.control = dist.new_group(backend="gloo") if name == "nccl" else dist.group.WORLD

    def allreduce_async_(self, tensor: torch.Tensor, op: str, name: str) -> Any:
        reduction = dist.ReduceOp.MAX if op == self.Max else dist.ReduceOp.SUM
        return dist.all_reduce(tensor, op=reduction, async_op=True), tensor, op

    def allreduce_async(self, tensor: torch.Tensor, op: str, name: str) -> Any:
        return self.allreduce_async_(tensor.clone(), op, name)

    def synchronize(self, handle: Any) -> torch.Tensor:
        work, tensor, op = handle
        work.wait()
        result: torch.Tensor = tensor.div_(dist.get_world_size()) if op == self.Average else tensor
        return result

    def allreduce(self, tensor: torch.Tensor, op: str, name: str) -> torch.Tensor:
        return self.synchronize(self.allreduce_async(tensor, op, name))

    def broadcast_(self, tensor: torch.Tensor, root: int, name: str) -> torch.Tensor:
        dist.broadcast(tensor, root)
        return tensor

    def broadcast(self, tensor: torch.Tensor, root: int, name: str) -> torch.Tensor:
        return self.broadcast_(tensor.clone(), root, name)

    def allgather(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        every = tensor.new_empty((tensor.shape[0] * dist.get_world_size(), *tensor.shape[1:]))
        dist.all_gather_into_tensor(every, tensor)
        return every

    def alltoall(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        received = torch.empty_like(tensor)
        dist.all_to_all_single(received, tensor)
        return received

    def reducescatter(self, tensor: torch.Tensor, op: str, name: str) -> torch.Tensor:
        part = tensor.new_empty((tensor.shape[0] // dist.get_world_size(), *tensor.shape[1:]))
        dist.reduce_scatter_tensor(part, tensor, op=dist.ReduceOp.SUM)
        return part.div_(dist.get_world_size()) if op == self.Average else part

    def broadcast_parameters(self, state: Any, root_rank: int) -> None:
        for tensor in state.values():
            dist.broadcast(tensor, root_rank)


class Ranks(ranks.Ranks):
    """All ranks that torch.distributed connects. Raises ranks.UnavailableError without such a group."""

    ddp, library = True, "torch"

    def __init__(self, name: str) -> None:
        if not getattr(dist, "is_{}_available".format(name))():
            message = "torch {} was built without {}".format(torch.__version__, name)
            raise ranks.UnavailableError(message, launched.place()[0])
        self.hvd = self.group = Group(name)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.profile = profiled.Profile(self.rank)
        self.local_rank = self.group.own_local_rank

    def gather(self, data: Any, name: str) -> list[Any]:
        # Tensors only: torch unpickles objects, and a stranger may have connected in a rank's place.
        text = list(json.dumps(data).encode())
        lengths = [length for (length,) in self._gather([len(text)], torch.int64)]
        padded = text + [0] * (max(lengths) - len(text))
        texts = self._gather(padded, torch.uint8)
        return [json.loads(bytes(numbers[:length])) for numbers, length in zip(texts, lengths)]

    def _gather(self, numbers: list[int], dtype: torch.dtype) -> list[list[int]]:
        own = torch.tensor(numbers, dtype=dtype)
        every = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(every, own, group=self.group.control)
        return [tensor.tolist() for tensor in every]

    def total(self, values: Sequence[float], name: str) -> list[float]:
        own = torch.tensor([float(value) for value in values], dtype=torch.float64)
        dist.all_reduce(own, group=self.group.control)
        return [float(value) for value in own]

    def barrier(self) -> None:
        dist.barrier(group=self.group.control)

    def state(self) -> dict[str, Any]:
        return {"ddp": {"backend": dist.get_backend(), "size": dist.get_world_size()}}

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}

    def leave(self) -> None:
        """Leave the process group; a faster rank may already have closed its connections."""
        for step in (self.barrier, dist.destroy_process_group):
            with contextlib.suppress(RuntimeError):
                step()
