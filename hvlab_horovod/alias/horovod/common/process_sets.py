"""Sets of ranks that work together beside the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from .channel import Channel
from .world import World, is_initialized, world


class ProcessSet:
    """Ranks, once registered under a number: by hvd.init() or add_process_set()."""

    def __init__(self, ranks_or_comm: Sequence[int]) -> None:
        if hasattr(ranks_or_comm, "Get_group"):
            raise NotImplementedError("no process set of an MPI communicator; what to do: name its ranks")
        self.ranks: list[int] | None = sorted(ranks_or_comm)
        if any(not isinstance(rank, int) for rank in self.ranks):
            raise ValueError(f"a process set is a list of ranks, not {ranks_or_comm}")
        self.process_set_id: int | None = None

    def size(self) -> int | None:
        """Return the number of ranks."""
        return self.channel.size if self.process_set_id is not None else None

    def rank(self) -> int | None:
        """Return this process' rank inside the set."""
        if self.process_set_id is None or not self.included():
            return None
        return self.channel.ranks.index(world().rank)

    def included(self) -> bool | None:
        """Return whether this process is one of the set's ranks."""
        return None if self.ranks is None else world().rank in self.ranks

    @property
    def channel(self) -> Channel:
        """The set's operations. Raises ValueError if it is not registered."""
        if self.process_set_id is None:
            raise ValueError(f"{self} is not registered; what to do: hvd.add_process_set() on all ranks")
        return world().channels[self.process_set_id]

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm=None)"


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0
_registered: list[ProcessSet] = []


def begin(own: World, process_sets: Any) -> None:
    """Register the first sets of a job; ``process_sets`` as hvd.init() takes them."""
    global_process_set.ranks = list(range(own.size))
    for each in process_sets if isinstance(process_sets, (list, tuple)) else ():
        add_process_set(each)


def end() -> None:
    """Forget all sets but the global one, which hvd.shutdown() leaves without ranks."""
    while _registered:
        _registered.pop().process_set_id = None


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set, on all ranks at once. Raises ValueError if its ranks are one already."""
    own = world()
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    ranks = added.ranks or []
    if any(channel.ranks == ranks for channel in own.channels.values()):
        raise ValueError(f"a process set of these ranks exists: {added}")
    if ranks and not 0 <= ranks[0] <= ranks[-1] < own.size:
        raise ValueError(f"no such ranks among {own.size}: {added}")
    group = dist.new_group(ranks)
    added.process_set_id = max(own.channels) + 1
    own.channels[added.process_set_id] = Channel(group, ranks)
    _registered.append(added)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forget a set, on all ranks at once; return whether there was one."""
    number = process_set.process_set_id
    if not number or not is_initialized():
        return False
    del world().channels[number]
    _registered.remove(process_set)
    process_set.process_set_id = None
    return True
