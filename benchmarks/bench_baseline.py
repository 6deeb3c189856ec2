"""How often `hvlab baseline check` is false, and what it tells: simulated runs that differ by their hour.

Each run multiplies all its medians by a factor of its own, and each median by one of its own. A baseline of
several such runs is checked against one more. The false share is that of checks with a "faster" or "slower"
though only the hour differs, with its exact 95 % upper bound; power is the share of slower cells that are
told where some are slower by a ratio, and false then counts the others. Prints JSON lines.

    python -m benchmarks.bench_baseline [--hour 0.02 ...] [--cells 24 ...] [--runs 5 ...] [--checks 2000]
"""

from __future__ import annotations

import json

import click
import numpy as np

from benchmarks.bench_verdicts import upper
from hvlab.statistics.between import RunMedians, compare_to_runs

OWN = 0.01


def simulate(
    *, hour: float, cells: int, runs: int, checks: int, ratio: float, slower: int, seed: int
) -> dict[str, float]:
    """Return the share of false checks and of slower cells told; ``hour`` is a standard deviation of logs."""
    draw = np.random.default_rng([seed, round(1e4 * hour), cells, runs])
    false = hits = 0
    for _ in range(checks):
        spread = OWN * np.exp(0.5 * draw.normal(size=cells))
        logs = hour * draw.normal(size=(runs + 1, 1)) + spread * draw.normal(size=(runs + 1, cells))
        logs[-1, :slower] += np.log(ratio)
        figures = np.exp(logs).T.tolist()
        kinds = [
            verdict.kind
            for verdict in compare_to_runs(
                [RunMedians(each[-1], dict(enumerate(each[:-1]))) for each in figures]
            )
        ]
        hits += kinds[:slower].count("slower")
        false += "faster" in kinds or "slower" in kinds[slower:]
    result = {"false": false / checks, "false_at_most": round(upper(false, checks), 5)}
    return result | ({"told": round(hits / (checks * slower), 4)} if slower else {})


@click.command(help=__doc__)
@click.option("--hour", "hours", multiple=True, type=float, default=[0, 0.02, 0.05], show_default=True)
@click.option("--cells", multiple=True, type=click.IntRange(1), default=[24], show_default=True)
@click.option("--runs", multiple=True, type=click.IntRange(5), default=[5], show_default=True)
@click.option("--checks", default=2000, show_default=True)
@click.option("--ratio", default=1.25, show_default=True)
@click.option("--slower", default=0, show_default=True, help="How many cells are slower by the ratio.")
@click.option("--seed", default=1, show_default=True)
def main(
    *,
    hours: tuple[float, ...],
    cells: tuple[int, ...],
    runs: tuple[int, ...],
    checks: int,
    ratio: float,
    slower: int,
    seed: int,
) -> None:
    for hour in hours:
        for count in cells:
            for number in runs:
                given = {"hour": hour, "cells": count, "runs": number, "checks": checks, "slower": slower}
                shares = simulate(
                    hour=hour, cells=count, runs=number, checks=checks, ratio=ratio, slower=slower, seed=seed
                )
                click.echo(json.dumps({**given, "ratio": ratio if slower else 1.0, **shares}))


if __name__ == "__main__":
    main()
