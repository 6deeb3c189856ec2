"""Alpha, beta and the start of an operation, fitted to a sweep and checked on points held out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.costs import Cost
from hvlab.analysis.model.problem import LinearProblem, Rows, Values
from hvlab.analysis.model.training import Sweep, SweepPoint, sweeps
from hvlab.base.errors import UsageError
from hvlab.results.configurations import Configuration, Repeats

DRAWS = 200
_BAND = (2.5, 97.5)
# Numbers of ranks that a prediction needs beside one: for a constant, a slope, and a check.
NEEDED = 3
_WIDE_SIZES = 100
# Likelihood from which an algorithm counts as identified; largest good relative error.
SURE = 0.9
GOOD = 0.25


@dataclass(frozen=True)
class Error:
    """Relative errors of a fit (0.1 is 10 %) over its points."""

    median: float
    worst: float


@dataclass(frozen=True)
class Checked:
    """A held-out point, and its prediction by the fit to the others."""

    point: SweepPoint
    predicted_s: float

    @property
    def error(self) -> float:
        """Relative error, negative if the prediction was too short."""
        return self.predicted_s / self.point.seconds - 1


@dataclass(frozen=True)
class LeftOut:
    """The largest case, held out: all points of the largest number of ``ranks``, or of the largest ``size``.

    ``error`` is the mean of the absolute relative errors.
    """

    kind: str
    value: int
    points: tuple[Checked, ...]
    error: float


@dataclass(frozen=True)
class Fit:
    """A cost that explains a sweep.

    ``votes``: likelihood of each known algorithm, 0 to 1; ``draws``: costs that the sweep allows too, each
    algorithm as often as it is likely, for the bands of predictions.
    """

    sweep: Sweep
    cost: Cost
    error: Error
    left_out: LeftOut | None
    votes: Mapping[str, float]
    draws: tuple[Cost, ...]
    warnings: tuple[Explanation, ...]
    start_known: bool = True

    @property
    def algorithm(self) -> str:
        """Ring, tree or halving."""
        return self.cost.algorithm

    @property
    def identifiable(self) -> frozenset[str]:
        """The quantities that the sweep determines: algorithm, alpha, bandwidth, start.

        An algorithm that is by far the likeliest; numbers whose 95 % interval excludes 0.
        """
        values = {
            "alpha": [one.alpha_s for one in self.draws],
            "bandwidth": [one.beta_s_per_byte for one in self.draws],
            "start": [one.constant_s for one in self.draws],
        }
        known = {name for name, drawn in values.items() if np.percentile(drawn, _BAND[0]) > 0}
        if not self.start_known:
            known -= {"alpha", "start"}
        if self.votes[self.algorithm] >= SURE:
            known.add("algorithm")
        return frozenset(known)

    @property
    def points(self) -> tuple[SweepPoint, ...]:
        """The fitted points, without single ranks."""
        return tuple(point for point in self.sweep.points if point.ranks > 1)


@dataclass(frozen=True)
class NoFit:
    """A sweep that cannot be fitted, and why."""

    sweep: Sweep
    reason: Explanation


def fits(configurations: Mapping[Configuration, Repeats], *, virtual: bool = False) -> list[Fit | NoFit]:
    """Return a fit of each sweep, or why there is none; ``virtual`` hosts share one machine's cores."""
    return [fit(sweep, virtual=virtual) for sweep in sweeps(configurations)]


def fit(sweep: Sweep, *, virtual: bool = False, draws: int = DRAWS) -> Fit | NoFit:
    """Return the fit of one sweep by non-negative least squares of the logarithms.

    Every known algorithm is fitted. Likelihoods use Student's t rather than the normal distribution, for few
    launches tell little about the noise (Lange, Little, Taylor: Robust Statistical Modeling Using the t
    Distribution, JASA 84, 1989). The cost is that of the likeliest. The draws are a parametric bootstrap of
    each algorithm (Efron, Tibshirani: An Introduction to the Bootstrap, 1993, section 6.5), with noise shared
    by the sizes of a launch and noise of each point.
    """
    try:
        problem = LinearProblem(sweep)
    except UsageError:
        return NoFit(sweep, Explanation("no_cycle", names={"cycle": str(dict(sweep.params)["cycle_time"])}))
    rows = problem.everything
    reason = _explain_unfit(sweep, problem)
    if reason:
        return NoFit(sweep, reason)
    own = min(problem.own_scatter(problem.solve(name, rows)) for name in problem.columns)
    whiten = problem.whitening(rows, own)
    costs = {name: problem.solve(name, rows, whiten=whiten) for name in problem.columns}
    start_known = problem.start_known(rows)
    votes = _likelihoods(problem, costs, whiten) if start_known else dict.fromkeys(costs, 1 / len(costs))
    cost = max(costs.values(), key=lambda one: votes[one.algorithm])
    errors = problem.errors(cost, problem.several(rows))
    error = Error(float(np.median(errors)), float(errors.max()))
    checked = _predict_left_out(problem, cost.algorithm, rows)
    bootstrap = _draw_costs(problem, costs, votes, own=own, whiten=whiten, draws=draws)
    fitted = Fit(sweep, cost, error, checked, votes, bootstrap or (cost,), (), start_known)
    return replace(fitted, warnings=tuple(_warnings(fitted, virtual=virtual)))


