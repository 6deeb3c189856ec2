"""Why nothing fits: the fewest pins and facts that exclude each other, and the rules behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from hvlab.lab.pin_variables import TITLES
from hvlab.stack.resolver import newer, versions
from hvlab.stack.resolver.model import (
    FACT,
    PIN,
    Assumption,
    Candidate,
    ConstraintProblem,
    Key,
    LabProblem,
    Limit,
    Pruned,
    Relation,
    Scope,
    partners,
    prune,
)
from hvlab.stack.resolver.pins import Pin, meets
from hvlab.stack.resolver.solve import build, is_infeasible

_SENTENCES = 4
# In labs with more groups, first narrow down to those in conflict: a third of the time at 50 groups.
_FEW = 3

Fails = Callable[[frozenset[int]], bool]


def minimal(lab: LabProblem) -> list[Assumption]:
    """Return a minimal set of assumptions under which nothing fits."""
    part = _part(lab)
    return _assumptions(lab, part, _minimal(part, _everything(part), _fails(part)))


def find_all(lab: LabProblem) -> tuple[list[Assumption], list[list[Assumption]]]:
    """Return a minimal conflict, and others: between two pins, and those left without one of its pins."""
    part = _part(lab)
    fails, everything = _fails(part), _everything(part)
    first = _minimal(part, everything, fails)
    others: dict[frozenset[int], None] = {}
    pins = [number for number in everything if part.assumptions[number].kind == PIN]
    for pin in pins:
        rest = [number for number in everything if number != pin]
        if pin in first and fails(frozenset(rest)):
            others[_minimal(part, rest, fails)] = None
    sound = [pin for pin in pins if len(first) > 1 and not fails(frozenset([pin]))]
    others |= {frozenset(two): None for two in combinations(sound, 2) if fails(frozenset(two))}
    also = [numbers for numbers in others if numbers != first][:_SENTENCES]
    return _assumptions(lab, part, first), [_assumptions(lab, part, numbers) for numbers in also]


def _part(lab: LabProblem) -> LabProblem:
    if len(lab.groups) <= _FEW:
        return lab

    def some(numbers: Iterable[int]) -> LabProblem:
        return build([lab.groups[number] for number in sorted(numbers)], lab.catalogue)

    def fails(numbers: frozenset[int]) -> bool:
        return bool(numbers) and is_infeasible(some(numbers), Scope())

    return some(_shrink(range(len(lab.groups)), fails))


def _assumptions(lab: LabProblem, part: LabProblem, numbers: Iterable[int]) -> list[Assumption]:
    """Return the whole lab's assumptions that match a part's, so that every affected host is named."""
    known = {(a.kind, a.name, a.value): a for a in reversed(lab.assumptions)}
    own = [part.assumptions[number] for number in sorted(numbers)]
    return [known[a.kind, a.name, a.value] for a in own]


def _everything(lab: LabProblem) -> list[int]:
    return [assumption.number for assumption in lab.assumptions]


def _fails(lab: LabProblem) -> Fails:
    known: dict[frozenset[int], bool] = {}

    def fails(assumptions: frozenset[int]) -> bool:
        if assumptions not in known:
            known[assumptions] = is_infeasible(lab, Scope(assumptions))
        return known[assumptions]

    return fails


def _minimal(lab: LabProblem, everything: list[int], fails: Fails) -> frozenset[int]:
    """Return a minimal conflict: of pins alone if possible, because they are easier to change."""
    pins = [number for number in everything if lab.assumptions[number].kind == PIN]
    facts = [number for number in everything if number not in pins]
    conflict = _shrink(pins if fails(frozenset(pins)) else [*facts, *pins], fails)
    singles = (frozenset([number]) for number in [*pins, *facts] if len(conflict) > 1)
    return next((single for single in singles if fails(single)), conflict)


def _shrink(order: Iterable[int], fails: Fails) -> frozenset[int]:
    """Drop one after another as long as the rest still fails (deletion filter)."""
    left = list(order)
    size = len(left)
    # Whole parts first: most pins and facts of a big lab are irrelevant.
    while size:
        place = 0
        while place < len(left):
            rest = left[:place] + left[place + size :]
            if fails(frozenset(rest)):
                left = rest
            else:
                place += size
        size //= 2
    return frozenset(left)


def sentences(lab: LabProblem, conflict: Sequence[Assumption]) -> list[str]:
    """Return sentences on why these pins and facts exclude each other."""
    if _is_two_gpus(conflict):
        first, second = (assumption.text for assumption in conflict)
        return [f"no torch release has code for both {first} and {second}"]
    scope = Scope(frozenset(assumption.number for assumption in conflict))
    pruned = prune(lab, scope)
    texts: list[str] = []
    waiting, done = [pruned.empty], set()
    while waiting:
        key = waiting.pop(0)
        if key is None or key in done:
            continue
        done.add(key)
        for text, deeper in _reasons(lab, scope, pruned, key, all_gone=key == pruned.empty):
            texts.append(text)
            waiting += [deeper] if deeper else []
    return list(dict.fromkeys(texts))[:_SENTENCES]


def _is_two_gpus(conflict: Sequence[Assumption]) -> bool:
    """Whether only the GPUs of two kinds of hosts conflict: these share nothing but torch."""
    gpus = all(item.kind == FACT and item.name == "gpu" and item.value != "no GPU" for item in conflict)
    return gpus and len(conflict) == len(("one", "other")) and not conflict[0].groups & conflict[1].groups


def _reasons(
    lab: LabProblem, scope: Scope, pruned: Pruned, key: Key, *, all_gone: bool
) -> Iterator[tuple[str, Key | None]]:
    """Yield the fewest sentences that explain a component's lost candidates, and which to explain next."""
    pinned = lab.full(key)
    pins = [
        (number, limit)
        for number, limit in enumerate(lab.limits)
        if limit.key == key and limit.say is None and limit.assumptions and scope.counts(limit)
    ]
    for number, _ in pins:
        pinned &= lab.limit_masks[number]
    if not pinned:
        yield _explain_pins(lab, key, pins), None
        return
    gone = pinned & ~pruned.masks[key]
    causes = list(_causes(lab, scope, pruned, key))
    if not pruned.after_limits[key]:
        # The limits suffice, so other rules are irrelevant.
        causes = [cause for cause in causes if isinstance(cause[1], Limit)]
    while gone:
        mask, rule, deeper = max(causes, key=lambda cause: ((cause[0] & gone).bit_count(), cause[2] is None))
        if not mask & gone:
            return
        text = _say(lab, pruned, rule, lab.of(key, mask & gone), deeper=deeper)
        if text:
            yield text, deeper
        gone &= ~mask
        if not all_gone:
            return


