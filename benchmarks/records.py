"""Records as a lab makes them, in any number, for the benchmarks of what reads them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.results.store import Record, Store
from hvlab.workloads.metrics import METRICS

HOSTS = ("n1", "n2", "n3")
BACKENDS = {"mpi": "mpirun", "gloo": "horovodrun"}
SHAPES = ((1, 1), (1, 2), (2, 1), (3, 1), (3, 2))
SIZES = tuple(2**power for power in range(10, 27, 2))
COMPRESSIONS = ("none", "fp16", "8bit")
STACK = {
    "os": "Debian 12.11", "kernel": "6.1.0-37-amd64", "architecture": "x86_64", "cpus": 2, "gcc": "12.2.0",
    "openmpi": "4.1.8", "horovod": "0.28.1", "torch": "2.13.0+cpu", "python": "3.11.2",
    "nics": "1 x virtual Ethernet, 10 Gbit/s", "nic_driver": "veth", "mpi_cuda": "no",
}  # fmt: skip
TUNING = {"fusion_threshold": 134217728, "cycle_time": 1.0, "cache_capacity": 1024, "threads": 1}
COLLECTIVE = TUNING | {"iterations": 25, "dtype": "float32", "op": "sum", "form": "single", "device": "cpu"}
TRAINING = TUNING | {"data": "digits", "batch": 64, "epochs": 2, "scaling": "weak", "device": "cpu"}
_COLLECTIVE = (
    "time", "time_median", "time_low", "time_high", "time_min", "time_max", "algbw", "busbw", "warmup",
)  # fmt: skip
_TRAINING = (
    "step_time", "step_time_median", "step_time_low", "step_time_high", "step_time_min", "step_time_max",
    "step_time_sd", "throughput", "accuracy", "loss", "real", "user", "sys", "training_time", "startup",
    "compute_time", "gradient_bytes", "sent_bytes", "flops", "warmup",
)  # fmt: skip
RECORDS_A_CASE = (len(SIZES) * len(_COLLECTIVE) + len(_TRAINING)) / 2


def filled(store: Store, count: int, *, run_records: int) -> Store:
    """Put about ``count`` records into a store, in runs of about ``run_records``, a case at a time."""
    chance = random.Random(7)  # noqa: S311 - figures of a benchmark
    for number in range(max(1, round(count / run_records))):
        run_id = f"20261120T{number:06d}Z-ab12"
        cases = dict(_run(run_id, run_records, chance))
        store.create(run_id, lab="lab", spec_key="k", spec={}, cases=list(cases))
        for records in cases.values():
            store.add(records)
        store.enter(run_id, "finished")
    return store


def _run(run_id: str, count: int, chance: random.Random) -> Iterator[tuple[str, list[Record]]]:
    """Yield cases in turn, a collective and a training, until there are ``count`` records."""
    made = repeat = 0
    while made < count:
        repeat += 1
        for backend in BACKENDS:
            for hosts, slots in SHAPES:
                compression = COMPRESSIONS[repeat % len(COMPRESSIONS)]
                for workload, params, sizes, metrics in (
                    ("allreduce", COLLECTIVE, SIZES, _COLLECTIVE),
                    ("mnist", TRAINING | {"compression": compression}, (None,), _TRAINING),
                ):
                    case = f"{workload}-{backend}-{hosts}x{slots}-r{repeat}"
                    first = _first(run_id, case, backend, (hosts, slots)) | {
                        "workload": workload,
                        "repeat": repeat,
                    }
                    rows = [
                        _figure(
                            first, metric, params if size is None else {**params, "size_bytes": size}, chance
                        )
                        for size in sizes
                        for metric in metrics
                    ][: count - made]
                    made += len(rows)
                    if rows:
                        yield case, rows


def _first(run_id: str, case: str, backend: str, shape: tuple[int, int]) -> dict[str, Any]:
    hosts, slots = shape
    return {
        "run_id": run_id,
        "case_id": case,
        "started_at": "2026-11-20T15:53:01.000Z",
        "launcher": BACKENDS[backend],
        "backend": backend,
        "proved_backend": backend,
        "hosts": HOSTS[:hosts],
        "slots_per_host": slots,
        "world_size": hosts * slots,
        "status": "ok",
        "error": None,
        "stack": STACK,
        "raw_path": f"runs/{run_id}/{case}",
    }


def _figure(
    first: Mapping[str, Any], metric: str, params: Mapping[str, Any], chance: random.Random
) -> Record:
    """Return one value: larger messages take longer, more ranks too, and everything has its noise."""
    size = params.get("size_bytes", 2**20)
    ranks = first["world_size"]
    value = (1000 + size / 500) * (1 + 0.1 * ranks) * chance.uniform(0.95, 1.05)
    if METRICS[metric].unit == "GB/s":
        value = size / value / 1e3
    return Record(**first, params=params, metric=metric, value=value, unit=METRICS[metric].unit)
