"""The points of a sweep as a linear problem in alpha, beta and the start, and its solution."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hvlab.model.costs import SHAPES, Cost
from hvlab.model.sweep import Sweep

Rows = NDArray[np.intp]
Values = NDArray[np.float64]

# How long Horovod waits between cycles unless HOROVOD_CYCLE_TIME says otherwise (its changes of 0.21.0).
CYCLE_MS = 1.0
# A point that is missed by more than this factor says no more.
_LEAST = 0.1


class LinearProblem:
    """Rows of points: what each algorithm does in them, and how long they took.

    Of the points of one rank only the smallest size counts: it tells the start of an operation, for
    nothing is sent; a larger one tells how fast the machine copies memory.
    """

    def __init__(self, sweep: Sweep) -> None:
        single = [point for point in sweep.points if point.ranks == 1]
        least = min((point.size_bytes for point in single), default=0)
        self.points = tuple(point for point in sweep.points if point.ranks > 1 or point.size_bytes == least)
        self.collective = sweep.collective
        cycle = dict(sweep.params).get("cycle_time")
        self.cycle_s = float(CYCLE_MS if cycle is None else cycle) * 1e-3
        self.ranks = np.array([point.ranks for point in self.points])
        self.sizes = np.array([point.size_bytes for point in self.points], dtype=float)
        self.seconds = np.array([point.seconds for point in self.points])
        self.columns = {name: self._columns(name) for name in SHAPES[self.collective]}

    def times(self, factors: Values) -> LinearProblem:
        """Return the same problem with each time multiplied by its factor."""
        problem = copy(self)
        problem.seconds = self.seconds * factors
        return problem

    @property
    def unknowns(self) -> int:
        """Return how many numbers are fitted."""
        return 3 if self.start_known(self.everything) else 2

    @property
    def everything(self) -> Rows:
        """Return all rows."""
        return np.arange(len(self.points))

    def several(self, rows: Rows) -> Rows:
        """Return those of the rows that are of several ranks."""
        return rows[self.ranks[rows] > 1]

    def solvable(self, rows: Rows) -> bool:
        """Return whether the rows hold two sizes on several ranks."""
        return differ(self.sizes[self.several(rows)])

    def start_known(self, rows: Rows) -> bool:
        """Return whether the rows tell the start of an operation from latency: two numbers of ranks."""
        return differ(self.ranks[rows])

    def solve(self, algorithm: str, rows: Rows, *, start_share: float | None = None) -> Cost:
        """Return the cost that misses these rows least, in the sum of squared relative errors.

        Where the start of an operation cannot be told from latency, their sum is split: the
        start is at most one cycle of Horovod's, or ``start_share`` of the sum.
        """
        columns, seconds = self.columns[algorithm][rows], self.seconds[rows]
        if self.start_known(rows):
            start, alpha, beta = _non_negative(columns, seconds)
        else:
            fixed, beta = _non_negative(columns[:, [0, 2]], seconds)
            start = min(fixed, self.cycle_s) if start_share is None else fixed * start_share
            alpha = (fixed - start) / columns[0, 1]
        return Cost(self.collective, algorithm, float(alpha), float(beta), float(start))

    def predicted(self, cost: Cost, rows: Rows) -> Values:
        """Return what a cost says of these rows, in seconds."""
        values: Values = self.columns[cost.algorithm][rows] @ [
            cost.constant_s,
            cost.alpha_s,
            cost.beta_s_per_byte,
        ]
        return values

    def errors(self, cost: Cost, rows: Rows) -> Values:
        """Return the relative errors of a cost on these rows, as numbers of 0 and above."""
        values: Values = np.abs(self.predicted(cost, rows) / self.seconds[rows] - 1)
        return values

    def scatter(self, cost: Cost) -> tuple[float, int]:
        """Return how the logarithms of all times scatter about a cost, and with what degrees of freedom."""
        near = np.clip(self.predicted(cost, self.everything) / self.seconds, _LEAST, 1 / _LEAST)
        freedom = len(self.points) - self.unknowns
        return float(np.sqrt((np.log(near) ** 2).sum() / freedom)), freedom

    def _columns(self, algorithm: str) -> Values:
        shapes = [SHAPES[self.collective][algorithm](int(ranks)) for ranks in self.ranks]
        return np.array(
            [
                (1.0, shape.messages, shape.volume * size)
                for shape, size in zip(shapes, self.sizes, strict=True)
            ]
        ).reshape(-1, 3)


def differ(values: NDArray[Any]) -> bool:
    """Return whether there are two values that differ."""
    return bool(len(values) and values.min() != values.max())


def _non_negative(columns: Values, seconds: Values) -> Sequence[float]:
    """Return the numbers of 0 and above whose products with the columns are nearest to the times.

    First relative to the times, which favours numbers that are too small; then once more relative to what
    the first found (Gauss-Newton for the logarithms), at most twice or half the time.
    """
    from scipy.optimize import nnls  # noqa: PLC0415 - it takes long, and most commands have no use for it

    scale = columns.max(axis=0)
    scale[scale == 0] = 1
    scaled = columns / scale
    first, _ = nnls(scaled / seconds[:, None], np.ones(len(seconds)))
    near = np.clip(scaled @ first, seconds / 2, seconds * 2)
    solution, _ = nnls(scaled / near[:, None], 1 + np.log(seconds / near))
    values: list[float] = (solution / scale).tolist()
    return values
