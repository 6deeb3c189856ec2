"""The search itself: resolvelib chooses a candidate for each component, in order, and backtracks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, ResolutionTooDeep, Resolver

from hvlab.base.errors import HvlabError
from hvlab.stack.resolver.model import Candidate, ConstraintProblem, Key, Scope, prune

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

    def __init__(self, problem: ConstraintProblem, scope: Scope, masks: Mapping[Key, int]) -> None:
        self._problem = problem
        self._scope = scope
        self._masks = masks

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
        """Return the candidates that fit all requirements, the preferred first."""
        mask, needed = self._masks[identifier], list(requirements[identifier])
        for requirement in needed:
            mask &= self._allowed(requirement)
        for candidate in incompatibilities[identifier]:
            mask &= ~(1 << candidate.place)
        candidates = self._problem.of(identifier, mask)
        return sorted(candidates, key=lambda candidate: self._rank(candidate, needed))

    def is_satisfied_by(self, requirement: Requirement, candidate: Candidate) -> bool:
        """Whether the candidate fits the requirement."""
        return bool(self._allowed(requirement) >> candidate.place & 1)

    def get_dependencies(self, candidate: Candidate) -> Iterable[Requirement]:
        """Return what the choice of a candidate asks of others."""
        for number, relation in self._problem.of_left(candidate.key, self._scope):
            yield Requirement(relation.right, number, candidate)

    def _allowed(self, requirement: Requirement) -> int:
        if requirement.relation is None or requirement.parent is None:
            return self._masks[requirement.key]
        return self._problem.tables[requirement.relation][0][requirement.parent.place]

    def _rank(self, candidate: Candidate, needed: Iterable[Requirement]) -> tuple[Any, ...]:
        ranks = []
        for requirement in needed:
            if requirement.relation is not None and requirement.parent is not None:
                prefer = self._problem.relations[requirement.relation].prefer
                if prefer:
                    ranks.append(prefer(requirement.parent, candidate))
        return (*ranks, candidate.place)


def search(problem: ConstraintProblem, scope: Scope) -> dict[Key, Candidate] | None:
    """Return a candidate for every component, or None where nothing fits.

    Raises SearchLimitError where it gives up before it knows.
    """
    pruned = prune(problem, scope)
    if pruned.empty is not None:
        return None
    resolver: Resolver[Requirement, Candidate, Key] = Resolver(
        Provider(problem, scope, pruned.masks), BaseReporter()
    )
    requirements = [Requirement(key) for key in problem.domains]
    rounds = ROUNDS + ROUNDS_EACH * len(requirements)
    try:
        result = resolver.resolve(requirements, max_rounds=rounds)
    except ResolutionImpossible:
        return None
    except ResolutionTooDeep as error:
        raise SearchLimitError(
            f"the search for versions ended at its limit of {rounds} rounds: there may be a stack that fits",
            remedy="ask for exact versions, lab_torch and lab_cuda first, or plan fewer hosts at a time (-l)",
        ) from error
    return dict(result.mapping)


def infeasible(problem: ConstraintProblem, scope: Scope) -> bool:
    """Whether nothing fits for certain; not so where the search ends at its limit."""
    try:
        return search(problem, scope) is None
    except SearchLimitError:
        return False
