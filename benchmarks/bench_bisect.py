"""How often bisections name the planted change, and how many stacks and launches they take, by simulation.

Each search has a chain of changes of which one costs time, or two that only do together, or none. A launch
takes the time of its stack times noise (log-normal); a run is judged as ``hvlab bisect`` does, with
as many repeats. Every other change costs nothing. Shares are printed as JSON lines.

    python -m benchmarks.bench_bisect [--searches 400]
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection

import click
import numpy as np

from hvlab.searches.bisect.judge import REPEATS, Effect
from hvlab.searches.bisect.result import search
from hvlab.statistics.interval import Interval, medians
from hvlab.statistics.verdict import Pair, compare_all


class Simulated:
    """A judge of stacks of which those with all of ``planted`` take ``cost`` times as long."""

    def __init__(self, planted: Collection[int], cost: float, noise: float, seed: int) -> None:
        self.planted, self.cost, self.noise = set(planted), math.log(cost), noise
        self.random = np.random.default_rng(seed)
        self.launches = 0
        self.known: dict[tuple[int, ...], Effect] = {}

    def effect(self, numbers: tuple[int, ...], half: float | None) -> Effect:
        """Return how much slower these changes are than none."""
        if numbers not in self.known:
            for repeats in REPEATS if half is not None else REPEATS[:2]:
                measured = self.known[numbers] = self._measured(numbers, repeats)
                if measured.slower if half is None else measured.clear_of(half):
                    break
        return self.known[numbers]

    def _measured(self, numbers: tuple[int, ...], repeats: int) -> Effect:
        self.launches += 2 * repeats
        shift = self.cost if self.planted and self.planted <= set(numbers) else 0.0
        noise = self.random.normal(0, self.noise, (2, repeats))
        a, b = np.exp(noise + np.array([[0.0], [shift]])).tolist()
        ratio = medians(b, a) or Interval(1.0, 1.0, 1.0)
        [verdict] = compare_all([Pair(dict(enumerate(a)), dict(enumerate(b)))])
        logs = Interval(math.log(ratio.low), math.log(ratio.mid), math.log(ratio.high))
        return Effect(logs, slower=verdict.kind == "faster", run_id="")


def one(count: int, planted: Collection[int], cost: float, noise: float, seed: int) -> tuple[bool, int, int]:
    """Return whether a search answers rightly, how many stacks it tried, and how many launches it took."""
    judge = Simulated(planted, cost, noise, seed)
    whole = judge.effect(tuple(range(count)), None)
    if not whole.slower:
        return not planted, len(judge.known), judge.launches
    half = whole.log.mid / 2
    every = set(range(count))
    culprit = search(
        count,
        lambda numbers: judge.effect(numbers, half).log.mid > half,
        lambda numbers: tuple(sorted(every.difference(numbers))),
    )
    right = set(culprit.changes) == set(planted) and culprit.sole is True and culprit.whole is True
    return right, len(judge.known), judge.launches


@click.command()
@click.option("--searches", default=400, show_default=True, help="Searches of each kind.")
def main(searches: int) -> None:
    """Simulate searches with one cause, with two that only cost together, and with none."""
    random = np.random.default_rng(0)
    for kind, causes in (("one", 1), ("two together", 2), ("none", 0)):
        for count in (4, 16, 64):
            for cost, noise in ((1.3, 0.05), (1.1, 0.02), (1.1, 0.05), (1.05, 0.02)):
                answers = [
                    one(count, random.choice(count, causes, replace=False).tolist(), cost, noise, seed)
                    for seed in range(searches)
                ]
                right, stacks, launches = np.mean(np.array(answers, dtype=float), axis=0)
                row = {"causes": kind, "changes": count, "cost": cost, "noise": noise, "searches": searches}
                row |= {"right": round(right, 3), "stacks": round(stacks, 1), "launches": round(launches)}
                click.echo(json.dumps(row))


if __name__ == "__main__":
    main()
