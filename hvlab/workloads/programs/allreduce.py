"""Time Horovod's allreduce over a list of sizes, and prove what was measured.

Runs as every rank under any launcher; rank 0 writes one JSON file, nothing is printed. Needs Python 3.8+.

Conventions are those of nccl-tests: S is the size in bytes of one rank's buffer, algbw = S/t and
busbw = algbw * 2(n-1)/n. As in nccl-tests and osu_allreduce, t of one iteration is the mean over the ranks,
the ranks meet in a barrier before each iteration, and warm-up is not counted.
Every timed result is compared with the sum it must have: elements hold small whole numbers, which every
dtype holds exactly. With --device cuda the buffers are in GPU memory: a host's ranks take its GPUs in turn,
and the clock is read when the GPU has done its work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from typing import Any, Callable

import horovod
import horovod.torch as hvd
import torch

PATTERN = 4
PROOF_ELEMENTS = 4096


def main() -> int:
    """Return 0 when all checks are good."""
    options = parse()
    result: dict[str, Any] = {"checks": [], "sizes": [], "argv": sys.argv[1:]}
    hvd.init()
    started = time.time()
    result["world"] = check_world(options, result["checks"])
    if not result["checks"]:
        device = place(options.device)
        result["device"] = device
        for size in options.sizes:
            result["sizes"].append(measure(size, options, device, result["checks"]))
        result["proof"] = prove(options, device)
    result["state"] = state()
    result["measured_s"] = time.time() - started
    if hvd.rank() == 0:
        write(os.path.expanduser(options.output), result)
    hvd.barrier()
    hvd.shutdown()
    return 1 if result["checks"] else 0


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--hosts", type=int, required=True, help="how many hosts the ranks must be on")
    parser.add_argument("--sizes", type=lambda text: [int(x) for x in text.split(",")], required=True)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=os.environ.get("HVLAB_DEVICE", "cpu"))
    parser.add_argument("--output", required=True)
    return parser.parse_args()


def place(kind: str) -> str:
    """Return the device of this rank's buffers. Raises RuntimeError where torch can use no GPU."""
    if kind == "cpu":
        return kind
    count = torch.cuda.device_count()
    if not count:
        told = "rank {} on {} can use no GPU: torch {} was built for CUDA {}"
        built = torch.version.cuda or "none"
        raise RuntimeError(told.format(hvd.rank(), platform.node(), torch.__version__, built))
    index = hvd.local_rank() % count
    torch.cuda.set_device(index)
    return "{}:{}".format(kind, index)


def timed(operation: Callable[[], Any], device: str) -> float:
    """Return the seconds from the moment all ranks are ready until ``operation`` is done on the device."""
    wait(device)
    hvd.barrier()
    start = time.perf_counter()
    operation()
    wait(device)
    return time.perf_counter() - start


def wait(device: str) -> None:
    """Return when all that was given to a GPU is done."""
    if device != "cpu":
        torch.cuda.synchronize()


def check_world(options: argparse.Namespace, checks: list[str]) -> dict[str, Any]:
    """Return who is where; every rank sees the same answer, so all go on or none."""
    seen = hvd.size()
    counted = int(hvd.allreduce(torch.ones(1, dtype=torch.int64), op=hvd.Sum, name="world")[0])
    ranks = hvd.allgather_object((hvd.rank(), hvd.local_rank(), platform.node(), seen), name="placement")
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
    elif len(hosts) != options.hosts or any(sorted(found) != expected for found in hosts.values()):
        checks.append(
            "placement: asked for {} ranks on each of {} hosts, seen {}".format(
                len(expected), options.hosts, {host: len(found) for host, found in hosts.items()}
            )
        )
    return {"size": counted, "placement": [list(rank) for rank in sorted(ranks)]}


def measure(size: int, options: argparse.Namespace, device: str, checks: list[str]) -> dict[str, Any]:
    """Return the times of one size in seconds, for each iteration the mean and the longest of the ranks."""
    dtype = getattr(torch, options.dtype)
    count = size // torch.empty(0, dtype=dtype).element_size()
    steps = torch.arange(count) % PATTERN
    mine = (steps + hvd.rank() + 1).to(dtype).to(device)
    ranks = hvd.size()
    wanted = (steps * ranks + ranks * (ranks + 1) // 2).to(dtype).to(device)
    buffer = torch.empty_like(mine)
    name = "allreduce.{}.{}".format(options.dtype, size)
    times, wrong = [], 0
    for iteration in range(options.warmup + options.iterations):
        buffer.copy_(mine)
        elapsed = timed(lambda: hvd.allreduce_(buffer, op=hvd.Sum, name=name), device)
        wrong += int((buffer != wanted).sum())
        if iteration >= options.warmup:
            times.append(elapsed)
    total = int(hvd.allreduce(torch.tensor([wrong], dtype=torch.int64), op=hvd.Sum, name=name + ".wrong")[0])
    if total:
        checks.append("sums: {} wrong elements at {} bytes".format(total, size))
    own = torch.tensor(times, dtype=torch.float64)
    everyone = hvd.allgather(own.reshape(1, -1), name=name + ".times")
    return {
        "size_bytes": size,
        "count": count,
        "wrong": total,
        "mean_s": everyone.mean(dim=0).tolist(),
        "max_s": everyone.max(dim=0).values.tolist(),
    }


def prove(options: argparse.Namespace, device: str) -> dict[str, Any] | None:
    """Return the activities Horovod's timeline shows for one allreduce, outside the timed part."""
    path = os.path.join(os.path.dirname(os.path.expanduser(options.output)), "timeline.json")
    if hvd.rank() == 0:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    hvd.start_timeline(path)
    buffer = torch.ones(PROOF_ELEMENTS, dtype=getattr(torch, options.dtype), device=device)
    for step in range(3):
        hvd.allreduce_(buffer, op=hvd.Sum, name="proof.{}".format(step))
    hvd.stop_timeline()
    if hvd.rank() != 0:
        return None
    return {"timeline": os.path.basename(path), "activities": activities(path)}


def activities(path: str) -> list[str]:
    """Return the names of the timeline's events, read until its writer has closed the file."""
    names: list[str] = []
    deadline = time.time() + 5
    while time.time() < deadline:
        try:
            with open(path) as file:
                text = file.read().rstrip().rstrip(",")
            events = json.loads(text if text.endswith("]") else text + "]")
            names = sorted({event["name"] for event in events if event.get("ph") in ("B", "X")} - {""})
        except (OSError, ValueError):
            names = []
        if any(name.endswith("_ALLREDUCE") for name in names):
            break
        time.sleep(0.02)
    return names


def state() -> dict[str, Any]:
    """Return what Horovod says of itself, and the versions on this rank."""
    asked = ("mpi_enabled", "gloo_enabled", "nccl_built", "ccl_built", "mpi_threads_supported")
    told: dict[str, Any] = {}
    for name in asked:
        try:
            told[name] = int(getattr(hvd, name)())
        except (AttributeError, ValueError, RuntimeError) as error:
            told[name] = str(error)
    kept = ("HOROVOD_", "NCCL_", "CCL_", "FI_", "OMP_")
    return {
        "horovod": told,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "horovod": horovod.__version__,
        },
        "environment": {
            key: value
            for key, value in sorted(os.environ.items())
            if key.startswith(kept) and "SECRET" not in key and "KEY" not in key
        },
    }


def write(path: str, data: object) -> None:
    """Write ``data`` so that the file is whole or not there."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".part")
    with os.fdopen(descriptor, "w") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main())
