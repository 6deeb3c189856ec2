"""Whether a run differs from the runs of a baseline: the run is the unit, its repeats share their hour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from hvlab.statistics.interval import Interval
from hvlab.statistics.permutation import Floats
from hvlab.statistics.squeeze import squeezed
from hvlab.statistics.verdict import ALPHA, MATTERS, Better, Verdict
from hvlab.statistics.welch import holm

# Of fewer runs, how much runs differ by themselves is not known well enough.
FEWEST = 5
_LEVEL = 0.95
_A_SPREAD = 2
# From so many cells on, their median holds against a few that changed, and their variances show a common one.
_MANY = 16
# The parts of alpha that what all cells have in common and what is each one's own may take.
_COMMON, _OWN = 0.5, 0.25


@dataclass(frozen=True)
class RunMedians:
    """A cell of a table of runs: its median in the new run, and by its number in each earlier one."""

    new: float
    before: Mapping[int, float]
    better: Better = "low"


class Changes(NamedTuple):
    """How far a run lies from the usual, in logarithms: of each cell, and what all have in common.

    ``own_chances`` are of each cell's deviation ``own`` from what is common, adjusted for their number.
    """

    total: Floats
    common: float
    common_chance: float
    own: Floats
    own_chances: Floats


def compare_to_runs(
    cells: Sequence[RunMedians], *, matters: float = MATTERS, alpha: float = ALPHA
) -> list[Verdict]:
    """Return how a run stands to several earlier runs, one verdict a cell; all cells are one family.

    If nothing differs but the hour, about the share ``alpha`` of runs holds a ``faster`` or ``slower``. Part
    of it is for what all cells have in common, part for what is a cell's own. A verdict takes five runs with
    that cell; with fewer it is ``too_few``. The ratio is the new median over the geometric mean of the
    others; its interval is where 95 % of such ratios lie if nothing differs, laid around it.
    """
    tested = [cell for cell in cells if _testable(cell)]
    judged = iter(_verdicts(tested, matters=matters, alpha=alpha))
    return [next(judged) if _testable(cell) else _untested(cell) for cell in cells]


def changes(before: Floats, new: Floats) -> Changes:
    """Return how far a run lies from others, by the logarithms of its medians.

    ``before`` has a row for each run of the baseline and a column for each cell, NaN where a run lacks it;
    ``new`` a value for each cell. What a run has in common is the median over its cells, which a few of them
    do not move, or the mean where there are fewer than 16. It is tested by Student's t for a new value; what
    is a cell's own likewise, from 16 cells on with squeezed variances (Smyth 2004), and Holm's adjustment.
    """
    usual = np.nanmean(before, axis=0)
    distances, total = before - usual, new - usual
    middle = np.nanmedian if len(new) >= _MANY else np.nanmean
    hours, hour = middle(distances, axis=1), float(middle(total))
    common = hour - float(hours.mean())
    common_chance = _chance(
        np.array([common]), np.array([hours.var(ddof=1)]), np.array([len(hours)]), np.array([len(hours) - 1])
    )
    rest = distances - hours[:, np.newaxis]
    counts, middles = (~np.isnan(rest)).sum(axis=0), np.nanmean(rest, axis=0)
    variances, freedom = np.nanvar(rest, axis=0, ddof=1), (counts - 1).astype(float)
    if len(new) >= _MANY:
        variances, freedom = squeezed(variances, freedom)
    own = total - hour - middles
    chances = holm(_chance(own, variances, counts, freedom))
    return Changes(total, common, float(common_chance[0]), own, chances)


def _chance(apart: Floats, variances: Floats, counts: Floats, freedom: Floats) -> Floats:
    """Return the two-sided chance that one more value lies that far from the mean of so many."""
    square = variances * (1 + 1 / counts)
    none = square == 0
    chance: Floats = 2 * special.stdtr(freedom, -np.abs(apart) / np.sqrt(np.where(none, 1, square)))
    return np.where(none, (apart == 0).astype(float), chance)


def _testable(cell: RunMedians) -> bool:
    return len(cell.before) >= FEWEST and min(cell.new, *cell.before.values()) > 0


def _untested(cell: RunMedians) -> Verdict:
    if len(cell.before) >= FEWEST:
        return Verdict("unclear", None, "figures of zero or below have no ratio")
    runs = "1 run" if len(cell.before) == 1 else f"{len(cell.before)} runs"
    reason = f"{runs} in the baseline, a verdict needs {FEWEST}"
    return Verdict("too_few", _ratio(cell), reason, FEWEST)


def _verdicts(cells: Sequence[RunMedians], *, matters: float, alpha: float) -> list[Verdict]:
    if not cells:
        return []
    numbers = sorted({number for cell in cells for number in cell.before})
    before = np.log([[cell.before.get(number, math.nan) for cell in cells] for number in numbers])
    moved = changes(before, np.log([cell.new for cell in cells]))
    return [_verdict(cell, moved, column, matters=matters, alpha=alpha) for column, cell in enumerate(cells)]


def _verdict(cell: RunMedians, moved: Changes, column: int, *, matters: float, alpha: float) -> Verdict:
    """Return the verdict on one cell: its own change decides, else that of all."""
    total, own = float(moved.total[column]), float(moved.own[column])
    own_chance = float(moved.own_chances[column])
    chance, apart, which = own_chance, own, "beyond what all have in common"
    level = _OWN * alpha
    if own_chance > level:
        level = _COMMON * alpha
        chance, apart, which = moved.common_chance, moved.common, "as all have"
    runs = f"{len(cell.before)} runs in the baseline"
    if chance <= level and apart * total > 0 and abs(total) >= math.log1p(matters):
        better = (total < 0) == (cell.better == "low")
        return Verdict("faster" if better else "slower", _ratio(cell), f"{runs}, {which}", chance=chance)
    return Verdict("unclear", _ratio(cell), f"{runs}: not distinguishable from the hour", chance=chance)


def _ratio(cell: RunMedians) -> Interval | None:
    """Return the ratio to the earlier runs, with the bounds that runs differ by; None below two of them."""
    if len(cell.before) < _A_SPREAD or min(cell.new, *cell.before.values()) <= 0:
        return None
    logs = np.log(list(cell.before.values()))
    count = len(logs)
    reach = float(special.stdtrit(count - 1, (1 + _LEVEL) / 2) * logs.std(ddof=1) * math.sqrt(1 + 1 / count))
    apart = math.log(cell.new) - float(logs.mean())
    return Interval(math.exp(apart - reach), math.exp(apart), math.exp(apart + reach))
