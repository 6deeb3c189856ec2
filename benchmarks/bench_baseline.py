"""How often `hvlab baseline check` is false, and what it recognises: simulated runs that differ as a whole.

Each run multiplies all its medians by a factor of its own, and each median by one of its own. A baseline of
several such runs is checked against one more. The false share is that of checks with a "faster" or "slower"
though only the hour differs, with its exact 95 % upper bound; power is the share of changed cells that are
told where some differ by a ratio (slower above 1, faster below), and false then counts the other cells, and
verdicts of the other kind. Prints JSON lines.

    python -m benchmarks.bench_baseline [--hour 0.02 ...] [--cells 24 ...] [--runs 5 ...] [--checks 2000]
"""

from __future__ import annotations

import json

import click
import numpy as np

from benchmarks.bench_verdicts import OWN as ALONE
from benchmarks.bench_verdicts import Floats, upper
from hvlab.statistics.between import RunMedians, compare_to_runs
from hvlab.statistics.verdict import Kind

OWN = 0.01


def noise(draw: np.random.Generator, runs: int, cells: int, sizes: int) -> Floats:
    """Return what each cell has for itself; where so many are of one launch, they share it but for 0.3."""
    if sizes == 1:
        return draw.normal(size=(runs, cells))
    common = np.repeat(draw.normal(size=(runs, -(-cells // sizes))), sizes, axis=1)[:, :cells]
    return common + ALONE * draw.normal(size=(runs, cells))


def simulate(
    *, hour: float, cells: int, sizes: int, runs: int, checks: int, ratio: float, changed: int, seed: int
) -> dict[str, float]:
    """Return the share of false checks and of changed cells told; ``hour`` is a deviation of logs."""
    right: Kind = "slower" if ratio > 1 else "faster"
    wrong: Kind = "faster" if ratio > 1 else "slower"
    draw = np.random.default_rng([seed, round(1e4 * hour), cells, runs])
    false = hits = 0
    for _ in range(checks):
        spread = OWN * np.exp(0.5 * draw.normal(size=cells))
        logs = hour * draw.normal(size=(runs + 1, 1)) + spread * noise(draw, runs + 1, cells, sizes)
        logs[-1, :changed] += np.log(ratio)
        figures = np.exp(logs).T.tolist()
        kinds = [
            verdict.kind
            for verdict in compare_to_runs(
                [
                    RunMedians(each[-1], dict(enumerate(each[:-1])), launch=cell // sizes)
                    for cell, each in enumerate(figures)
                ]
            )
        ]
        hits += kinds[:changed].count(right)
        false += wrong in kinds or right in kinds[changed:]
    result = {"false": false / checks, "false_at_most": round(upper(false, checks), 5)}
    return result | ({"recognised": round(hits / (checks * changed), 4)} if changed else {})


@click.command(help=__doc__)
@click.option("--hour", "hours", multiple=True, type=float, default=[0, 0.02, 0.05], show_default=True)
@click.option("--cells", multiple=True, type=click.IntRange(1), default=[24], show_default=True)
@click.option("--sizes", default=1, show_default=True, help="How many cells are of one launch.")
@click.option("--runs", multiple=True, type=click.IntRange(5), default=[5], show_default=True)
@click.option("--checks", default=2000, show_default=True)
@click.option("--ratio", default=1.25, show_default=True, help="Below 1, the changed cells are faster.")
@click.option("--changed", default=0, show_default=True, help="How many cells differ by the ratio.")
@click.option("--seed", default=1, show_default=True)
def main(
    *,
    hours: tuple[float, ...],
    cells: tuple[int, ...],
    sizes: int,
    runs: tuple[int, ...],
    checks: int,
    ratio: float,
    changed: int,
    seed: int,
) -> None:
    for hour in hours:
        for count in cells:
            for number in runs:
                given = {"hour": hour, "cells": count, "sizes": sizes, "runs": number, "changed": changed}
                shares = simulate(
                    hour=hour,
                    cells=count,
                    sizes=sizes,
                    runs=number,
                    checks=checks,
                    ratio=ratio,
                    changed=changed,
                    seed=seed,
                )
                click.echo(
                    json.dumps({**given, "checks": checks, "ratio": ratio if changed else 1.0, **shares})
                )


if __name__ == "__main__":
    main()
