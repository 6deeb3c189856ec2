"""What the launches of one round have in common, taken out: drift and bad hours, which are no difference."""

from __future__ import annotations

import numpy as np

from hvlab.statistics.permutation import Floats

# With fewer comparisons, a round's median is itself so noisy that it makes false alarms.
ENOUGH = 8


def shared(a: Floats, b: Floats) -> Floats:
    """Return for each round how far its logarithms lie from the usual; 0 where that is not known.

    ``a`` and ``b`` hold a row for each round and a column for each comparison; NaN is a launch without a
    figure. The median goes over all comparisons that have both sides in that round, after each column is
    centred on its own median, without a look at which side a figure is of. So what is taken out is taken
    from both sides alike, and no difference between them can come of it. It takes 8 such comparisons.
    """
    both = ~np.isnan(a) & ~np.isnan(b)
    distances = np.concatenate((a, b), axis=1) - np.tile(_middles(np.vstack((a, b))), 2)
    effects = np.zeros(len(a))
    for row in np.flatnonzero(both.sum(axis=1) >= ENOUGH):
        effects[row] = np.median(distances[row, np.tile(both[row], 2)])
    return effects


def _middles(values: Floats) -> Floats:
    """Return the median of each column; each has a figure."""
    middles: Floats = np.nanmedian(values, axis=0) if np.isnan(values).any() else np.median(values, axis=0)
    return middles
