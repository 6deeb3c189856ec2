"""Which versions fit together: a stack for each host, or why there is none.

In: `HostRequest`s (facts of `facts`, pins and methods of `pins`, joined in `lab`), and the catalogue.
Out: a `Resolution` (versions, packages, reasons and notes by host), or `Infeasible` (conflict, remedies).

Read `solve` first. It runs the whole procedure; each line leads to one file:

    lab.group             like hosts become one `HostGroup`, so that 1,000 hosts cost as one
    solve.build           the constraint problem of these groups, a `model.LabProblem`:
      domains.add           the candidates of each component, the preferred first
      limits.add            rules on one component: pins, operating system, driver, GPUs
      relations.add         rules on two: which torch fits which CUDA, which driver runs it
    solve.best            the solution that keeps the most preferences (installed driver, one CUDA, ...)
      solve.search          one search: `model.prune`, then resolvelib

How it works with resolvelib: a key (`("cuda", 0)`: CUDA of group 0) is resolvelib's identifier. `Provider`
supplies the candidates of a key in order of preference; the relations of a chosen candidate require fitting
candidates of later keys (`Requirement`); resolvelib backtracks. `domains.add` sets the order of keys. The
meaning of a rule is in `rules`, as predicates over the catalogue.

Besides resolvelib, which explains neither a failure nor its remedies:

    model.prune           arc consistency: leaves few candidates to search, and says which key has none left
    solve.best            resolvelib has hard requirements only; preferences are rules tried on top
    conflict.minimal      which pins and facts are in conflict: leaves out one after the other, searches again
    conflict.sentences    the rules that exclude them, in words, from the pruned domains
    nearest.remedies      changes of pins, hosts and drivers, each tried by a search before it is offered

`lock` keeps the versions of a plan in a file, and makes them pins of a later one.
The answer: `stack` (versions, reasons and `packages` by host), `notes`; `lock` writes it for a terminal.
The data: `catalogue` reads the files of `hvlab.stack.catalogue` and a user's `own` into checked objects,
`versions` compares them.
`newer` adds the releases that pins ask for beyond the files, each taken to be like the newest of its branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from hvlab.base.errors import Problem
from hvlab.stack.resolver import conflict, nearest, newer, notes, stack
from hvlab.stack.resolver.catalogue import Catalogue, load
from hvlab.stack.resolver.lab import NO_GPU, HostRequest, group
from hvlab.stack.resolver.model import FACT, LabProblem
from hvlab.stack.resolver.nearest import Remedy
from hvlab.stack.resolver.pins import Pin
from hvlab.stack.resolver.solve import SearchLimitError, build, find_best

__all__ = ["HostRequest", "Infeasible", "Resolution", "plan"]

T = TypeVar("T")


@dataclass(frozen=True)
class Resolution:
    """A stack for every host, and why site.yml will still refuse some of them."""

    hosts: dict[str, dict[str, Any]]
    notes: list[str]
    refused: Sequence[Problem] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        refused = [asdict(problem) for problem in self.refused]
        return {"resolved": True, "hosts": self.hosts, "notes": self.notes, "refused": refused}


@dataclass(frozen=True)
class Infeasible:
    """Why nothing fits: a minimal conflict, the reasons, other conflicts, and remedies."""

    conflict: list[dict[str, Any]]
    reasons: list[str]
    nearest: list[Remedy]
    also: list[str] = field(default_factory=list)
    # Whether the search for remedies ended at its limit.
    undecided: bool = False

    @property
    def message(self) -> str:
        """The whole explanation as one text."""
        why = "; ".join(self.reasons) or " and ".join(str(item["text"]) for item in self.conflict)
        also = f"; besides, {'; '.join(self.also)}" if self.also else ""
        return f"{why}{also}; {self.remedy}"

    @property
    def remedy(self) -> str:
        """The remedies as one text."""
        if self.undecided:
            return "the search for what would resolve it ended at its limit; drop one of these pins at a time"
        hosts = {host for item in self.conflict for host in item["hosts"]}
        if not self.nearest and all(item["name"] == "host" for item in self.conflict):
            return (
                f"add a supported host: without {'this one' if len(hosts) == 1 else 'these'} the lab is empty"
            )
        kinds = {item["kind"] for item in self.conflict}
        other = "it takes another operating system, GPU or method of installation"
        if any(item["name"] == "gpu" and item["value"] != NO_GPU for item in self.conflict):
            other += "; or leave the host out of the group gpu: its ranks then run on CPUs"
        if not self.nearest and kinds == {FACT}:
            return f"no pin is in the way: {other}"
        if not self.nearest:
            none = "no change of one, two or three of these pins and hosts resolves it"
            return f"{none}: {other}" if FACT in kinds else none
        return f"{' or '.join(remedy.text for remedy in self.nearest)} it resolves"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "resolved": False,
            "message": self.message,
            "conflict": self.conflict,
            "reasons": self.reasons,
            "also": self.also,
            "nearest": [asdict(remedy) for remedy in self.nearest],
        }


def plan(
    lab: Sequence[HostRequest], pins: Sequence[Pin] = (), catalogue: Catalogue | None = None
) -> Resolution | Infeasible:
    """Return the stack of every host of the lab, or why there is none.

    ``pins`` apply to all hosts, in addition to each host's own in ``lab``.
    Raises SearchLimitError if the search ends before it knows either.
    """
    catalogue = catalogue or load()
    lab = tuple(replace(one, pins=tuple(dict.fromkeys((*pins, *one.pins)))) for one in lab)
    catalogue = newer.extend(catalogue, (pin for one in lab for pin in one.pins))
    groups, problems = group(lab, catalogue)
    if problems:
        return _explain_unsupported(lab, problems, catalogue)
    problem = build(groups, catalogue)
    solution = find_best(problem)
    if solution is None:
        return _explain_infeasible(lab, problem)
    hosts = {one.host.name: one for one in lab}
    stacks = stack.stacks(solution, {name: one.host for name, one in hosts.items()})
    return Resolution(stacks, notes.of_lab(solution, hosts), notes.refusals(solution, hosts))


def _explain_unsupported(
    lab: tuple[HostRequest, ...], problems: Sequence[Problem], catalogue: Catalogue
) -> Infeasible:
    hosts = [problem.host for problem in problems]
    others, undecided = _in_time(lambda: nearest.without(lab, hosts, catalogue))
    return Infeasible(
        conflict=[
            {
                "kind": "fact",
                "name": "host",
                "value": problem.observed,
                "hosts": [problem.host],
                "text": f"{problem.host}: {problem.observed}",
            }
            for problem in problems
        ],
        reasons=[f"{problem.host}: {problem.observed} ({problem.remedy})" for problem in problems],
        nearest=[others] if others else [],
        undecided=undecided,
    )


def _explain_infeasible(lab: tuple[HostRequest, ...], problem: LabProblem) -> Infeasible:
    first, others = conflict.find_all(problem)
    reasons = conflict.sentences(problem, first)
    if {"torch", "tensorflow"} <= {item.name for item in first}:
        reasons.append("the two frameworks have no toolkit in common: each needs a lab of its own")
    remedies, undecided = _in_time(lambda: nearest.remedies(lab, problem.catalogue))
    also = [text for other in others for text in conflict.sentences(problem, other) if text not in reasons]
    return Infeasible(
        conflict=[
            {
                "kind": item.kind,
                "name": item.name,
                "value": item.value,
                "hosts": problem.hosts(item.groups),
                "text": item.text,
            }
            for item in first
        ],
        reasons=reasons,
        nearest=remedies or [],
        also=list(dict.fromkeys(also)),
        undecided=undecided,
    )


def _in_time(search: Callable[[], T]) -> tuple[T | None, bool]:
    try:
        return search(), False
    except SearchLimitError:
        return None, True
