"""Why nothing fits: the smallest set of wishes and facts that exclude each other, and what excludes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from hvlab.resolver import versions
from hvlab.resolver.built import Built
from hvlab.resolver.model import Assumption, Candidate, Key, Limit, Problem, Relation, Scope
from hvlab.resolver.pins import TITLES, Pin, meets
from hvlab.resolver.problem import build
from hvlab.resolver.provider import infeasible
from hvlab.resolver.prune import Pruned, partners, prune

# Up to so many wishes and facts every pair of them is tried as a smaller conflict.
_PAIRS_OF = 24
_SENTENCES = 4
# Labs of more groups of hosts are narrowed down first.
_FEW = 3


Fails = Callable[[frozenset[int]], bool]


def smallest(built: Built) -> list[Assumption]:
    """Return a smallest set of assumptions under which nothing fits; empty where nothing ever fits."""
    return all_of(built, others=False)[0]


def all_of(built: Built, *, others: bool = True) -> tuple[list[Assumption], list[list[Assumption]]]:
    """Return a smallest conflict, and others: of two wishes, and what is left without one of its wishes."""
    part = _part(built)
    fails = _fails(part)
    everything = [assumption.number for assumption in part.problem.assumptions]
    first = _smallest(part.problem, everything, fails)
    found: dict[frozenset[int], None] = {}
    wishes = [number for number in everything if part.problem.assumptions[number].kind == "wish"]
    for wish in wishes if others else ():
        rest = [number for number in everything if number != wish]
        if wish in first and fails(frozenset(rest)):
            found[_smallest(part.problem, rest, fails)] = None
    sound = [wish for wish in wishes if others and len(first) > 1 and not fails(frozenset([wish]))]
    found |= {frozenset(two): None for two in combinations(sound, 2) if fails(frozenset(two))}
    also = [numbers for numbers in found if numbers != first][:_SENTENCES]
    return _assumptions(built, part, first), [_assumptions(built, part, numbers) for numbers in also]


def _part(built: Built) -> Built:
    """Return the lab without the groups of hosts that a conflict does not need."""
    if len(built.groups) <= _FEW:
        return built

    def fails(numbers: frozenset[int]) -> bool:
        groups = [built.groups[number] for number in sorted(numbers)]
        return bool(groups) and infeasible(build(groups, built.wishes, built.catalogue).problem, Scope())

    needed = _shrink(range(len(built.groups)), fails)
    return build([built.groups[number] for number in sorted(needed)], built.wishes, built.catalogue)


def _assumptions(built: Built, part: Built, numbers: Iterable[int]) -> list[Assumption]:
    """Return the assumptions of the whole lab that a part's are, so that every host of theirs is named."""
    known = {(a.kind, a.name, a.value): a for a in reversed(built.problem.assumptions)}
    found = [part.problem.assumptions[number] for number in sorted(numbers)]
    return [known[a.kind, a.name, a.value] for a in found]


def _fails(built: Built) -> Fails:
    known: dict[frozenset[int], bool] = {}

    def fails(assumptions: frozenset[int]) -> bool:
        if assumptions not in known:
            known[assumptions] = infeasible(built.problem, Scope(assumptions))
        return known[assumptions]

    return fails


def _smallest(problem: Problem, everything: list[int], fails: Fails) -> frozenset[int]:
    """Leave out one after the other, in several orders; then try all singles and pairs.

    Wishes that exclude each other come before those that exclude facts: they are easier to change.
    """
    wishes = [number for number in everything if problem.assumptions[number].kind == "wish"]
    if fails(frozenset(wishes)):
        everything = wishes + [number for number in everything if number not in wishes]
        found = _shrink(wishes, fails)
    else:
        found = min((_shrink(order, fails) for order in _orders(problem, everything)), key=len)
    for size in (1, 2):
        if size < len(found) and (size == 1 or len(everything) <= _PAIRS_OF):
            smaller = (frozenset(few) for few in combinations(everything, size))
            found = next((few for few in smaller if fails(few)), found)
    return found


def _orders(problem: Problem, everything: list[int]) -> list[list[int]]:
    facts_first = sorted(everything, key=lambda number: problem.assumptions[number].kind != "fact")
    return [facts_first, everything[::-1]]


def _shrink(order: Iterable[int], fails: Fails) -> frozenset[int]:
    left = list(order)
    size = len(left)
    # Whole parts first: most wishes and facts of a big lab have nothing to do with it.
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


def sentences(built: Built, conflict: Iterable[Assumption]) -> list[str]:
    """Return what excludes these wishes and facts, for the reader."""
    found = list(conflict)
    if _two_gpus(found):
        first, second = (assumption.text for assumption in found)
        return [f"no torch release has code for both {first} and {second}"]
    scope = Scope(frozenset(assumption.number for assumption in found))
    pruned = prune(built.problem, scope)
    told = _told(built, scope, pruned) if pruned.empty else _branches(built, scope, pruned)
    return list(dict.fromkeys(told))[:_SENTENCES]


def _two_gpus(conflict: Sequence[Assumption]) -> bool:
    """Whether only the GPUs of two kinds of hosts are in conflict: these share nothing but torch."""
    gpus = all(item.kind == "fact" and item.name == "gpu" and item.value != "no GPU" for item in conflict)
    return gpus and len(conflict) == len(("one", "other")) and not conflict[0].groups & conflict[1].groups


