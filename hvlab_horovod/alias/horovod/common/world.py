"""The ranks, as torch.distributed connects them, and the processes' place among them."""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import os
import socket
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import place, timeline
from .channel import Channel

# torch's own: a rank may write a checkpoint meanwhile. A lost rank's connections end at once.
PATIENCE = timedelta(minutes=30)
# A rank that is later by more does something of its own, such as a last evaluation.
LEAVING_S = 5
# Time for Gloo's threads to drop their last tensors, for which they need Python's lock. The interpreter's end
# denies it, and they abort the process; with torch 2.4, so does the end of a group, which waits for ever.
LAST_S = 0.1
# Interfaces as Horovod's scripts name them.
INTERFACES = {"HOROVOD_GLOO_IFACE": ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")}
_stores: dict[tuple[str, int], Any] = {}


class World:
    """All ranks of a job. ``channels`` are the process sets, by their numbers."""

    def __init__(self) -> None:
        self.place = own = place.find()
        for name, targets in INTERFACES.items():
            for target in targets if name in os.environ else ():
                os.environ.setdefault(target, os.environ[name])
        self.owned = not dist.is_initialized()
        if self.owned:
            backend = (
                "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
            )
            store = dist.PrefixStore(f"hvlab_horovod.{World.count}", _meeting_store(own))
            dist.init_process_group(
                backend, store=store, rank=own.rank, world_size=own.size, timeout=PATIENCE
            )
        World.count += 1
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.channels = {0: Channel(dist.group.WORLD, list(range(self.size)))}
        places: list[Any] = [None] * self.size
        dist.all_gather_object(places, (socket.gethostname(), own.local_rank))
        hosts = [host for host, _ in places]
        local_ranks = [
            hosts[:rank].count(host) if given < 0 else given for rank, (host, given) in enumerate(places)
        ]
        self.local_rank: int = local_ranks[self.rank]
        self.local_size = own.local_size or hosts.count(hosts[self.rank])
        peers = [rank for rank, local_rank in enumerate(local_ranks) if local_rank == self.local_rank]
        self.cross_rank, self.cross_size = peers.index(self.rank), len(peers)
        self.homogeneous = len({hosts.count(host) for host in hosts}) == 1

    count = 0

    def leave(self) -> None:
        """Close the connections to the other ranks.

        Gloo closes them at once: what a slower rank has not received of the last operation would be lost.
        """
        if self.owned:
            with contextlib.suppress(RuntimeError):
                self.channels[0].leave(LEAVING_S)
            time.sleep(LAST_S)
            dist.destroy_process_group()


def _meeting_store(own: place.Place) -> Any:
    """Return the store through which the ranks find one another; it lives as long as the process.

    Rank 0 serves it, on the ranks' network alone if the address is the host's there; torchrun serves its own.
    """
    key = own.address, own.port
    if key not in _stores:
        # A rank alone, without a port, meets nobody.
        served = own.port and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        master = own.rank == 0 and not served
        bound: dict[str, Any] = {}
        if master and own.port:
            with contextlib.suppress(ValueError, OSError):
                family = {4: socket.AF_INET, 6: socket.AF_INET6}[ipaddress.ip_address(own.address).version]
                listener = socket.create_server(key, family=family)
                # Under libuv, releases such as torch 2.4 take no socket.
                bound = {"master_listen_fd": listener.detach(), "use_libuv": False}
        _stores[key] = dist.TCPStore(*key, own.size, master, timedelta(seconds=120), **bound)
    return _stores[key]


_worlds: list[World] = []


def world() -> World:
    """Return the ranks. Raises ValueError before hvd.init()."""
    if not _worlds:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _worlds[0]


def is_initialized() -> bool:
    """Return whether hvd.init() was called, and hvd.shutdown() was not since."""
    return bool(_worlds)


def enter() -> World:
    """Connect the ranks, unless they are.

    HOROVOD_TIMELINE names a timeline; DYNAMIC leaves it to ``hvd.start_timeline()``, as Horovod has it.
    """
    if not _worlds:
        _worlds.append(World())
        if (path := os.environ.get("HOROVOD_TIMELINE", "DYNAMIC")) != "DYNAMIC":
            timeline.start(path, os.environ.get("HOROVOD_TIMELINE_MARK_CYCLES") == "1")
            atexit.register(timeline.stop, _worlds[0].rank == 0)
    return _worlds[0]


def leave() -> None:
    """Disconnect the ranks."""
    while _worlds:
        timeline.stop(_worlds[0].rank == 0)
        _worlds.pop().leave()
