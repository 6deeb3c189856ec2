"""How often a 95 % band holds the truth, how wide it is, and how often nothing is predicted: simulated labs.

A scenario is a law that a lab follows: an algorithm of the allreduce, one or two levels, how much of it is
hidden, how much the ranks' compute varies. A simulated lab measures a sweep (1 KiB to 64 MiB) and a
training at one rank and at the given numbers of ranks (or of hosts), five repeats each. The noise is the
standard deviation of the logarithm of a launch, which all its sizes share; each size has 0.3 of it for
itself. A number of ranks differs from the law by 1 % or more whatever the repeats. Then steps are predicted
at 2 to 64 times the largest number of ranks.

For each factor: ``held`` of ``given`` bands hold the step that the law has there, with the exact 95 %
interval of the share (Clopper and Pearson 1934), ``held_speedup`` the speed-up; ``width`` is the median of
high over low end; ``reasons`` counts why labs got no prediction there. Each line is JSON, so that a long
simulation can be run in parts.

    python -m benchmarks.bench_model [--scenario ring ...] [--counts 2,4,8 ...] [--noise 0.03 ...] \
        [--runs 400]
"""

from __future__ import annotations

import collections
import json
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import click
import numpy as np
from scipy import special

from hvlab.analysis.model.costs import Cost
from hvlab.analysis.model.fit import Fit, fit
from hvlab.analysis.model.predict import predict
from hvlab.analysis.model.prediction import NoPrediction, Prediction
from hvlab.analysis.model.problem import Values, expected_maximum
from hvlab.analysis.model.step import BACKWARD
from hvlab.analysis.model.training import Scaling, Step, Sweep, SweepPoint, Topology, Training

FACTORS = (2, 4, 8, 16, 32, 64)
SIZES = tuple(1024 * 4**power for power in range(9))
REPEATS = 5
OWN = 0.3
STEPS = 50


@dataclass(frozen=True)
class Law:
    """What a lab takes, in seconds and bytes; ``exposed`` is the share of the allreduce that is not hidden.

    ``jitter`` is the standard deviation of a rank's steps over its compute. ``congestion``: by what share
    of itself the allreduce grows when the ranks double, which no algorithm of the model has. ``cache``: by
    what a byte takes longer above 4 MiB. ``flat``: a ring over all ranks, whatever hosts they are on.
    ``cores``: how many all ranks share, 0 where each has its own. ``layout``: the standard deviation by
    which a number of ranks differs from the law; ``outliers``: one launch in ten is slower, by ten
    deviations on average.
    """

    cost: Cost
    compute_s: float = 0.1
    size_bytes: float = 20e6
    exposed: float = 0.7
    jitter: float = 0.02
    overhead_s: float = 0.001
    congestion: float = 0.0
    cache: float = 1.0
    flat: bool = False
    cores: int = 0
    layout: float = 0.01
    outliers: bool = False
    scaling: Scaling = "weak"

    def allreduce(self, ranks: int, size: float) -> float:
        """Return the time of an allreduce."""
        cost = self.cost
        if size > 4 * 2**20:
            cost = replace(cost, beta_s_per_byte=cost.beta_s_per_byte * self.cache)
        if self.flat:
            cost = replace(cost, slots=1, inner_s_per_byte=0.0)
        return cost.seconds(ranks, size) * (1 + self.congestion * math.log2(ranks))

    def step(self, ranks: int) -> float:
        """Return the expected time of a training step."""
        compute = self.compute_s / (ranks if self.scaling == "strong" else 1)
        if self.cores:
            compute *= max(1.0, ranks / self.cores)
        if ranks == 1:
            return compute
        whole = self.allreduce(ranks, self.size_bytes)
        waiting = compute * self.jitter * float(expected_maximum([ranks])[0])
        return compute + waiting + self.overhead_s + max(self.exposed * whole, whole - BACKWARD * compute)


RING = Cost("ring", 30e-6, 1e-9, 1e-3)
TREE = Cost("tree", 100e-6, 1e-9, 1e-3)
HALVING = Cost("halving", 100e-6, 1e-9, 1e-3)
# The place of a scenario is part of its seed: a new one comes last.
SCENARIOS: Mapping[str, Law] = {
    "ring": Law(RING),
    "tree": Law(TREE),
    "halving": Law(HALVING),
    "ring-slow-start": Law(replace(RING, alpha_s=300e-6)),
    "two-levels": Law(replace(RING, inner_s_per_byte=0.3e-9, constant_s=1.1e-3, slots=4)),
    "two-levels-flat": Law(replace(RING, slots=4), flat=True),
    "compute-bound": Law(RING, compute_s=0.5, size_bytes=1e6, exposed=0.3),
    "communication-bound": Law(RING, compute_s=0.02, size_bytes=60e6, exposed=1.0),
    "jitter": Law(TREE, size_bytes=4e6, jitter=0.15),
    "strong": Law(TREE, compute_s=2.0, size_bytes=4e6, scaling="strong"),
    "cache": Law(RING, cache=1.5),
    "congestion": Law(RING, congestion=0.1),
    "layouts": Law(RING, layout=0.03),
    "outliers": Law(RING, outliers=True),
    "shared-cores": Law(RING, size_bytes=4e6, cores=2),
}


