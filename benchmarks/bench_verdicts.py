"""How often verdicts are false, and how often a difference is recognised: simulated families of comparisons.

A scenario is a kind of noise; a family is a number of comparisons between two settings in one run, with a
number of repeats. The false share is that of families without any difference that hold a "faster" or
"slower". Power is the share of differences that are recognised, where two comparisons of each family differ.
Every share is printed with its exact 95 % upper bound (Clopper and Pearson 1934) as a JSON line, so a long
simulation can be run in parts.

    python -m benchmarks.bench_verdicts [--scenario drift ...] [--comparisons 10 ...] [--repeats 5 ...] \
        [--runs 2000] [--sigma 0.03] [--ratio 1.1]
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray
from scipy import special

from hvlab.statistics.verdict import Pair, compare_all

Floats = NDArray[np.float64]
# Draws the logarithms of both sides, each a row for each repeat and a column for each comparison.
Noise = Callable[[np.random.Generator, int, int, float], tuple[Floats, Floats]]
DIFFERING = 2
# Of a launch of the default sweep, and how much of their noise each has for itself.
SIZES, OWN = 9, 0.3
# What was launched for both sides of a comparison.
Names = tuple[tuple[int, int], tuple[int, int]]


def alike(noise: Callable[[np.random.Generator, tuple[int, int]], Floats]) -> Noise:
    """Return the noise of two sides that are drawn alike, in multiples of sigma."""
    return lambda draw, repeats, count, sigma: (
        sigma * noise(draw, (repeats, count)),
        sigma * noise(draw, (repeats, count)),
    )


def normal(draw: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return normal logarithms."""
    return draw.normal(size=shape)


