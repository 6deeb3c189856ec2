"""Find the stack of every host: hard rules always, preferences as far as they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvlab.resolver import rules
from hvlab.resolver.built import Built, Wishes
from hvlab.resolver.entries import Catalogue
from hvlab.resolver.lab import Group
from hvlab.resolver.model import Candidate, Key, Scope
from hvlab.resolver.problem import build
from hvlab.resolver.provider import SearchLimitError, search
from hvlab.resolver.prune import prune


@dataclass(frozen=True)
class Solution:
    """What was chosen, the preferences it holds, and those of which the search could not tell in time."""

    built: Built
    chosen: Mapping[Key, Candidate]
    kept: frozenset[str]
    undecided: frozenset[str] = frozenset()

    def version(self, name: str, group: int | None = None) -> str | None:
        """Return the version of a lab's or a group's component; None where there is none."""
        candidate = self.chosen.get((name, group))
        return None if candidate is None or candidate.version == "none" else candidate.version

    def gave_up(self, soft: str) -> bool:
        """Whether a preference that this lab has could not be held."""
        return soft in self.built.soft and soft not in self.kept


def solve(groups: Sequence[Group], wishes: Wishes, catalogue: Catalogue) -> Solution | None:
    """Return the best stack for every host, or None where nothing fits."""
    return best(build(groups, wishes, catalogue))


def best(built: Built) -> Solution | None:
    """Return the solution that holds the most of the preferences, the dearer ones first; None without any.

    Raises SearchLimitError where it is not known whether there is one.
    """
    chosen, kept = search(built.problem, Scope()), frozenset[str]()
    if chosen is None:
        return None
    alone = [soft for soft in built.soft if prune(built.problem, Scope(soft=frozenset([soft]))).empty is None]
    parts, undecided = [alone], frozenset[str]()
    while parts:
        part = parts.pop()
        try:
            found = search(built.problem, Scope(soft=kept.union(part)))
        except SearchLimitError:
            found, undecided = None, undecided.union(part if len(part) == 1 else ())
        if found is not None:
            chosen, kept = found, kept.union(part)
        elif len(part) > 1:
            parts += [part[len(part) // 2 :], part[: len(part) // 2]]
    return Solution(built, _as_torch(built, chosen, kept), kept, undecided)


def _as_torch(built: Built, chosen: dict[Key, Candidate], soft: frozenset[str]) -> dict[Key, Candidate]:
    """Return the choice with the cuDNN of torch's wheel, and its NCCL among wheels, where they fit."""
    torch = chosen.get(("torch", None))
    if torch is None or built.torch_on_cpu:
        return chosen
    only = {key: 1 << candidate.place for key, candidate in chosen.items()}
    for number, group in enumerate(built.groups):
        for name in ("cudnn", "nccl"):
            key = (name, number)
            if key not in chosen or "+cuda" in chosen[key].version:
                continue
            cuda = chosen["cuda", number].version
            wheels = rules.torch_fits(
                torch.data, cuda, group.capabilities, group.host.architecture, exact=False
            )
            wanted = getattr(torch.data, name).get(wheels[0]) if wheels else None
            same = next((c for c in built.problem.domains[key] if c.version == wanted), None)
            if same and same is not chosen[key]:
                changed = only | {key: 1 << same.place}
                if prune(built.problem, Scope(soft=soft, only=changed)).empty is None:
                    chosen, only = {**chosen, key: same}, changed
    return chosen
