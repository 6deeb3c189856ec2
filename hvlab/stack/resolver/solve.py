"""The search: resolvelib chooses a candidate for each component, in order, and backtracks.

Rules always hold; preferences hold where possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, ResolutionTooDeep, Resolver

from hvlab.base.errors import HvlabError
from hvlab.stack.resolver import domains, limits, relations, rules, versions
from hvlab.stack.resolver.catalogue import Catalogue
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.model import Candidate, ConstraintProblem, Key, LabProblem, Scope, prune

# Base rounds of the search, and additional ones per component: far more than pruned domains need.
ROUNDS, ROUNDS_EACH = 1000, 20


class SearchLimitError(HvlabError):
    """The search ended at its limit: it is unknown whether anything fits."""


@dataclass(frozen=True, eq=False)
class Requirement:
    """Requires a component (no parent), or that it fits the candidate chosen for another."""

    key: Key
    relation: int | None = None
    parent: Candidate | None = None


class Provider(AbstractProvider[Requirement, Candidate, Key]):
    """Tells resolvelib the candidates of each component, and a choice's requirements for the others."""

    def __init__(self, problem: ConstraintProblem, scope: Scope, masks: Mapping[Key, int]) -> None:
        self._problem = problem
        self._scope = scope
        self._masks = masks

    def identify(self, requirement_or_candidate: Requirement | Candidate) -> Key:
        """Return the component."""
        return requirement_or_candidate.key

    def get_preference(self, identifier: Key, *_: object, **__: object) -> int:
        """Return its place in the fixed order: a choice never changes earlier ones."""
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
            mask &= self._mask_allowed(requirement)
        for candidate in incompatibilities[identifier]:
            mask &= ~(1 << candidate.place)
        candidates = self._problem.of(identifier, mask)
        return sorted(candidates, key=lambda candidate: self._rank(candidate, needed))

    def is_satisfied_by(self, requirement: Requirement, candidate: Candidate) -> bool:
        """Whether the candidate fits the requirement."""
        return bool(self._mask_allowed(requirement) >> candidate.place & 1)

    def get_dependencies(self, candidate: Candidate) -> Iterable[Requirement]:
        """Return a candidate's requirements for other components."""
        for number, relation in self._problem.of_left(candidate.key, self._scope):
            yield Requirement(relation.right, number, candidate)

    def _mask_allowed(self, requirement: Requirement) -> int:
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
    """Return a candidate for every component, or None if nothing fits.

    Raises SearchLimitError if it gives up first.
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


def is_infeasible(problem: ConstraintProblem, scope: Scope) -> bool:
    """Whether certainly nothing fits; false if the search ends at its limit."""
    try:
        return search(problem, scope) is None
    except SearchLimitError:
        return False


@dataclass(frozen=True)
class Solution:
    """The chosen candidates, the preferences that hold, and those the search could not decide in time."""

    lab: LabProblem
    chosen: Mapping[Key, Candidate]
    kept: frozenset[str]
    undecided: frozenset[str] = frozenset()

    def version(self, name: str, group: int | None = None) -> str | None:
        """Return the version of a lab's or a group's component; None without one."""
        candidate = self.chosen.get((name, group))
        return None if candidate is None or candidate.version == "none" else candidate.version

    def drops(self, preference: str) -> bool:
        """Whether a preference that this lab has does not hold."""
        return preference in self.lab.preferences and preference not in self.kept


def build(groups: Sequence[HostGroup], catalogue: Catalogue) -> LabProblem:
    """Return the constraint problem of these groups."""
    lab = LabProblem(groups=tuple(groups), catalogue=catalogue)
    domains.add(lab)
    limits.add(lab)
    relations.add(lab)
    return lab


def find_best(lab: LabProblem) -> Solution | None:
    """Return the solution that keeps the most preferences, the more important first; None without any.

    Raises SearchLimitError if it is unknown whether a solution exists.
    """
    chosen, kept = search(lab, Scope()), frozenset[str]()
    if chosen is None:
        return None
    possible = [soft for soft in lab.preferences if prune(lab, Scope(soft=frozenset([soft]))).empty is None]
    # Preferences that cannot hold together are tried in halves; most labs need one search.
    parts, undecided = [possible], frozenset[str]()
    while parts:
        part = parts.pop()
        try:
            better = search(lab, Scope(soft=kept.union(part)))
        except SearchLimitError:
            better, undecided = None, undecided.union(part if len(part) == 1 else ())
        if better is not None:
            chosen, kept = better, kept.union(part)
        elif len(part) > 1:
            parts += [part[len(part) // 2 :], part[: len(part) // 2]]
    return Solution(lab, _as_torch(lab, chosen, kept), kept, undecided)


def _as_torch(lab: LabProblem, chosen: dict[Key, Candidate], soft: frozenset[str]) -> dict[Key, Candidate]:
    """Return the choice with the cuDNN of torch's wheel, and its NCCL among wheels, if they fit.

    Done after the search because it depends on both torch and CUDA, and a relation covers two components.
    """
    torch = chosen.get(("torch", None))
    if torch is None or lab.torch_on_cpu:
        return chosen
    only = {key: 1 << candidate.place for key, candidate in chosen.items()}
    for number, group in enumerate(lab.groups):
        for name in ("cudnn", "nccl"):
            key = (name, number)
            if key not in chosen or "+cuda" in chosen[key].version:
                continue
            cuda, architecture = chosen["cuda", number].version, group.host.architecture
            wheels = rules.torch_fits(torch.data, cuda, group.capabilities, architecture, exact=False)
            version = getattr(torch.data, name).get(wheels[0]) if wheels else None
            same = next((c for c in lab.domains[key] if c.version == version), None)
            if same and same is not chosen[key]:
                changed = only | {key: 1 << same.place}
                if prune(lab, Scope(soft=soft, only=changed)).empty is None:
                    chosen, only = {**chosen, key: same}, changed
    return chosen


@dataclass(frozen=True)
class GroupChoice:
    """The choice for one group of hosts; a version is None if they do not get the component."""

    solution: Solution
    number: int
    group: HostGroup
    versions: Mapping[str, str | None]

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue used for the choice."""
        return self.solution.lab.catalogue

    @property
    def torch(self) -> Any:
        """The catalogue's data on the chosen torch; None without one."""
        return self.data("torch", None)

    @property
    def sms(self) -> str:
        """The GPUs' code names for the reader."""
        return ", ".join("sm_" + capability.replace(".", "") for capability in self.group.capabilities)

    @property
    def gcc(self) -> int | None:
        """The major version of the installed compiler."""
        return versions.major(self.group.host.gcc) if self.group.host.gcc else None

    @property
    def torch_build(self) -> str | None:
        """The CUDA release of the torch wheel; None for the one without CUDA."""
        cuda = self.versions["cuda"]
        if self.torch is None or cuda is None or self.solution.lab.torch_on_cpu:
            return None
        fits = rules.torch_fits(
            self.torch, cuda, self.group.capabilities, self.group.host.architecture, exact=False
        )
        return next(iter(fits), None)

    @property
    def assumed(self) -> dict[str, str]:
        """Component -> the known version assumed to resemble the chosen one, if that is unknown."""
        return {
            item.name: item.like
            for item in self.catalogue.assumed
            if item.version == (self.versions[item.name] or "").partition("-1+cuda")[0]
        }

    @property
    def torch_nccl(self) -> str:
        """The NCCL release that torch's ranks use; empty if they use no GPU, or if unknown."""
        cuda = self.versions["cuda"]
        if self.torch is None or cuda is None or self.solution.lab.torch_on_cpu:
            return ""
        return relations.find_bundled_nccl(self.torch, cuda, self.group)

    def version(self, name: str) -> str:
        """Return the version of a component that the hosts get."""
        return str(self.versions[name])

    def data(self, name: str, number: int | None) -> Any:
        """Return the catalogue's data on a chosen version."""
        candidate = self.solution.chosen.get((name, number))
        return None if candidate is None else candidate.data
