"""Leave out what cannot be: by the limits first, then what a relation leaves without a partner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from hvlab.resolver.model import Key, Problem, Scope

# Why a candidate went: ("limit", number), or the side it stood on of a relation and that one's number.
Cause = tuple[str, int]


@dataclass
class Pruned:
    """What is left of each domain; ``empty`` is a key with nothing left, if there is one.

    ``causes`` says for each key and candidate place why it went; ``after_limits`` is what the limits left.
    """

    masks: dict[Key, int]
    after_limits: Mapping[Key, int]
    causes: dict[Key, dict[int, Cause]] = field(default_factory=dict)
    empty: Key | None = None


def prune(problem: Problem, scope: Scope) -> Pruned:
    """Return what is left of the domains once limits and pairwise relations are held (arc consistency)."""
    masks = {key: problem.full(key) & scope.only.get(key, -1) for key in problem.domains}
    causes: dict[Key, dict[int, Cause]] = {key: {} for key in masks}

    def keep(key: Key, allowed: int, cause: Cause) -> bool:
        gone = masks[key] & ~allowed
        if not gone:
            return False
        for place in range(gone.bit_length()):
            if gone >> place & 1:
                causes[key][place] = cause
        masks[key] &= allowed
        return True

    # Wishes before facts: a candidate nobody wished for needs no other reason.
    limits = [(number, limit) for number, limit in enumerate(problem.limits) if scope.counts(limit)]
    limits.sort(key=lambda pair: pair[1].say is not None)
    for number, limit in limits:
        keep(limit.key, problem.limit_masks[number], ("limit", number))
    pruned = Pruned(masks, dict(masks), causes, next((key for key in masks if not masks[key]), None))
    if pruned.empty is None:
        _propagate(problem, scope, pruned, keep)
    return pruned


def _propagate(
    problem: Problem, scope: Scope, pruned: Pruned, keep: Callable[[Key, int, Cause], bool]
) -> None:
    masks = pruned.masks
    relations = [(n, r) for n, r in enumerate(problem.relations) if scope.counts(r)]
    changed = set(masks)
    while changed:
        now, changed = changed, set()
        for number, relation in relations:
            if relation.left not in now and relation.right not in now:
                continue
            rows, columns = problem.tables[number]
            sides = (
                (relation.right, rows, relation.left, "right"),
                (relation.left, columns, relation.right, "left"),
            )
            for key, table, other, side in sides:
                if keep(key, partners(table, masks[other]), (side, number)):
                    changed.add(key)
                if not masks[key]:
                    pruned.empty = key
                    return


@lru_cache(maxsize=200_000)
def partners(table: tuple[int, ...], mask: int) -> int:
    """Return the union of a table's rows that are in the mask."""
    found = 0
    for place, row in enumerate(table):
        if mask >> place & 1:
            found |= row
    return found
