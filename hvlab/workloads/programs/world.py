"""A case among its ranks: whether they are as requested, the proof, and the file of results.

Shared by the programs that run as every rank under any launcher. Needs Python 3.8+.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import time
from importlib import import_module
from typing import Any, Callable, Sequence

import case
import evidence
import launched
import stolen
from ranks import Alone, Ranks, UnavailableError

with contextlib.suppress(ImportError):  # TensorFlow's environment has none
    import torch

PROOF_CALLS = 3
ANOTHER_HOST = (
    ": a host's name leads to another host; what to do: `getent hosts` with each name on the first host has "
    "to give the host's own address, else correct /etc/hosts or DNS there"
)


def parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--hosts", type=int, required=True, help="how many hosts the ranks must be on")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=os.environ.get("HVLAB_DEVICE", "cpu"))
    parser.add_argument("--serial", action="store_true", help="one process, without Horovod")
    parser.add_argument("--ddp", default="", help="a group of torch.distributed in Horovod's place")
    parser.add_argument(
        "--sharded", action="store_true", help="with --ddp: each rank keeps a part of the weights"
    )
    parser.add_argument("--output", type=os.path.expanduser, required=True)
    return parser


def flag(text: str) -> bool:
    return {"true": True, "false": False}[text]


def run(
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace, Alone, dict[str, Any]], None],
    kinds: tuple[Callable[[], Alone], Callable[[], Alone]] = (Alone, Ranks),
) -> int:
    """Measure among the requested ranks, and write the result; return 0 if all checks passed.

    ``measure`` gets the options, the world and the result, which it fills in. ``kinds`` make the world of one
    process and that of ranks.
    """
    result: dict[str, Any] = {"checks": []}
    launched.place_workers(options.world_size // options.hosts)
    try:
        world = connect(options, kinds)
    except UnavailableError as error:
        if error.rank == 0:
            write(options.output, {"unavailable": str(error)})
        return 0
    started = time.time()
    result["world"] = check_world(options, world, result["checks"])
    if not result["checks"]:
        result["device"] = world.place(options.device)
        before, counted = evidence.read_sent(), stolen.read()
        measure(options, world, result)
        result["stolen"] = collect_taken(world, stolen.since(counted))
        result["wire"] = {"sent_bytes": collect_sent(world, evidence.since(before))}
        result["wire"]["carriers"] = evidence.carriers(result["wire"]["sent_bytes"])
    result["state"] = evidence.state(world)
    result["measured_s"] = time.time() - started
    if world.rank == 0:
        write(options.output, result)
    world.leave()
    return 1 if result["checks"] else 0


def end(status: int) -> None:
    """End this process without the interpreter's own end.

    It takes half a second, and Gloo's threads abort it if they still release tensors: for that they need
    Python's lock.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def connect(options: argparse.Namespace, kinds: tuple[Callable[[], Alone], Callable[[], Alone]]) -> Alone:
    """Return the world of this process. Raises UnavailableError."""
    if options.ddp:
        world: Alone = import_module("world_ddp").Ranks(options.ddp)
        world.sharded = options.sharded
        return world
    return kinds[not options.serial]()


def check_world(options: argparse.Namespace, world: Alone, checks: list[str]) -> dict[str, Any]:
    """Return the placement; every rank sees the same answer, so all continue or none."""
    counted = int(world.total([1], "world")[0])
    ranks = world.gather((world.rank, world.local_rank, platform.node(), world.size), "placement")
    hosts: dict[str, list[int]] = {}
    for _, local_rank, host, _ in ranks:
        hosts.setdefault(host, []).append(local_rank)
    expected = list(range(options.world_size // options.hosts))
    sizes = sorted({size for _, _, _, size in ranks})
    if sizes != [options.world_size] or counted != options.world_size:
        checks.append(
            "world size: asked for {}, ranks see {}, {} ranks took part".format(
                options.world_size, sizes, counted
            )
        )
    elif len(hosts) != options.hosts or any(sorted(ranks) != expected for ranks in hosts.values()):
        checks.append(
            "placement: asked for {} ranks on each of {} hosts, but there are {}{}".format(
                len(expected),
                options.hosts,
                {host: len(ranks) for host, ranks in hosts.items()},
                ANOTHER_HOST if len(hosts) < options.hosts else "",
            )
        )
    return {"size": counted, "placement": [list(rank) for rank in sorted(ranks)]}


def collect_sent(world: Alone, bytes_by_device: dict[str, int]) -> dict[str, dict[str, int]]:
    """Return the bytes sent by each host's devices, once for each host."""
    answers = world.gather((platform.node(), world.local_rank, bytes_by_device), "wire")
    return {host: counts for host, local_rank, counts in answers if local_rank == 0}


def collect_taken(world: Alone, counted: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each host's counters of others' use, with the own compute time of all its ranks."""
    hosts: dict[str, dict[str, Any]] = {}
    computed: dict[str, float] = {}
    for host, local_rank, counters in world.gather((platform.node(), world.local_rank, counted), "stolen"):
        computed[host] = computed.get(host, 0.0) + counters["own_s"]
        if local_rank == 0:
            hosts[host] = counters
    return {host: dict(counters, own_s=computed[host]) for host, counters in hosts.items()}


def time_operation(operation: Callable[[], Any], world: Alone, device: str) -> float:
    """Return the seconds from the moment all ranks are ready until ``operation`` is done on the device."""
    wait(device)
    world.barrier()
    start = time.perf_counter()
    operation()
    wait(device)
    return time.perf_counter() - start


def wait(device: str) -> None:
    """Wait for the GPU to finish."""
    if device != "cpu":
        torch.cuda.synchronize()


def prove(
    output: str, world: Alone, operation: Callable[[str], Any], shown: Sequence[str]
) -> dict[str, Any] | None:
    """Return the activities in Horovod's timeline, or torch's profile, for an operation, untimed.

    ``operation`` is called with a name for its tensors; ``shown`` are the ends of the activities that count.
    """
    if world.hvd:
        path = os.path.join(os.path.dirname(output), "timeline.json")
        if world.rank == 0:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        recorder = world.profile or world.hvd
        recorder.start_timeline(path)
        for call in range(PROOF_CALLS):
            operation("proof.{}".format(call))
        recorder.stop_timeline()
        if world.rank == 0:
            # Horovod is still writing the file, torch's profiler has written it.
            ends = () if world.profile else shown
            names = evidence.activities(path, ends)
            called = world.profile.counts if world.profile else {}
            counts = {name: count / PROOF_CALLS for name, count in called.items()}
            return {"timeline": os.path.basename(path), "activities": names, "counts": counts}
    return None


def write(path: str, data: object) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    case.write(*os.path.split(path), data)
