"""Alpha, beta and the start of an operation, fitted to a sweep and checked on points held out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hvlab.model.costs import Cost
from hvlab.model.explanation import Explanation
from hvlab.model.problem import LinearProblem, Rows, Values
from hvlab.model.sweep import Sweep, SweepPoint, sweeps
from hvlab.model.warnings import of_fit
from hvlab.results.configurations import Configuration, Repeats

DRAWS = 100
_TIE = 1e-6


@dataclass(frozen=True)
class Error:
    """Relative errors of a fit (0.1 is 10 %) over its points."""

    median: float
    worst: float


@dataclass(frozen=True)
class Checked:
    """A point that was held out, and its prediction by the fit to the others."""

    point: SweepPoint
    predicted_s: float

    @property
    def error(self) -> float:
        """Return the relative error, negative where the prediction was too short."""
        return self.predicted_s / self.point.seconds - 1


@dataclass(frozen=True)
class LeftOut:
    """The largest case, held out: all points of the largest number of ``ranks``, or of the largest ``size``.

    ``error`` is the mean of the relative errors without their signs.
    """

    kind: str
    value: int
    points: tuple[Checked, ...]
    error: float


@dataclass(frozen=True)
class Fit:
    """A cost that explains a sweep.

    ``votes``: in which share of the draws each algorithm was chosen; ``draws``: costs that the sweep allows
    as well, from which predictions take their band.
    """

    sweep: Sweep
    cost: Cost
    error: Error
    left_out: LeftOut | None
    votes: Mapping[str, float]
    draws: tuple[Cost, ...]
    warnings: tuple[Explanation, ...]

    @property
    def algorithm(self) -> str:
        """Return ring, tree or halving."""
        return self.cost.algorithm

    @property
    def alpha_s(self) -> float:
        """Return the time of an empty message in seconds."""
        return self.cost.alpha_s

    @property
    def beta_s_per_byte(self) -> float:
        """Return the time of a byte in seconds."""
        return self.cost.beta_s_per_byte

    @property
    def constant_s(self) -> float:
        """Return the start of an operation in seconds."""
        return self.cost.constant_s

    @property
    def ranks(self) -> tuple[int, int]:
        """Return the smallest and the largest number of ranks fitted, single ranks left out."""
        return self.sweep.ranks[0], self.sweep.ranks[-1]

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the smallest and the largest size fitted, in bytes."""
        return self.sweep.sizes[0], self.sweep.sizes[-1]

    @property
    def points(self) -> tuple[SweepPoint, ...]:
        """Return the points fitted, single ranks left out."""
        return tuple(point for point in self.sweep.points if point.ranks > 1)


@dataclass(frozen=True)
class NoFit:
    """A sweep that cannot be fitted, and why."""

    sweep: Sweep
    reason: Explanation


def fits(
    configurations: Mapping[Configuration, Repeats], *, collective: str = "allreduce", virtual: bool = False
) -> list[Fit | NoFit]:
    """Return a fit of each sweep of a collective, or why there is none.

    ``virtual`` says that the hosts are virtual machines which share one machine's cores.
    """
    return [fit(sweep, virtual=virtual) for sweep in sweeps(configurations, collective=collective)]


def fit(sweep: Sweep, *, virtual: bool = False, draws: int = DRAWS, seed: int = 1) -> Fit | NoFit:
    """Return the fit of one sweep by non-negative least squares of the relative errors.

    The algorithm is the one that best predicts the points held out: those of the largest number of ranks, or
    of the largest size where only one number of ranks was measured. The draws are a parametric bootstrap
    (Efron, Tibshirani: An Introduction to the Bootstrap, 1993, section 6.5): fits to the sweep with noise
    added to its times. The noise is as large as the scatter about the fit, or larger, as few points may hide
    (its size is drawn from the chi-squared distribution of the degrees of freedom). Each draw chooses its
    algorithm; algorithms that are equally good take turns.
    """
    problem = LinearProblem(sweep)
    rows = problem.everything
    reason = _unfit(sweep, problem)
    if reason:
        return NoFit(sweep, reason)
    names = _chosen(problem, rows)
    cost = problem.solve(names[0], rows)
    errors = problem.errors(cost, problem.several(rows))
    bootstrap = tuple(_drawn(problem, cost, draws, seed)) or (cost,)
    votes = {
        name: sum(drawn.algorithm == name for drawn in bootstrap) / len(bootstrap) for name in problem.columns
    }
    error = Error(float(np.median(errors)), float(errors.max()))
    checked = _left_out(problem, names[0], rows)
    start_known = problem.start_known(rows)
    notes = of_fit(
        sweep,
        cost,
        error=error.median,
        check=checked.error if checked else None,
        share=votes[cost.algorithm] if draws else None,
        start_known=start_known,
        virtual=virtual,
    )
    return Fit(sweep, cost, error, checked, votes, bootstrap, notes)


def _unfit(sweep: Sweep, problem: LinearProblem) -> Explanation | None:
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


def _split(problem: LinearProblem, rows: Rows) -> tuple[str, Rows, Rows] | None:
    """Return what is held out (ranks or size), the rows that are fitted and those that are held out."""
    several = problem.several(rows)
    for kind, values in (("ranks", problem.ranks), ("size", problem.sizes)):
        out = (problem.ranks[rows] > 1) & (values[rows] == values[several].max())
        if problem.solvable(rows[~out]):
            return kind, rows[~out], rows[out]
    return None


def _mean(errors: Values) -> float:
    return float(errors.mean())


def _left_out(problem: LinearProblem, algorithm: str, rows: Rows) -> LeftOut | None:
    split = _split(problem, rows)
    if split is None:
        return None
    kind, stay, out = split
    cost = problem.solve(algorithm, stay)
    predicted = problem.predicted(cost, out).tolist()
    points = [problem.points[row] for row in out]
    value = points[0].ranks if kind == "ranks" else points[0].size_bytes
    checked = tuple(Checked(point, seconds) for point, seconds in zip(points, predicted, strict=True))
    return LeftOut(kind, value, checked, _mean(problem.errors(cost, out)))


def _chosen(problem: LinearProblem, rows: Rows) -> list[str]:
    """Return the algorithm that best predicts what is held out; several where they are equally good."""
    split = _split(problem, rows)
    names = list(problem.columns)
    if split is None:
        return names
    _, stay, out = split
    errors = {name: _mean(problem.errors(problem.solve(name, stay), out)) for name in names}
    least = min(errors.values())
    return [name for name in names if errors[name] <= least + _TIE]


def _drawn(problem: LinearProblem, cost: Cost, draws: int, seed: int) -> Iterator[Cost]:
    random = np.random.default_rng(seed)
    rows = problem.everything
    scatter, freedom = problem.scatter(cost)
    for turn in range(draws):
        widened = scatter * np.sqrt(freedom / random.chisquare(freedom))
        changed = problem.times(np.exp(widened * random.standard_normal(len(rows))))
        names = _chosen(changed, rows)
        yield changed.solve(names[turn % len(names)], rows, start_share=random.random())
