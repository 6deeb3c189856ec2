"""A small run with all kinds of cases, for the tests of what it is written as."""

from dataclasses import replace

from hvlab.results.formats import MeasuredRun
from hvlab.results.store import Record, Run
from hvlab.workloads.metrics import METRICS

# Before each line: mpirun --tag-output (with --timestamp-output too), prterun, srun -l, Intel's mpirun -l,
# kubectl logs --prefix and --timestamps, docker compose, pdsh, a terminal's colours, a list in Markdown.
PREFIXES = (
    "[1,0]<stdout>:", "Tue Jul 18 09:41:03 2017[1,0]<stdout>:", "[prterun-n1-1234@1,0]<stdout>: ",
    "0: ", " 12: ", "[0] ", "[pod/nccl-launcher-x7f2k/launcher] ", "2026-01-23T10:00:00.123456789Z ",
    "bench-1  | ", "n1: ", "gpu-1-7.cluster: ", "\x1b[32m", "    ", "> ",
)  # fmt: skip
RUN = Run(
    "20261120T155301Z-ab12", "2026-11-20T15:53:01.000Z", 'lab "7"\\', "finished", ("c1", "c2", "c3", "c4")
)
PARAMS = {
    "iterations": 25, "dtype": "float32", "op": "sum", "form": "single", "cycle_time": 1.0, "threads": 1,
    "device": "cpu",
}  # fmt: skip
BASE = Record(
    run_id=RUN.run_id, case_id="c1", started_at="2026-11-20T15:53:02.000Z", workload="allreduce",
    launcher="mpirun", backend="mpi", proved_backend="mpi", hosts=("n1", "n2"), slots_per_host=2,
    world_size=4, params={}, repeat=1, metric=None, value=None, unit=None, status="ok", error=None,
    stack={"openmpi": "4.1.8", "cpus": {"n1": 2, "n2": 4}}, raw_path="runs/20261120T155301Z-ab12/c1",
)  # fmt: skip
TIMES = {1024: 1103.25, 1048576: 4366.46, 67108864: 114977.06}


def figures(case, **params):
    """The records of a collective's case, all sizes."""
    for size, time in TIMES.items():
        values = {
            "time": time, "time_median": time * 0.99, "time_min": time * 0.9, "time_max": time * 1.5,
            "algbw": size / time / 1e3, "busbw": size / time / 1e3 * 1.5, "warmup": 3.0,
        }  # fmt: skip
        for metric, value in values.items():
            told = PARAMS | params | {"size_bytes": size}
            yield replace(case, params=told, metric=metric, value=value, unit=METRICS[metric].unit)


def training(case):
    """The records of a training."""
    values = {
        "step_time": 0.0312,
        "throughput": 2051.5,
        "accuracy": 98.3,
        "gradient_bytes": 87720.0,
        "flops": 2.4e6,
    }
    for metric, value in values.items():
        yield replace(case, metric=metric, value=value, unit=METRICS[metric].unit)
    told = {**case.params, "host": "n1"}
    yield replace(case, params=told, metric="host_compute_time", value=0.02, unit="s")


MNIST = replace(
    BASE, case_id="c3", workload="mnist", backend="gloo", launcher="horovodrun", proved_backend="gloo",
    params={"data": "digits", "batch": 64, "compression": "none", "in-place": True},
)  # fmt: skip
FAILED = replace(
    BASE, case_id="c4", backend="gloo", launcher="horovodrun", proved_backend=None, world_size=None,
    params=PARAMS | {"in_place": True}, status="failed",
    error='rank 1 said "no"\nand a \x00 byte: back\\slash',
)  # fmt: skip
SKIPPED = replace(FAILED, case_id="c5", status="skipped", error="gloo is not built")


def measured():
    """The run: a collective in place and out of place, a training, one that failed, one left out."""
    records = [
        *figures(BASE, in_place=True),
        *figures(replace(BASE, case_id="c2"), in_place=False),
        *training(MNIST),
        FAILED,
        SKIPPED,
    ]
    return MeasuredRun(RUN, records, {"c1": 12.5, "c4": 1234.5678})
