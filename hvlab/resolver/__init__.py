"""Which versions fit together: wishes and facts in, a stack per host out, or why not and what would work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hvlab.resolver import conflict, nearest, notes, stack
from hvlab.resolver.built import Wishes
from hvlab.resolver.catalogue import load
from hvlab.resolver.entries import Catalogue
from hvlab.resolver.lab import Refused, Wanted, group
from hvlab.resolver.nearest import Remedy, State
from hvlab.resolver.pins import Pin
from hvlab.resolver.problem import build
from hvlab.resolver.provider import SearchLimitError
from hvlab.resolver.solve import Solution, best

__all__ = ["Plan", "Refusal", "Wanted", "plan"]

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """A stack for every host."""

    hosts: dict[str, dict[str, Any]]
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {"resolved": True, "hosts": self.hosts, "notes": self.notes}


@dataclass(frozen=True)
class Refusal:
    """Why nothing fits: the smallest conflict, what excludes what in it, other conflicts, what would work."""

    conflict: list[dict[str, Any]]
    reasons: list[str]
    nearest: list[Remedy]
    also: list[str] = field(default_factory=list)
    # Whether the search for what would work ended at its limit.
    undecided: bool = False

    @property
    def message(self) -> str:
        """The refusal in one text."""
        why = "; ".join(self.reasons) or " and ".join(str(item["text"]) for item in self.conflict)
        also = f"; besides, {'; '.join(self.also)}" if self.also else ""
        return f"{why}{also}; {self.remedy}"

    @property
    def remedy(self) -> str:
        """What would work, in one text."""
        if self.undecided:
            return "the search for what would work ended at its limit; drop one of these wishes at a time"
        hosts = {host for item in self.conflict for host in item["hosts"]}
        if not self.nearest and all(item["name"] == "host" for item in self.conflict):
            return f"without {'it' if len(hosts) == 1 else 'them'} there is no lab left that resolves"
        if not self.nearest and all(item["kind"] == "fact" for item in self.conflict):
            return "no wish is in the way: it takes another system, GPU or way of installing"
        if not self.nearest:
            return "no change of one, two or three of these wishes and hosts resolves it"
        return f"{' or '.join(remedy.text for remedy in self.nearest)} it resolves"

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "resolved": False,
            "message": self.message,
            "conflict": self.conflict,
            "reasons": self.reasons,
            "also": self.also,
            "nearest": [remedy.as_json() for remedy in self.nearest],
        }


def plan(
    lab: Sequence[Wanted], pins: Sequence[Pin] = (), catalogue: Catalogue | None = None
) -> Plan | Refusal:
    """Return the stack of every host of the lab, or why there is none.

    ``pins`` are wishes for all hosts; those of single hosts are in ``lab``.
    Raises SearchLimitError where the search ends before it knows either.
    """
    catalogue = catalogue or load()
    state = State(tuple(lab), tuple(dict.fromkeys(pins)))
    groups, refused = group(lab, catalogue)
    if refused:
        return _unserved(state, refused, catalogue)
    built = build(groups, Wishes(state.pins), catalogue)
    solution = best(built)
    if solution is None:
        return _refusal(state, catalogue)
    return _plan(solution, lab)


def _plan(solution: Solution, lab: Sequence[Wanted]) -> Plan:
    hosts = {wanted.host.name: wanted.host for wanted in lab}
    return Plan(stack.stacks(solution, hosts), notes.of_lab(solution))


def _unserved(state: State, refused: Sequence[Refused], catalogue: Catalogue) -> Refusal:
    hosts = [item.host for item in refused]
    others, undecided = _in_time(lambda: nearest.without(state, hosts, catalogue))
    return Refusal(
        conflict=[
            {
                "kind": "fact",
                "name": "host",
                "value": item.seen,
                "hosts": [item.host],
                "text": f"{item.host}: {item.seen}",
            }
            for item in refused
        ],
        reasons=[f"{item.host}: {item.seen} ({item.remedy})" for item in refused],
        nearest=[others] if others else [],
        undecided=undecided,
    )


def _refusal(state: State, catalogue: Catalogue) -> Refusal:
    groups, _ = group(state.lab, catalogue)
    built = build(groups, Wishes(state.pins), catalogue)
    found, others = conflict.all_of(built)
    told = conflict.sentences(built, found)
    if {"torch", "tensorflow"} <= {item.name for item in found}:
        told.append("the two frameworks have no toolkit in common: each needs a lab of its own")
    remedies, undecided = _in_time(lambda: nearest.remedies(state, catalogue))
    also = [text for other in others for text in conflict.sentences(built, other) if text not in told]
    return Refusal(
        conflict=[
            {
                "kind": item.kind,
                "name": item.name,
                "value": item.value,
                "hosts": built.hosts(item.groups),
                "text": item.text,
            }
            for item in found
        ],
        reasons=told,
        nearest=remedies or [],
        also=list(dict.fromkeys(also)),
        undecided=undecided,
    )


def _in_time(search: Callable[[], T]) -> tuple[T | None, bool]:
    """Return what a search finds, and whether it ended at its limit."""
    try:
        return search(), False
    except SearchLimitError:
        return None, True
