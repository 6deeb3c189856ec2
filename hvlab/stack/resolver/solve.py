"""From groups of hosts to a stack for each: rules always hold, preferences as far as they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvlab.stack.resolver import domains, limits, relations, rules, torch_nccl
from hvlab.stack.resolver.catalogue import Catalogue
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.model import Candidate, Key, Scope, prune
from hvlab.stack.resolver.problem import LabProblem
from hvlab.stack.resolver.provider import SearchLimitError, search


@dataclass(frozen=True)
class Solution:
    """The chosen candidates, the preferences that hold, and those the search could not decide in time."""

    lab: LabProblem
    chosen: Mapping[Key, Candidate]
    kept: frozenset[str]
    undecided: frozenset[str] = frozenset()

    def version(self, name: str, group: int | None = None) -> str | None:
        """Return the version of a lab's or a group's component; None where there is none."""
        candidate = self.chosen.get((name, group))
        return None if candidate is None or candidate.version == "none" else candidate.version

    def gave_up(self, preference: str) -> bool:
        """Whether a preference that this lab has does not hold."""
        return preference in self.lab.preferences and preference not in self.kept


def build(groups: Sequence[HostGroup], catalogue: Catalogue) -> LabProblem:
    """Return the constraint problem of these groups."""
    lab = LabProblem(groups=tuple(groups), catalogue=catalogue)
    domains.add(lab)
    limits.add(lab)
    relations.add(lab)
    torch_nccl.add(lab)
    return lab


def best(lab: LabProblem) -> Solution | None:
    """Return the solution that keeps the most preferences, the more important first; None without any.

    Raises SearchLimitError where it is not known whether there is one.
    """
    chosen, kept = search(lab, Scope()), frozenset[str]()
    if chosen is None:
        return None
    possible = [soft for soft in lab.preferences if prune(lab, Scope(soft=frozenset([soft]))).empty is None]
    # Halves of those that cannot hold together are tried by themselves: most labs need one search.
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
    """Return the choice with the cuDNN of torch's wheel, and its NCCL among wheels, where they fit.

    After the search, because it hangs on torch and CUDA both, and a relation is of two components.
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