def _branches(built: Built, scope: Scope, pruned: Pruned) -> list[str]:
    """Return the sentences of every choice of the first component that fails whatever is chosen for it."""
    problem = built.problem
    for key in problem.domains:
        candidates = problem.of(key, pruned.masks[key])
        tries = [
            Scope(scope.assumptions, scope.soft, {**pruned.masks, key: 1 << candidate.place})
            for candidate in candidates
        ]
        results = [(one, prune(problem, one)) for one in tries]
        if len(candidates) > 1 and all(result.empty for _, result in results):
            return [text for one, result in results for text in _told(built, one, result)]
    return []


def _told(built: Built, scope: Scope, pruned: Pruned) -> list[str]:
    texts: list[str] = []
    waiting, seen = [pruned.empty], set()
    while waiting:
        key = waiting.pop(0)
        if key is None or key in seen:
            continue
        seen.add(key)
        for text, deeper in _reasons(built, scope, pruned, key, all_gone=key == pruned.empty):
            texts.append(text)
            waiting += [deeper] if deeper else []
    return texts


def _reasons(
    built: Built, scope: Scope, pruned: Pruned, key: Key, *, all_gone: bool
) -> Iterable[tuple[str, Key | None]]:
    """Yield the fewest sentences that tell where a component's candidates went, and what to tell next."""
    problem = built.problem
    wished = problem.full(key) & scope.only.get(key, -1)
    pins = [
        limit
        for limit in problem.limits
        if limit.key == key and limit.say is None and limit.assumptions and scope.counts(limit)
    ]
    for limit in pins:
        wished &= problem.limit_masks[problem.limits.index(limit)]
    if not wished:
        yield _unknown(built, key, pins), None
        return
    gone = wished & ~pruned.masks[key]
    choices = list(_causes(problem, scope, pruned, key))
    if not pruned.after_limits[key]:
        # The limits are enough, so what others leave is beside the point.
        choices = [choice for choice in choices if isinstance(choice[1], Limit)]
    while gone:
        mask, cause, deeper = max(
            choices, key=lambda choice: ((choice[0] & gone).bit_count(), choice[2] is None)
        )
        if not mask & gone:
            return
        text = _say(problem, pruned, cause, problem.of(key, mask & gone), deeper=deeper)
        if text:
            yield text, deeper
        gone &= ~mask
        if not all_gone:
            return


def _causes(
    problem: Problem, scope: Scope, pruned: Pruned, key: Key
) -> Iterable[tuple[int, Limit | Relation, Key | None]]:
    """Yield every rule on a component, what it takes away, and the other one where its choice matters."""
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
            # Nothing is left there anyway: what took it away is told of that one.
            continue
        yield full & ~partners(table, pruned.after_limits[other]), relation, None
        if pruned.masks[other]:
            yield full & ~partners(table, pruned.masks[other]), relation, other


def _say(
    problem: Problem,
    pruned: Pruned,
    cause: Limit | Relation,
    gone: Sequence[Candidate],
    *,
    deeper: Key | None,
) -> str:
    if cause.say is None:
        return ""
    if isinstance(cause, Limit):
        return cause.say(gone)
    key = gone[0].key
    other = cause.left if key == cause.right else cause.right
    left_of = problem.of(other, pruned.masks[other] if deeper else pruned.after_limits[other])
    return cause.say(left_of, gone) if key == cause.right else cause.say(gone, left_of)


def _builds(problem: Problem, key: Key, pin: Pin) -> str:
    """Return the sentence for a wish whose release is known and has no such build."""
    release = replace(pin, value=re.split(r"(?:-1)?\+", pin.value)[0])
    if release == pin or pin.name != key[0]:
        return ""
    found = [candidate for candidate in problem.domains[key] if meets(release, candidate.version)]
    if pin.name == "torch" and pin.cuda:
        has = {build for c in found for build in c.data.cuda}
        made = f"wheel for CUDA {pin.cuda}"
    else:
        has = {c.version.partition("+cuda")[2] for c in found} - {""}
        made = f"build for CUDA {pin.value.rpartition('cuda')[2]}"
    told = ", ".join(sorted(has, key=versions.numbers))
    return f"{TITLES[pin.name]} {release.value} has no {made} (it has {told})" if has else ""


def _unknown(built: Built, key: Key, pins: Sequence[Limit]) -> str:
    """Return the sentence for wishes that no known version meets, or that contradict one another."""
    problem, title = built.problem, TITLES.get(key[0], key[0])
    known = [
        candidate.version
        for candidate in problem.domains[key]
        if candidate.version != "none" and not getattr(candidate.data, "avoid", None)
    ]
    for limit in pins:
        if not problem.limit_masks[problem.limits.index(limit)]:
            wish = problem.assumptions[limit.assumptions[0]]
            value, builds = wish.value, _builds(problem, key, Pin(wish.name, wish.value))
            if builds:
                return builds
            near = ", ".join(versions.nearest(value, known))
            return f"no {title} {value} is known; the nearest known are {near}"
    asked = dict.fromkeys(problem.assumptions[pin.assumptions[0]].text for pin in pins)
    return f"{' and '.join(asked)} exclude each other: the lab can have one {title} only"
