"""Whether a run differs from the runs of a baseline: the run is the unit, repeats share its conditions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hvlab.statistics.functions import student_quantile, student_tail
from hvlab.statistics.interval import Interval
from hvlab.statistics.permutation import Floats
from hvlab.statistics.verdict import ALPHA, MATTERS, Better, Verdict
from hvlab.statistics.welch import holm, squeeze

# With fewer runs, run-to-run variation cannot be estimated.
FEWEST = 5
_LEVEL = 0.95
_A_SPREAD = 2
# With this many cells, a few changed ones do not move the median, and the variances show a common one.
_MANY = 16
# The parts of alpha for the shift common to all cells, and for each cell's own.
_COMMON, _OWN = 0.5, 0.25


@dataclass(frozen=True)
class RunMedians:
    """A cell of a table of runs: its median in the new run, and by its number in each earlier one.

    Cells with the same ``launch`` come from the same launches, as the sizes of a case do, and share their
    noise. Without, a cell has launches of its own.
    """

    new: float
    before: Mapping[int, float]
    better: Better = "low"
    launch: Hashable = None


class Changes(NamedTuple):
    """The distance of a run from the usual, in logarithms: of each cell, and common to all.

    ``total_chances`` are of each cell as it is; ``own_chances`` of its deviation ``own`` from what is common,
    adjusted for their number.
    """

    total: Floats
    total_chances: Floats
    common: float
    common_chance: float
    own: Floats
    own_chances: Floats


def compare_to_runs(
    cells: Sequence[RunMedians], *, matters: float = MATTERS, alpha: float = ALPHA
) -> list[Verdict]:
    """Compare a run with several earlier runs, one verdict a cell; all cells are one family.

    If only the usual difference between runs is present, about the share ``alpha`` of runs holds a
    ``faster`` or ``slower`` (less in simulations). Part of it is for the shift common to all cells, part for
    each cell's own. Such a verdict takes five runs with that cell (with fewer it is
    ``too_few``), a ratio that is significant as it is and whose interval excludes 1, and a shift of the cell
    itself or of all that is significant, goes the ratio's way and matters: so cells that did not change are
    seldom taken for changed where others did. The ratio is the new median over the geometric mean of the
    others; its interval is where 95 % of such ratios lie if nothing differs, laid around it.
    """
    tested = [cell for cell in cells if _is_testable(cell)]
    judged = iter(_verdicts(tested, matters=matters, alpha=alpha))
    return [next(judged) if _is_testable(cell) else _without_test(cell) for cell in cells]


def changes(before: Floats, new: Floats, launches: NDArray[np.int_] | None = None) -> Changes:
    """Measure how far a run lies from others, by the logarithms of its medians.

    ``before`` has a row for each run of the baseline and a column for each cell, NaN where a run lacks it;
    ``new`` a value for each cell. What a run has in common is the median over its cells, which a few of them
    do not move, or the mean where there are fewer than 16. It is tested by Student's t for a new value; what
    is a cell's own likewise, from 16 cells on with squeezed variances (Smyth 2004), and Holm's adjustment.
    ``launches`` has the same number for cells that share their noise; without, none do.
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
        variances, freedom = squeeze(variances, freedom, launches)
    own = total - hour - middles
    chances = holm(_chance(own, variances, counts, freedom))
    total_chances = _chance(total, hours.var(ddof=1) + variances, counts, counts - 1)
    return Changes(total, total_chances, common, float(common_chance[0]), own, chances)


def _chance(apart: Floats, variances: Floats, counts: Floats, freedom: Floats) -> Floats:
    """Return the two-sided chance that one more value lies this far from the mean of ``counts`` values."""
    square = variances * (1 + 1 / counts)
    none = square == 0
    chance: Floats = 2 * student_tail(freedom, np.abs(apart) / np.sqrt(np.where(none, 1, square)))
    return np.where(none, (apart == 0).astype(float), chance)


def _is_testable(cell: RunMedians) -> bool:
    return len(cell.before) >= FEWEST and min(cell.new, *cell.before.values()) > 0


def _without_test(cell: RunMedians) -> Verdict:
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
    names = [object() if cell.launch is None else cell.launch for cell in cells]
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    launches = np.array([known[name] for name in names])
    moved = changes(before, np.log([cell.new for cell in cells]), launches)
    return [_verdict(cell, moved, column, matters=matters, alpha=alpha) for column, cell in enumerate(cells)]


def _verdict(cell: RunMedians, moved: Changes, column: int, *, matters: float, alpha: float) -> Verdict:
    """Return the verdict on one cell: its own shift decides, else that of all."""
    ratio, runs = _ratio(cell), f"{len(cell.before)} runs in the baseline"
    total, own_chance = float(moved.total[column]), float(moved.own_chances[column])
    shifts = (
        (own_chance, _OWN, float(moved.own[column]), "more than the shift common to all"),
        (moved.common_chance, _COMMON, moved.common, "as all have"),
    )
    clear = moved.total_chances[column] <= alpha and ratio is not None and not ratio.low <= 1 <= ratio.high
    for chance, part, shift, which in shifts:
        matter = min(abs(shift), abs(total)) >= math.log1p(matters) and shift * total > 0
        if clear and matter and chance <= part * alpha:
            better = (total < 0) == (cell.better == "low")
            return Verdict("faster" if better else "slower", ratio, f"{runs}, {which}", chance=chance)
    reason = f"{runs}: not distinguishable from the usual difference between runs"
    return Verdict("unclear", ratio, reason, chance=min(own_chance, moved.common_chance))


def _ratio(cell: RunMedians) -> Interval | None:
    """Return the ratio to the earlier runs, with the bounds that runs differ by; None below two of them."""
    if len(cell.before) < _A_SPREAD or min(cell.new, *cell.before.values()) <= 0:
        return None
    logs = np.log(list(cell.before.values()))
    count = len(logs)
    reach = student_quantile(count - 1, (1 + _LEVEL) / 2) * float(logs.std(ddof=1)) * math.sqrt(1 + 1 / count)
    apart = math.log(cell.new) - float(logs.mean())
    return Interval(math.exp(apart - reach), math.exp(apart), math.exp(apart + reach))
