"""Records as a lab makes them, in any number, for the benchmarks of what reads them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
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
# Of a training of this data, batch and number of epochs on one rank.
STEPS = 46
_TIMED = {"time": 1e-6, "step_time": 1.0}
RECORDS_A_CASE = (len(SIZES) * len(_COLLECTIVE) + len(_TRAINING)) / 2


def filled(store: Store, count: int, *, run_records: int, files: bool = False) -> Store:
    """Put about ``count`` records into a store, in runs of about ``run_records``, a case at a time.

    With ``files``, each case has its result.json too, with the iterations or steps that its figures are of.
    """
    chance = random.Random(7)  # noqa: S311 - figures of a benchmark
    noise = random.Random(8)  # noqa: S311 - figures of a benchmark
    for number in range(max(1, round(count / run_records))):
        run_id = f"20261120T{number:06d}Z-ab12"
        cases = dict(_run(run_id, run_records, chance))
        store.create(run_id, lab="lab", spec_key="k", spec={}, cases=list(cases))
        for records in cases.values():
            store.add(records)
            if files:
                _write_result(store, records, noise)
        store.enter(run_id, "finished")
    return store


def _run(run_id: str, count: int, chance: random.Random) -> Iterator[tuple[str, list[Record]]]:
    """Yield cases in turn, a collective and a training, until there are ``count`` records."""
    written = repeat = 0
    while written < count:
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
                    ][: count - written]
                    written += len(rows)
                    if rows:
                        yield case, rows


def _write_result(store: Store, records: Sequence[Record], noise: random.Random) -> None:
    """Write what the program of a case writes: how long each iteration of each size took, or each step."""
    sizes, steps = [], {}
    for record in records:
        if record.metric not in _TIMED or record.value is None:
            continue
        count = record.params.get("iterations", STEPS)
        mean_s = [record.value * _TIMED[record.metric] * noise.uniform(0.95, 1.05) for _ in range(count)]
        times = {"mean_s": mean_s, "max_s": [1.02 * seconds for seconds in mean_s]}
        if "size_bytes" in record.params:
            sizes.append({"size_bytes": record.params["size_bytes"], **times})
        else:
            steps = times
    folder = store.folder / records[0].raw_path
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"sizes": sizes, "steps": steps}), "utf-8")


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
