"""The search itself: resolvelib chooses a candidate for each component, in order, and backtracks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, ResolutionTooDeep, Resolver

from hvlab.errors import HvlabError
from hvlab.resolver.model import Candidate, Key, Problem, Scope
from hvlab.resolver.prune import prune

# Rounds of the search, and more of them for each component: far more than pruned domains need.
ROUNDS, ROUNDS_EACH = 1000, 20


class SearchLimitError(HvlabError):
    """The search ended at its limit: whether anything fits is not known."""


@dataclass(frozen=True, eq=False)
class Requirement:
    """That a component be there (no parent), or fit the candidate that was chosen for another."""

    key: Key
    relation: int | None = None
    parent: Candidate | None = None


class Provider(AbstractProvider[Requirement, Candidate, Key]):
    """Tells resolvelib the candidates of each component, and what a choice asks of the others."""

    def __init__(
        self, problem: Problem, scope: Scope, masks: Mapping[Key, int], keys: frozenset[Key]
    ) -> None:
        self._problem = problem
        self._scope = scope
        self._masks = masks
        self._keys = keys

    def identify(self, requirement_or_candidate: Requirement | Candidate) -> Key:
        """Return the component."""
        return requirement_or_candidate.key

    def get_preference(self, identifier: Key, *_: object, **__: object) -> int:
        """Return its place in the fixed order: what is chosen never changes what was chosen before it."""
        return self._problem.order[identifier]

    def find_matches(
        self,
        identifier: Key,
        requirements: Mapping[Key, Iterator[Requirement]],
        incompatibilities: Mapping[Key, Iterator[Candidate]],
    ) -> Sequence[Candidate]:
        """Return the candidates that fit all that is asked, the preferred first."""
        mask, asked = self._masks[identifier], list(requirements[identifier])
        for requirement in asked:
            mask &= self._allowed(requirement)
        for candidate in incompatibilities[identifier]:
            mask &= ~(1 << candidate.place)
        found = self._problem.of(identifier, mask)
        return sorted(found, key=lambda candidate: self._rank(candidate, asked))

    def is_satisfied_by(self, requirement: Requirement, candidate: Candidate) -> bool:
        """Whether the candidate fits the requirement."""
        return bool(self._allowed(requirement) >> candidate.place & 1)

    def get_dependencies(self, candidate: Candidate) -> Iterable[Requirement]:
        """Return what the choice of a candidate asks of others."""
        for number, relation in self._problem.of_left(candidate.key, self._scope):
            if relation.right in self._keys:
                yield Requirement(relation.right, number, candidate)

    def _allowed(self, requirement: Requirement) -> int:
        if requirement.relation is None or requirement.parent is None:
            return self._masks[requirement.key]
        return self._problem.tables[requirement.relation][0][requirement.parent.place]

    def _rank(self, candidate: Candidate, asked: Iterable[Requirement]) -> tuple[Any, ...]:
        ranks = []
        for requirement in asked:
            if requirement.relation is not None and requirement.parent is not None:
                prefer = self._problem.relations[requirement.relation].prefer
                if prefer:
                    ranks.append(prefer(requirement.parent, candidate))
        return (*ranks, candidate.place)


def search(problem: Problem, scope: Scope) -> dict[Key, Candidate] | None:
    """Return a candidate for every component, or None where nothing fits.

    First what the whole lab shares, with the CUDA of each group; then the rest of each group by itself, for
    groups share nothing else. Where pruning let through a choice that leaves a group without, all at once.
    Raises SearchLimitError where it gives up before it knows.
    """
    pruned = prune(problem, scope)
    if pruned.empty is not None:
        return None
    shared = [key for key in problem.domains if key[1] is None or key[0] == "cuda"]
    chosen = _resolve(problem, scope, pruned.masks, shared)
    if chosen is None:
        return None
    fixed = prune(problem, replace(scope, only={**scope.only, **_only(chosen)}))
    groups: dict[int | None, list[Key]] = {}
    for key in problem.domains:
        if key not in chosen:
            groups.setdefault(key[1], []).append(key)
    for keys in groups.values():
        found = None if fixed.empty else _resolve(problem, scope, fixed.masks, keys, chosen)
        if found is None:
            return _resolve(problem, scope, pruned.masks, list(problem.domains))
        chosen |= found
    return chosen


def infeasible(problem: Problem, scope: Scope) -> bool:
    """Whether nothing fits for certain; not so where the search ends at its limit."""
    try:
        return search(problem, scope) is None
    except SearchLimitError:
        return False


def _only(chosen: Mapping[Key, Candidate]) -> dict[Key, int]:
    return {key: 1 << candidate.place for key, candidate in chosen.items()}


def _resolve(
    problem: Problem,
    scope: Scope,
    masks: Mapping[Key, int],
    keys: Sequence[Key],
    chosen: Mapping[Key, Candidate] | None = None,
) -> dict[Key, Candidate] | None:
    """Return a candidate for each of these components, given what was chosen for others."""
    provider = Provider(problem, scope, masks, frozenset(keys))
    wanted = [Requirement(key) for key in keys]
    for candidate in (chosen or {}).values():
        wanted += provider.get_dependencies(candidate)
    resolver: Resolver[Requirement, Candidate, Key] = Resolver(provider, BaseReporter())
    rounds = ROUNDS + ROUNDS_EACH * len(keys)
    try:
        result = resolver.resolve(wanted, max_rounds=rounds)
    except ResolutionImpossible:
        return None
    except ResolutionTooDeep as error:
        raise SearchLimitError(
            f"the search for versions ended at its limit of {rounds} rounds: there may be a stack that fits",
            remedy="ask for exact versions, lab_torch and lab_cuda first, or plan fewer hosts at a time (-l)",
        ) from error
    return dict(result.mapping)