def _causes(
    problem: ConstraintProblem, scope: Scope, pruned: Pruned, key: Key
) -> Iterator[tuple[int, Limit | Relation, Key | None]]:
    full = problem.full(key)
    for number, limit in enumerate(problem.limits):
        if limit.key == key and limit.say and scope.counts(limit):
            yield full & ~problem.limit_masks[number], limit, None
    for number, relation in enumerate(problem.relations):
        if not scope.counts(relation) or key not in (relation.left, relation.right):
            continue
        right = key == relation.right
        other = relation.left if right else relation.right
        table = problem.tables[number][0 if right else 1]
        if not pruned.after_limits[other]:
            # Nothing is left there anyway; that component's own explanation follows.
            continue
        yield full & ~partners(table, pruned.after_limits[other]), relation, None
        if pruned.masks[other]:
            yield full & ~partners(table, pruned.masks[other]), relation, other


def _say(
    problem: ConstraintProblem,
    pruned: Pruned,
    rule: Limit | Relation,
    gone: Sequence[Candidate],
    *,
    deeper: Key | None,
) -> str:
    if rule.say is None:
        return ""
    if isinstance(rule, Limit):
        return rule.say(gone)
    key = gone[0].key
    other = rule.left if key == rule.right else rule.right
    left_of = problem.of(other, pruned.masks[other] if deeper else pruned.after_limits[other])
    return rule.say(left_of, gone) if key == rule.right else rule.say(gone, left_of)


def _explain_pins(lab: LabProblem, key: Key, pins: Sequence[tuple[int, Limit]]) -> str:
    title = TITLES.get(key[0], key[0])
    known = [
        candidate.version
        for candidate in lab.domains[key]
        if candidate.version != "none" and not getattr(candidate.data, "avoid", None)
    ]
    for number, limit in pins:
        if not lab.limit_masks[number]:
            pin = lab.assumptions[limit.assumptions[0]]
            builds = _builds(lab, key, Pin(pin.name, pin.value))
            near = ", ".join(versions.nearest(pin.value, known))
            return (
                builds
                or f"no {title} {pin.value} is known; the nearest known are {near}{_suggest_full(pin, known)}"
            )
    texts = dict.fromkeys(lab.assumptions[limit.assumptions[0]].text for _, limit in pins)
    return f"{' and '.join(texts)} exclude each other: the lab can have one {title} only"


def _suggest_full(pin: Assumption, known: Sequence[str]) -> str:
    """Return a hint to write a newer release in full if the pin leaves out its last numbers."""
    short = newer.complete_pin(Pin(pin.name, pin.value))
    if not short or versions.numbers(pin.value) < max(map(versions.numbers, known), default=()):
        return ""
    return f"; a newer one is pinned in full ({short})"


def _builds(problem: ConstraintProblem, key: Key, pin: Pin) -> str:
    release = replace(pin, value=re.split(r"(?:-1)?\+", pin.value)[0])
    if release == pin or pin.name != key[0]:
        return ""
    candidates = [candidate for candidate in problem.domains[key] if meets(release, candidate.version)]
    if pin.name == "torch" and pin.cuda:
        builds = {build for c in candidates for build in c.data.cuda}
        kind = f"wheel for CUDA {pin.cuda}"
    else:
        builds = {c.version.partition("+cuda")[2] for c in candidates} - {""}
        kind = f"build for CUDA {pin.value.rpartition('cuda')[2]}"
    text = ", ".join(sorted(builds, key=versions.numbers))
    return f"{TITLES[pin.name]} {release.value} has no {kind} (it has {text})" if builds else ""