def _warnings(fitted: Fit, *, virtual: bool) -> Iterator[Explanation]:
    sweep, share, checked = fitted.sweep, fitted.votes[fitted.algorithm], fitted.left_out
    span = sweep.sizes[-1] / sweep.sizes[0]
    if len(sweep.ranks) < NEEDED:
        yield Explanation("few_counts", {"points": len(sweep.ranks), "needed": NEEDED})
    if span < _WIDE_SIZES:
        yield Explanation("narrow_sizes", {"factor": span})
    if not fitted.start_known:
        yield Explanation("start_or_latency")
    elif "alpha" not in fitted.identifiable:
        yield Explanation("no_alpha")
    if "bandwidth" not in fitted.identifiable:
        yield Explanation("no_beta")
    if share < SURE:
        yield Explanation("algorithm_unsure", {"share": share}, {"algorithm": fitted.algorithm})
    if fitted.error.median > GOOD:
        yield Explanation("poor_fit", {"error": fitted.error.median})
    if checked is None:
        yield Explanation("not_checked")
    elif checked.error > GOOD:
        yield Explanation("poor_check", {"error": checked.error})
    if virtual:
        yield Explanation("virtual")


def _explain_unfit(sweep: Sweep, problem: LinearProblem) -> Explanation | None:
    if not sweep.points:
        return Explanation("nothing_measured", {"failed": sweep.failed})
    if not sweep.ranks:
        return Explanation("one_rank")
    if not problem.solvable(problem.everything):
        return Explanation("one_size")
    needed = problem.unknowns + 1
    if len(problem.points) < needed:
        return Explanation("few_points", {"points": len(problem.points), "needed": needed})
    return None


def _likelihoods(problem: LinearProblem, costs: Mapping[str, Cost], whiten: Values) -> dict[str, float]:
    """Return the likelihood of each algorithm; all were equally likely before the measurement."""
    distances = {name: problem.distance(cost, whiten) for name, cost in costs.items()}
    least = min(distances.values())
    freedom, groups = problem.launches.freedom, len(problem.groups)
    chances = {
        name: (1 + (distance - least) / (freedom + groups)) ** (-(freedom + groups) / 2)
        for name, distance in distances.items()
    }
    whole = sum(chances.values())
    return {name: chance / whole for name, chance in chances.items()}


def _draw_costs(
    problem: LinearProblem,
    costs: Mapping[str, Cost],
    votes: Mapping[str, float],
    *,
    own: float,
    whiten: Values,
    draws: int,
) -> tuple[Cost, ...]:
    """Return costs that the sweep allows as well; if the start is unknown, all shares of it."""
    random = np.random.default_rng(1)
    rows = problem.everything
    scale = problem.launches.draw_widening(random, draws)
    point = random.standard_normal((draws, len(rows)))
    launch = random.standard_normal((draws, len(problem.groups)))
    place = np.searchsorted(np.unique(problem.ranks), problem.ranks)
    factors = np.exp(scale * (own * point + problem.shared * launch[:, place]))
    # Quantiles at evenly spaced places: each algorithm as often as it is likely.
    bounds = np.cumsum([votes[name] for name in costs])
    names = list(costs)
    chosen = np.searchsorted(bounds[:-1], (np.arange(draws) + 0.5) / draws)
    expected = {name: problem.predict(cost, rows) / problem.seconds for name, cost in costs.items()}
    shares, drawn = random.random(draws), []
    for number, name in enumerate(names):
        turns = chosen == number
        seconds = factors[turns] * expected[name] * problem.seconds
        drawn += problem.solve_each(name, rows, seconds, whiten=whiten, start_shares=shares[turns])
    return tuple(drawn)


def _split(problem: LinearProblem, rows: Rows) -> tuple[str, Rows, Rows] | None:
    """Return the kind of hold-out (ranks or size), the fitted rows and the held-out rows."""
    several = problem.several(rows)
    for kind, values in (("ranks", problem.ranks), ("size", problem.sizes)):
        out = (problem.ranks[rows] > 1) & (values[rows] == values[several].max())
        if problem.solvable(rows[~out]):
            return kind, rows[~out], rows[out]
    return None


def _predict_left_out(problem: LinearProblem, algorithm: str, rows: Rows) -> LeftOut | None:
    split = _split(problem, rows)
    if split is None:
        return None
    kind, stay, out = split
    cost = problem.solve(algorithm, stay)
    predicted = problem.predict(cost, out).tolist()
    points = [problem.points[row] for row in out]
    value = points[0].ranks if kind == "ranks" else points[0].size_bytes
    checked = tuple(Checked(point, seconds) for point, seconds in zip(points, predicted, strict=True))
    return LeftOut(kind, value, checked, float(problem.errors(cost, out).mean()))
