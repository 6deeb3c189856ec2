"""Configurations of sweeps and trainings made from known costs, for the tests of the model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.costs import Cost
from hvlab.analysis.model.fit import Fit, fit
from hvlab.analysis.model.training import Sweep, SweepPoint
from hvlab.report.words import load
from hvlab.results.configurations import Configuration, Repeats

SIZES = tuple(1024 * 4**power for power in range(9))
RING = Cost("ring", 20e-6, 1e-9, 1e-3)
SWEPT = {"dtype": "float32", "op": "sum", "device": "cpu"}


def phrase(explanation: Explanation) -> str:
    """An explanation as a report says it."""
    return load("en").explain(explanation).replace("\N{NO-BREAK SPACE}", " ")


def measured(**metrics: Iterable[float]) -> Repeats:
    """What came of a configuration: each metric's values, one a repeat."""
    values = {name: dict(enumerate(found, 1)) for name, found in metrics.items()}
    return Repeats(values=values, ok={repeat for found in values.values() for repeat in found})


def configuration(
    workload: str, backend: str = "mpi", *, hosts: int = 1, slots: int = 1, **params: Any
) -> Configuration:
    """A configuration on the first hosts."""
    launcher = "local" if backend == "serial" else "mpirun"
    names = tuple(f"n{number}" for number in range(1, hosts + 1))
    return Configuration(workload, backend, launcher, names, slots, tuple(sorted(params.items())))


def swept(
    cost: Cost,
    *,
    ranks: Iterable[int] = (2, 3, 4),
    backend: str = "mpi",
    inside: bool = False,
    sizes: Iterable[int] = SIZES,
    noise: float = 0.0,
    seed: int = 1,
    **params: Any,
) -> dict[Configuration, Repeats]:
    """Configurations of a sweep that takes what ``cost`` says, times exp(noise)."""
    drawn = random.Random(seed)  # noqa: S311 - noise
    found = {}
    for number in ranks:
        place = {"slots": number} if inside else {"hosts": number}
        for size in sizes:
            time = cost.seconds(number, size) * 1e6
            times = [time * pow(2.718281828, drawn.gauss(0, noise)) for _ in range(3)]
            made = configuration("allreduce", backend, **place, **SWEPT, **params, size_bytes=size)
            found[made] = measured(time=times, time_median=times)
    return found


def sweep(
    cost: Cost,
    *,
    ranks: Iterable[int] = (2, 3, 4),
    sizes: Iterable[int] = SIZES,
    noise: float = 0.0,
    seed: int = 1,
    params: Mapping[str, Any] = SWEPT,
) -> Sweep:
    """The same as a sweep, one value a point."""
    drawn = random.Random(seed)  # noqa: S311 - noise
    points = tuple(
        SweepPoint(number, size, cost.seconds(number, size) * pow(2.718281828, drawn.gauss(0, noise)))
        for number in ranks
        for size in sizes
    )
    return Sweep("mpi", "mpirun", "across", tuple(sorted(params.items())), points)


def fitted(cost: Cost, **options: Any) -> Fit:
    """The fit of a sweep that carries one."""
    found = fit(sweep(cost, **options))
    assert isinstance(found, Fit)
    return found


def trained(
    ranks: int,
    step: float,
    *,
    compute: float | None = None,
    hosts: Mapping[str, float] | None = None,
    workload: str = "mnist",
    backend: str = "mpi",
    inside: bool = False,
    sent: float | None = 4e6,
    flops: float = 1e9,
    startup: float | None = None,
    noise: float = 0.0,
    **params: Any,
) -> tuple[Configuration, Repeats]:
    """A training configuration of three repeats, ``step`` and ``compute`` in seconds."""
    given: dict[str, Any] = {"batch": 64, "scaling": "weak", "compression": "none", "device": "cpu"} | params
    place = {"slots": ranks} if inside else {"hosts": ranks}
    steps = [step * (1 - noise), step, step * (1 + noise)]
    batch = given["batch"] * (1 if given["scaling"] == "strong" else ranks)
    metrics: dict[str, Any] = {
        "step_time": steps,
        "throughput": [batch / seconds for seconds in steps],
        "training_time": [100 * seconds for seconds in steps],
        "flops": [flops],
        "gradient_bytes": [sent] * (sent is not None),
        "compute_time": [compute] * (compute is not None),
        "startup": [startup] * (startup is not None),
    }
    made = measured(**metrics)
    for name, seconds in (hosts or {}).items():
        made.hosts[name] = {"host_compute_time": {1: seconds}}
    return configuration(workload, backend, **place, **given), made