def outliers(draw: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return normal logarithms of which one in ten is larger by an exponential of ten sigma."""
    return draw.normal(size=shape) + (draw.random(shape) < 0.1) * draw.exponential(10, size=shape)


def bimodal(draw: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return two modes that are five spreads apart, with a variance of one."""
    return 0.37 * draw.normal(size=shape) + 1.86 * (draw.random(shape) < 0.5)


def heavy(draw: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return Student's t with three degrees of freedom."""
    return draw.standard_t(3, size=shape)


def mixed(draw: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return another of these noises, and another spread, from a third to three, in each comparison."""
    kinds = (normal, outliers, bimodal, heavy)
    columns = [kinds[column % len(kinds)](draw, (shape[0], 1)) for column in range(shape[1])]
    return np.hstack(columns) * np.exp(np.linspace(-1.1, 1.1, shape[1]))


def persistent(lag: float) -> Callable[[np.random.Generator, tuple[int, int]], Floats]:
    """Return rounds of which each keeps that share of the deviation of the one before: AR(1)."""

    def noise(draw: np.random.Generator, shape: tuple[int, int]) -> Floats:
        values = draw.normal(size=shape)
        for row in range(1, shape[0]):
            values[row] = lag * values[row - 1] + (1 - lag * lag) ** 0.5 * values[row]
        return values

    return noise


def shared(draw: np.random.Generator, repeats: int, count: int, sigma: float) -> tuple[Floats, Floats]:
    """Return sides that share what persists, as on the same hosts, and have noise of their own."""
    common = persistent(0.5)(draw, (repeats, count))
    sides = sigma * (common + draw.normal(size=(2, repeats, count)))
    return sides[0], sides[1]


def drift(draw: np.random.Generator, repeats: int, count: int, sigma: float) -> tuple[Floats, Floats]:
    """Return sides that share a trend of ten sigma over the run and a random hour of three in each round."""
    hours = np.linspace(0, 10, repeats)[:, np.newaxis] + 3 * draw.normal(size=(repeats, 1))
    sides = sigma * (hours + draw.normal(size=(2, repeats, count)))
    return sides[0], sides[1]


def unlike(draw: np.random.Generator, repeats: int, count: int, sigma: float) -> tuple[Floats, Floats]:
    """Return sides of which the second has nine times the first one's spread."""
    one, other = draw.normal(size=(2, repeats, count))
    return sigma * one, 9 * sigma * other


@dataclass(frozen=True)
class Launch:
    """Sizes of one launch, which share its noise but for 0.3 sigma of each one's own.

    Every two of the ``backends`` are compared at nine sizes, in one layout after another. ``hours`` is how
    far the rounds lie apart, in sigma.
    """

    backends: int = 2
    hours: float = 0.0

    def __call__(
        self, draw: np.random.Generator, repeats: int, count: int, sigma: float
    ) -> tuple[Floats, Floats]:
        """Return the logarithms of both sides."""
        names = self.names(count)
        layouts = 1 + names[-1][0][0]
        noise = draw.normal(size=(repeats, layouts, self.backends, 1))
        noise = noise + OWN * draw.normal(size=(repeats, layouts, self.backends, SIZES))
        noise += self.hours * draw.normal(size=(repeats, 1, 1, 1))
        sides = [
            np.stack(
                [noise[:, layout, backend, column % SIZES] for column, (layout, backend) in each], axis=1
            )
            for each in (enumerate(side) for side in zip(*names, strict=True))
        ]
        return sigma * sides[0], sigma * sides[1]

    def names(self, count: int) -> list[Names]:
        """Return what was launched for each comparison: the layout and the backend of both sides."""
        return list(itertools.islice(self._names(), count))

    def _names(self) -> Iterator[Names]:
        for layout in itertools.count():
            for one, other in itertools.combinations(range(self.backends), 2):
                yield from [((layout, one), (layout, other))] * SIZES


# The place of a scenario is part of its seed: a new one comes last.
SCENARIOS: Mapping[str, Noise] = {
    "ar1-0.2": alike(persistent(0.2)),
    "ar1-0.5": alike(persistent(0.5)),
    "ar1-shared": shared,
    "bimodal": alike(bimodal),
    "drift": drift,
    "log-normal": alike(normal),
    "mixed": alike(mixed),
    "outliers": alike(outliers),
    "t3": alike(heavy),
    "unlike": unlike,
    "launch": Launch(),
    "launch-3-backends": Launch(backends=3),
    "launch-drift": Launch(hours=3.0),
}


def upper(hits: int, runs: int) -> float:
    """Return the exact one-sided 95 % upper bound of a share."""
    return float(special.betaincinv(hits + 1, runs - hits, 0.95)) if hits < runs else 1.0


def significant(a: Floats, b: Floats, launches: Sequence[Names | None]) -> list[int]:
    """Return the columns with a verdict, positive where the first side is faster."""
    pairs = [
        Pair(dict(enumerate(one)), dict(enumerate(other)), launches=names)
        for one, other, names in zip(np.exp(a).T.tolist(), np.exp(b).T.tolist(), launches, strict=True)
    ]
    return [{"faster": 1, "slower": -1}.get(verdict.kind, 0) for verdict in compare_all(pairs)]


def simulate(
    scenario: str, comparisons: int, repeats: int, *, runs: int, sigma: float, ratio: float, seed: int
) -> dict[str, float]:
    """Return the share of families with a false verdict, and of differences that are told.

    With a ``ratio`` other than 1, that much separates the sides of the first two comparisons.
    """
    draw = np.random.default_rng([seed, list(SCENARIOS).index(scenario), comparisons, repeats])
    noise = SCENARIOS[scenario]
    launches = noise.names(comparisons) if isinstance(noise, Launch) else [None] * comparisons
    differing = min(DIFFERING, comparisons) if ratio != 1 else 0
    false = hits = 0
    begun = time.process_time()
    for _ in range(runs):
        a, b = noise(draw, repeats, comparisons, sigma)
        b[:, :differing] += np.log(ratio)
        verdicts = significant(a, b, launches)
        hits += verdicts[:differing].count(1)
        false += any(verdicts[differing:]) or -1 in verdicts[:differing]
    result = {"false": false / runs, "false_at_most": round(upper(false, runs), 5)}
    if differing:
        result["recognised"] = round(hits / (runs * differing), 4)
    return result | {"cpu_s": round(time.process_time() - begun, 1)}


def of_scenarios(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose what is simulated."""
    for option in (
        click.option("--seed", default=1, show_default=True),
        click.option("--ratio", default=1.0, show_default=True, help="How far two comparisons are apart."),
        click.option(
            "--sigma", default=0.03, show_default=True, help="Standard deviation of the logarithms."
        ),
        click.option("--runs", default=2000, show_default=True),
        click.option("--comparisons", multiple=True, type=click.IntRange(1), default=[10], show_default=True),
        click.option("--scenario", "scenarios", multiple=True, type=click.Choice(list(SCENARIOS))),
    ):
        command = option(command)
    return command


@click.command(help=__doc__)
@of_scenarios
@click.option("--repeats", multiple=True, type=click.IntRange(2), default=[5], show_default=True)
def main(
    *,
    scenarios: tuple[str, ...],
    comparisons: tuple[int, ...],
    repeats: tuple[int, ...],
    runs: int,
    sigma: float,
    ratio: float,
    seed: int,
) -> None:
    for scenario in scenarios or SCENARIOS:
        for count in comparisons:
            for number in repeats:
                given = {"scenario": scenario, "comparisons": count, "repeats": number, "runs": runs}
                shares = simulate(scenario, count, number, runs=runs, sigma=sigma, ratio=ratio, seed=seed)
                click.echo(json.dumps({**given, "sigma": sigma, "ratio": ratio, **shares}))


if __name__ == "__main__":
    main()
