"""Groups of hosts that are far from each other: links within them are fast, links between them slow. Pure.

A rack behind a narrow uplink is such a group. No host of it is slow, and no pair: the way between is.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

from hvlab.searches.slow.steps import Cell
from hvlab.searches.slow.suspects import SHARE

Groups = tuple[tuple[int, ...], ...]


def far_groups(pairs: Mapping[Cell, float], count: int, *, ratio: float) -> Groups:
    """Return the groups of ``count`` hosts, largest first; none unless two hold several hosts each.

    ``pairs`` is how slow each link is beyond its ends, a logarithm, where each was measured alone. The two
    groups with the least median between them are put together, until that is what a suspect would be
    (hierarchical clustering; by the median, neither outliers nor a host that is near to all join two groups).
    """
    groups: list[tuple[int, ...]] = [(host,) for host in range(count)]
    while len(groups) > 1:
        distances = {
            (one, other): statistics.median(pairs[cell] for cell in _between(one, other))
            for one, other in itertools.combinations(groups, 2)
        }
        nearest = min(distances, key=lambda both: distances[both])
        if distances[nearest] > SHARE * math.log(ratio):
            break
        groups = [group for group in groups if group not in nearest] + [tuple(sorted(sum(nearest, ())))]
    several = sum(len(group) > 1 for group in groups)
    return tuple(sorted(groups, key=lambda group: (-len(group), group))) if several > 1 else ()


def crossing(groups: Groups) -> list[Cell]:
    """Return all links from one group to another."""
    return [cell for one, other in itertools.combinations(groups, 2) for cell in _between(one, other)]


def _between(one: Sequence[int], other: Sequence[int]) -> list[Cell]:
    pairs = list(itertools.product(one, other))
    return pairs + [(there, here) for here, there in pairs]