def simulated(
    law: Law, counts: tuple[int, ...], noise: float, draw: np.random.Generator
) -> tuple[Sweep, Training]:
    """Return what a lab under this law measures at these numbers of ranks, or of hosts."""

    def launches() -> Values:
        """Return by what the launches of a number of ranks are longer than the law has it."""
        logs = noise * draw.normal(size=REPEATS)
        if law.outliers:
            logs += noise * draw.exponential(10, size=REPEATS) * (draw.random(REPEATS) < 0.1)
        values: Values = np.exp(law.layout * draw.normal() + logs)
        return values

    topology: Topology = "across" if law.cost.slots == 1 else "both"
    points: list[SweepPoint] = []
    steps = []
    for ranks in (1, *(count * law.cost.slots for count in counts)):
        shared = launches()
        for size in SIZES if ranks > 1 else ():
            own = np.exp(OWN * noise * draw.normal(size=REPEATS))
            times = (law.allreduce(ranks, size) * shared * own).tolist()
            points.append(SweepPoint(ranks, size, statistics.median(times), dict(enumerate(times))))
        times = (law.step(ranks) * launches()).tolist()
        spread = law.compute_s * law.jitter * np.sqrt(draw.chisquare(STEPS - 1) / (STEPS - 1))
        steps.append(Step(ranks, tuple(times), sent_bytes=law.size_bytes, jitter_s=float(spread)))
    slots = law.cost.slots
    sweep = Sweep("mpi", "mpirun", topology, (), tuple(points), slots=slots)
    training = Training(
        "t", "mpi", "mpirun", topology, law.scaling, (), tuple(steps[1:]), steps[0], slots=slots
    )
    return sweep, training


def bounds(hits: int, runs: int) -> tuple[float, float]:
    """Return the exact two-sided 95 % interval of a share."""
    low = float(special.betaincinv(hits, runs - hits + 1, 0.025)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, runs - hits, 0.975)) if hits < runs else 1.0
    return round(low, 3), round(high, 3)


def simulate(
    scenario: str, counts: tuple[int, ...], noise: float, *, runs: int, seed: int
) -> list[dict[str, object]]:
    """Return for each factor how many bands held the truth, how wide they were, and why some are missing."""
    law = SCENARIOS[scenario]
    draw = np.random.default_rng([seed, list(SCENARIOS).index(scenario), *counts, round(1000 * noise)])
    largest = counts[-1] * law.cost.slots
    numbers = [largest * factor for factor in FACTORS]
    truth = {number: law.step(number) for number in numbers}
    held: collections.Counter[int] = collections.Counter()
    speedups: collections.Counter[int] = collections.Counter()
    widths: dict[int, list[float]] = {number: [] for number in numbers}
    reasons: dict[int, collections.Counter[str]] = {number: collections.Counter() for number in numbers}
    for _ in range(runs):
        sweep, training = simulated(law, counts, noise, draw)
        fitted = fit(sweep)
        answer = predict(training, fitted if isinstance(fitted, Fit) else None, ranks=numbers)
        steps = {step.ranks: step for step in answer.steps} if isinstance(answer, Prediction) else {}
        why = answer.reason if isinstance(answer, NoPrediction) else answer.limit
        for number in numbers:
            if number in steps:
                step = steps[number]
                widths[number].append(step.seconds.high / step.seconds.low)
                held[number] += int(step.seconds.low <= truth[number] <= step.seconds.high)
                work = number if law.scaling == "weak" else 1
                speedup = law.step(1) * work / truth[number]
                speedups[number] += int(step.speedup.low <= speedup <= step.speedup.high)
            else:
                reasons[number][why.key if why else "?"] += 1
    return [
        {
            "factor": factor,
            "given": len(widths[number]),
            "held": held[number],
            "held_speedup": speedups[number],
            "interval": bounds(held[number], len(widths[number])) if widths[number] else None,
            "width": round(statistics.median(widths[number]), 3) if widths[number] else None,
            "reasons": dict(reasons[number]),
        }
        for factor, number in zip(FACTORS, numbers, strict=True)
    ]


def _counts(texts: tuple[str, ...]) -> list[tuple[int, ...]]:
    return [tuple(int(part) for part in text.split(",")) for text in texts]


@click.command(help=__doc__)
@click.option("--scenario", "scenarios", multiple=True, type=click.Choice(list(SCENARIOS)))
@click.option(
    "--counts", multiple=True, default=["2,4,8"], show_default=True, help="Numbers of ranks, or of hosts."
)
@click.option("--noise", "noises", multiple=True, type=float, default=[0.03], show_default=True)
@click.option("--runs", default=400, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(
    *, scenarios: tuple[str, ...], counts: tuple[str, ...], noises: tuple[float, ...], runs: int, seed: int
) -> None:
    for scenario in scenarios or SCENARIOS:
        for numbers in _counts(counts):
            for noise in noises:
                begun = time.process_time()
                rows = simulate(scenario, numbers, noise, runs=runs, seed=seed)
                given = {"scenario": scenario, "counts": numbers, "noise": noise, "runs": runs}
                seconds = round(time.process_time() - begun, 1)
                for row in rows:
                    click.echo(json.dumps({**given, **row, "cpu_s": seconds}))


if __name__ == "__main__":
    main()
