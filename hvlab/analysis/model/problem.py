"""The points of a sweep as a linear problem in alpha, beta and the start, and its solution."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hvlab.analysis.model.costs import ALGORITHMS, Cost
from hvlab.analysis.model.training import Sweep
from hvlab.statistics.functions import normal
from hvlab.workloads.parameters import BY_VARIABLE

Values = NDArray[np.float64]

# Prior deviation of launches, and its weight in degrees of freedom.
_EXPECTED = 0.05
_WEIGHT = 3
_REACH = 9.0


@dataclass(frozen=True)
class Scatter:
    """The standard deviation of single launches, and its degrees of freedom."""

    deviation: float
    freedom: float

    def of_median(self, repeats: int) -> float:
        """Return the standard error of the median of normal repeats: sqrt(pi/2n), at most that of one."""
        return self.deviation * math.sqrt(min(1.0, math.pi / 2 / repeats))

    def draw_widening(self, random: np.random.Generator, count: int) -> Values:
        """Return factors for the deviation's own uncertainty, one for each draw."""
        values: Values = np.sqrt(self.freedom / random.chisquare(self.freedom, size=(count, 1)))
        return values


def pool(groups: Iterable[Sequence[float]]) -> Scatter:
    """Return the scatter of values about their groups' means, all groups together.

    Few values tell little, so five percent with three degrees of freedom is added (an inverse chi-squared
    prior; Gelman et al.: Bayesian Data Analysis, 3rd ed. 2013, section 2.6).
    """
    total, freedom = _WEIGHT * _EXPECTED**2, float(_WEIGHT)
    for group in groups:
        if len(group) > 1:
            mean = statistics.fmean(group)
            total += sum((value - mean) ** 2 for value in group)
            freedom += len(group) - 1
    return Scatter(math.sqrt(total / freedom), freedom)


def expected_maximum(counts: Iterable[float]) -> Values:
    """Return the expected maximum of n standard normal numbers, for each n in the counts.

    The integral of 1 - F(x)^n above zero, less that of F(x)^n below it (David, Nagaraja: Order Statistics,
    3rd ed. 2003, section 3.1): 0 for one, 0.56 for two, 3.2 for 1024.
    """
    x, step = np.linspace(-_REACH, _REACH, 3601, retstep=True)
    below = normal(x)[None, :] ** np.array(list(counts), dtype=float)[:, None]
    # Trapezoidal rule: at zero the integrand jumps by 1; half of that counts.
    values: Values = (np.where(x > 0, 1 - below, -below).sum(axis=1) + 0.5) * step
    return values


Rows = NDArray[np.intp]

# Horovod's cycle unless HOROVOD_CYCLE_TIME says otherwise (its changes of 0.21.0).
CYCLE_MS = 1.0
# Deviation of a number of ranks from the model that repeats do not reduce: other hosts, other links.
LAYOUT = 0.03


