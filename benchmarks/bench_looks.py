"""How often verdicts are false with ``--repeats auto``, what they recognise, and after how many repeats.

A family is drawn as in bench_verdicts, with as many repeats as the last look allows. It is looked at as a
bench does: what is answered gets no more repeats. The false share is that of families without any
difference that hold a "faster" or "slower" at the end; power is the share of differences that are recognised.
Shares are printed with their exact 95 % upper bound as JSON lines.

    python -m benchmarks.bench_looks [--scenario drift ...] [--comparisons 10 ...] [--runs 2000] [--ratio 1.1]
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import click
import numpy as np

from benchmarks.bench_verdicts import DIFFERING, SCENARIOS, Floats, Launch, Names, of_scenarios, upper
from hvlab.statistics.looks import LOOKS, Look
from hvlab.statistics.sequential import at_look, is_answered
from hvlab.statistics.verdict import Pair, Verdict


def looked_at(a: Floats, b: Floats, launches: Sequence[Names | None]) -> tuple[list[Verdict], float]:
    """Return the verdicts at the end, and the mean number of repeats of a launch.

    ``a`` and ``b`` are logarithms, a row for each repeat of the last look and a column for each comparison.
    """
    sides = [names or ((column, 0), (column, 1)) for column, names in enumerate(launches)]
    repeats = {name: LOOKS[0].repeats for names in sides for name in names}
    verdicts: list[Verdict] = []
    before: Look | None = None
    for look in LOOKS:
        if before is not None:
            open_ = {
                name
                for names, one in zip(sides, verdicts, strict=True)
                if not is_answered(one)
                for name in names
            }
            if not open_:
                break
            reached = before.repeats
            repeats |= {name: look.repeats for name in open_ if repeats[name] == reached}
        pairs = [
            Pair(_upto(a[:, column], repeats[one]), _upto(b[:, column], repeats[other]), launches=names)
            for column, (names, (one, other)) in enumerate(zip(launches, sides, strict=True))
        ]
        verdicts = at_look(pairs, look, before=before, verdicts=verdicts)
        before = look
    return verdicts, sum(repeats.values()) / len(repeats)


def _upto(column: Floats, repeats: int) -> dict[int, float]:
    return {number + 1: float(value) for number, value in enumerate(np.exp(column[:repeats]))}


def simulate(
    scenario: str, comparisons: int, *, runs: int, sigma: float, ratio: float, seed: int
) -> dict[str, float]:
    """Return the shares of families with a false verdict and of differences told, and the repeats it took."""
    draw = np.random.default_rng([seed, list(SCENARIOS).index(scenario), comparisons, LOOKS[-1].repeats])
    noise = SCENARIOS[scenario]
    launches: Sequence[Names | None] = [None] * comparisons
    if isinstance(noise, Launch):
        launches = noise.names(comparisons)
    differing = min(DIFFERING, comparisons) if ratio != 1 else 0
    false = hits = 0
    taken = 0.0
    begun = time.process_time()
    for _ in range(runs):
        a, b = noise(draw, LOOKS[-1].repeats, comparisons, sigma)
        b[:, :differing] += np.log(ratio)
        verdicts, repeats = looked_at(a, b, launches)
        kinds = [{"faster": 1, "slower": -1}.get(verdict.kind, 0) for verdict in verdicts]
        hits += kinds[:differing].count(1)
        false += any(kinds[differing:]) or -1 in kinds[:differing]
        taken += repeats
    result = {
        "false": false / runs,
        "false_at_most": round(upper(false, runs), 5),
        "repeats": round(taken / runs, 2),
    }
    if differing:
        result["recognised"] = round(hits / (runs * differing), 4)
    return result | {"cpu_s": round(time.process_time() - begun, 1)}


@click.command(help=__doc__)
@of_scenarios
def main(
    *,
    scenarios: tuple[str, ...],
    comparisons: tuple[int, ...],
    runs: int,
    sigma: float,
    ratio: float,
    seed: int,
) -> None:
    for scenario in scenarios or SCENARIOS:
        for count in comparisons:
            given = {"scenario": scenario, "comparisons": count, "runs": runs, "sigma": sigma, "ratio": ratio}
            shares = simulate(scenario, count, runs=runs, sigma=sigma, ratio=ratio, seed=seed)
            click.echo(json.dumps({**given, **shares}))


if __name__ == "__main__":
    main()
