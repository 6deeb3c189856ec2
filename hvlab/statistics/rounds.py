"""What the launches of one round have in common, taken out: drift and bad hours, which are no difference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hvlab.statistics.permutation import Floats

# With fewer launches, a round's median is itself so noisy that it makes false alarms.
ENOUGH = 16


def shared(a: Floats, b: Floats, launches: NDArray[np.int_]) -> Floats:
    """Return for each round how far its logarithms lie from the usual; 0 where that is not known.

    ``a`` and ``b`` hold a row for each round and a column for each comparison; NaN is a launch without a
    figure. ``launches`` has two rows, for the columns of ``a`` and of ``b``: columns with the same number
    come from one launch in each round, as the sizes of a sweep do, and share its noise. So each launch
    counts once, by the median of its columns, and the round's value is the median over its launches. It
    takes 16 of them. Each column is centred on its own median before, without a look at which side a figure
    is of, and counts where it has both sides in that round: what is taken out is taken from both alike.
    """
    both = np.tile(~np.isnan(a) & ~np.isnan(b), 2)
    distances = np.concatenate((a, b), axis=1) - np.tile(_middles(np.vstack((a, b))), 2)
    effects = np.zeros(len(a))
    for row, measured in enumerate(both):
        numbers = launches.ravel()[measured]
        values = distances[row, measured]
        each = [np.median(values[numbers == number]) for number in np.unique(numbers)]
        if len(each) >= ENOUGH:
            effects[row] = np.median(each)
    return effects


def _middles(values: Floats) -> Floats:
    """Return the median of each column; each has a figure."""
    middles: Floats = np.nanmedian(values, axis=0) if np.isnan(values).any() else np.median(values, axis=0)
    return middles