class LinearProblem:
    """Rows of points: the work of each algorithm in them, and their times.

    At one rank only the smallest size counts: it tells the start of an operation, for nothing is sent; a
    larger one tells the speed of memory. All sizes of one number of ranks come from the same launches and
    share their noise (``shared``, one a row); further errors are each point's own. Raises UsageError for a
    wrong ``cycle_time``.
    """

    def __init__(self, sweep: Sweep) -> None:
        single = [point for point in sweep.points if point.ranks == 1]
        least = min((point.size_bytes for point in single), default=0)
        self.points = tuple(point for point in sweep.points if point.ranks > 1 or point.size_bytes == least)
        self.slots = sweep.slots
        cycle = dict(sweep.params).get("cycle_time")
        read = BY_VARIABLE["HOROVOD_CYCLE_TIME"].read(CYCLE_MS if cycle is None else cycle)
        self.cycle_s = cast("float", read) * 1e-3
        self.ranks = np.array([point.ranks for point in self.points])
        self.sizes = np.array([point.size_bytes for point in self.points], dtype=float)
        self.seconds = np.array([point.seconds for point in self.points])
        self.columns = {name: self._columns(name) for name in ALGORITHMS}
        self.launches = pool(sweep.deviations)
        errors = [self.launches.of_median(sweep.repeats(point.ranks)) for point in self.points]
        self.shared = np.hypot(errors, LAYOUT)

    @property
    def unknowns(self) -> int:
        """Count of fitted numbers."""
        if not self.start_known(self.everything):
            return 2
        return 3 if self.slots == 1 else 4

    @property
    def everything(self) -> Rows:
        """All rows."""
        return np.arange(len(self.points))

    @property
    def groups(self) -> list[Rows]:
        """Rows of each number of ranks."""
        return [np.flatnonzero(self.ranks == number) for number in np.unique(self.ranks)]

    def several(self, rows: Rows) -> Rows:
        """Return those of the rows that have several ranks."""
        return rows[self.ranks[rows] > 1]

    def solvable(self, rows: Rows) -> bool:
        """Whether the rows hold two sizes on several ranks."""
        return differ(self.sizes[self.several(rows)])

    def start_known(self, rows: Rows) -> bool:
        """Whether the rows tell start from latency: two numbers of ranks."""
        return differ(self.ranks[rows])

    def solve(self, algorithm: str, rows: Rows, *, whiten: Values | None = None) -> Cost:
        """Return the likeliest cost for these rows: least squares of the logarithms, none below 0.

        ``whiten`` is the :meth:`whitening` of these rows; without it, rows weigh the same. If start and
        latency cannot be told apart, their sum is split: the start is at most one cycle of Horovod's.
        """
        return self.solve_each(algorithm, rows, self.seconds[None, rows], whiten=whiten)[0]

    def solve_each(
        self,
        algorithm: str,
        rows: Rows,
        seconds: Values,
        *,
        whiten: Values | None = None,
        start_shares: Values | None = None,
    ) -> list[Cost]:
        """Return a cost, as :meth:`solve` does, for each line of times of these rows.

        ``start_shares`` are the starts' shares of their sums with latency, if these have to be split.
        """
        columns = self.columns[algorithm][rows]
        whiten = np.eye(len(rows)) if whiten is None else whiten
        if self.start_known(rows):
            return [
                Cost(algorithm, alpha, beta, start, sum(inner), self.slots)
                for start, alpha, beta, *inner in _likeliest(columns, seconds, whiten).tolist()
            ]
        fixed, beta = _likeliest(columns[:, [0, 2]], seconds, whiten).T
        start = np.minimum(fixed, self.cycle_s) if start_shares is None else fixed * start_shares
        alpha = (fixed - start) / columns[0, 1]
        return [
            Cost(algorithm, float(one), float(other), float(begin), slots=self.slots)
            for one, other, begin in zip(alpha, beta, start, strict=True)
        ]

    def predict(self, cost: Cost, rows: Rows) -> Values:
        """Return the times of these rows by a cost, in seconds."""
        numbers = [cost.constant_s, cost.alpha_s, cost.beta_s_per_byte, cost.inner_s_per_byte]
        columns = self.columns[cost.algorithm][rows]
        values: Values = columns @ numbers[: columns.shape[1]]
        return values

    def errors(self, cost: Cost, rows: Rows) -> Values:
        """Return the absolute relative errors of a cost on these rows."""
        values: Values = np.abs(self.predict(cost, rows) / self.seconds[rows] - 1)
        return values

    def residuals(self, cost: Cost) -> Values:
        """Return the logarithms of all times over a cost's prediction."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.seconds / self.predict(cost, self.everything))
        values: Values = np.clip(logs, -5, 5)
        return values

    def own_scatter(self, cost: Cost) -> float:
        """Return the scatter of the points of one number of ranks about their common error."""
        left = self.residuals(cost)
        return pool([left[group].tolist() for group in self.groups]).deviation

    def distance(self, cost: Cost, whiten: Values) -> float:
        """Return the distance of all rows from a cost, as a sum of squares of standard deviations."""
        return float(((whiten @ self.residuals(cost)) ** 2).sum())

    def whitening(self, rows: Rows, own: float) -> Values:
        """Return the matrix that turns the logarithms' noise into independent numbers of deviation 1.

        The covariance of a number of ranks is own^2 I + shared^2 J, J being all ones.
        """
        whole = np.zeros((len(rows), len(rows)))
        for number in np.unique(self.ranks[rows]):
            group = np.flatnonzero(self.ranks[rows] == number)
            count, shared = len(group), self.shared[rows[group[0]]]
            taken = 1 - own / np.sqrt(own**2 + count * shared**2)
            whole[np.ix_(group, group)] = (np.eye(count) - taken / count) / own
        return whole

    def _columns(self, algorithm: str) -> Values:
        shapes = [ALGORITHMS[algorithm](int(ranks)) for ranks in self.ranks // self.slots]
        columns = np.array(
            [
                (1.0, shape.messages, shape.volume * size, size)
                for shape, size in zip(shapes, self.sizes, strict=True)
            ]
        ).reshape(-1, 4)
        # One rank a host has no work inside it.
        return columns if self.slots > 1 else columns[:, :3]


def differ(values: NDArray[Any]) -> bool:
    """Whether at least two values differ."""
    return bool(len(values) and values.min() != values.max())


def _likeliest(columns: Values, seconds: Values, whiten: Values) -> Values:
    """Solve each line of times for non-negative coefficients of the columns.

    First relative to the times, which favours small coefficients; then relative to the first solution
    (Gauss-Newton for the logarithms), at most twice or half the time.
    """
    scale = columns.max(axis=0)
    scale[scale == 0] = 1
    scaled = columns / scale
    first = non_negative(scaled / seconds[:, :, None], np.ones_like(seconds))
    near = np.clip(first @ scaled.T, seconds / 2, seconds * 2)
    solution = non_negative(whiten @ (scaled / near[:, :, None]), (1 + np.log(seconds / near)) @ whiten.T)
    values: Values = solution / scale
    return values


def non_negative(matrices: Values, values: Values) -> Values:
    """Solve each matrix for non-negative numbers by least squares.

    The best solution is least squares over some of the columns: over all, or else every choice is tried.
    """
    height, width = matrices.shape[1:]
    smallest = np.finfo(float).eps * max(height, width)
    best, least = np.zeros((len(matrices), width)), np.full(len(matrices), np.inf)
    unsolved = np.arange(len(matrices))
    for count in range(width, 0, -1):
        if count == width - 1:
            unsolved = np.flatnonzero(np.isinf(least))
        for chosen in map(list, itertools.combinations(range(width), count)):
            some, sought = matrices[unsolved][:, :, chosen], values[unsolved, :, None]
            solution = np.linalg.pinv(some, rcond=smallest) @ sought
            left = ((some @ solution - sought) ** 2).sum(axis=(1, 2))
            better = (solution.min(axis=(1, 2)) >= 0) & (left < least[unsolved])
            where = unsolved[better]
            least[where], best[where] = left[better], 0
            best[np.ix_(where, chosen)] = solution[better, :, 0]
    return best
