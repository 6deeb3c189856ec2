"""A constraint problem: candidates for each component, limits on one, relations between two; pruning. Pure.

Sets of candidates are bit masks over a domain, whose order is the order of preference. `LabProblem` is a
lab's problem: its groups of hosts, and the pins and facts that can conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from hvlab.base.errors import some
from hvlab.base.groups import grouped
from hvlab.lab.pin_variables import TORCH
from hvlab.stack.resolver import versions
from hvlab.stack.resolver.catalogue import Catalogue
from hvlab.stack.resolver.facts import Gpu
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.pins import FRAMEWORKS, Pin

# A component of the whole lab (None), or of one group of like hosts (its number).
Key = tuple[str, int | None]
Table = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Candidate:
    """One version of a component; ``data`` is its catalogue entry."""

    key: Key
    version: str
    data: Any = None
    place: int = 0


@dataclass(frozen=True)
class Assumption:
    """A pin, or a fact of some groups of hosts, that a conflict can name and a relaxation can drop."""

    number: int
    kind: str
    name: str
    value: str
    text: str
    groups: frozenset[int]


@dataclass(frozen=True, eq=False)
class Limit:
    """A rule on one component. ``say`` returns the sentence for candidates that it excludes.

    It applies while its ``assumptions`` do; a ``soft`` one only while the search keeps that preference.
    """

    key: Key
    allowed: Callable[[Candidate], bool]
    say: Callable[[Sequence[Candidate]], str] | None = None
    assumptions: tuple[int, ...] = ()
    soft: str | None = None


@dataclass(frozen=True, eq=False)
class Relation:
    """A rule on two components; ``prefer`` orders the right one's candidates, low first."""

    left: Key
    right: Key
    allowed: Callable[[Candidate, Candidate], bool]
    say: Callable[[Sequence[Candidate], Sequence[Candidate]], str] | None = None
    prefer: Callable[[Candidate, Candidate], Any] | None = None
    assumptions: tuple[int, ...] = ()
    soft: str | None = None


@dataclass(frozen=True)
class Scope:
    """The assumptions and preferences that apply in one search; None means all assumptions.

    ``only`` holds masks that narrow some domains for this search alone.
    """

    assumptions: frozenset[int] | None = None
    soft: frozenset[str] = frozenset()
    only: Mapping[Key, int] = field(default_factory=dict)

    def counts(self, rule: Limit | Relation) -> bool:
        """Whether a rule applies in this search."""
        if rule.soft is not None and rule.soft not in self.soft:
            return False
        return self.assumptions is None or self.assumptions.issuperset(rule.assumptions)


@dataclass
class ConstraintProblem:
    """Domains, limits and relations. Keys are in the order of choosing.

    Every relation's left key precedes its right one, so that a choice never undoes an earlier one.
    """

    domains: dict[Key, tuple[Candidate, ...]] = field(default_factory=dict)
    limits: list[Limit] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)

    def add_domain(self, key: Key, releases: Iterable[tuple[str, Any]]) -> None:
        """Add a component with its (version, data), the preferred first."""
        self.domains[key] = tuple(
            Candidate(key, version, data, place) for place, (version, data) in enumerate(releases)
        )

    def assume(self, kind: str, name: str, value: str, text: str, groups: Iterable[int]) -> int:
        """Add an assumption and return its number."""
        self.assumptions.append(Assumption(len(self.assumptions), kind, name, value, text, frozenset(groups)))
        return len(self.assumptions) - 1

    def of(self, key: Key, mask: int) -> list[Candidate]:
        """Return the candidates of a mask, the preferred first."""
        return [candidate for candidate in self.domains[key] if mask >> candidate.place & 1]

    @cached_property
    def limit_masks(self) -> list[int]:
        """The candidates that each limit allows."""
        return [
            sum(1 << candidate.place for candidate in self.domains[limit.key] if limit.allowed(candidate))
            for limit in self.limits
        ]

    @cached_property
    def tables(self) -> list[Table]:
        """Return each relation's compatible candidates, by candidate of its left and of its right key."""
        names = {key: tuple((c.version, id(c.data)) for c in domain) for key, domain in self.domains.items()}
        return [
            _table(
                _Pairs(
                    (_behaviour_key(relation.allowed), names[relation.left], names[relation.right]),
                    relation.allowed,
                    self.domains[relation.left],
                    self.domains[relation.right],
                )
            )
            for relation in self.relations
        ]

    @cached_property
    def order(self) -> Mapping[Key, int]:
        """Return the place of each key in the order of choosing."""
        return {key: place for place, key in enumerate(self.domains)}

    def full(self, key: Key) -> int:
        """Return the mask of all candidates."""
        return (1 << len(self.domains[key])) - 1

    def of_left(self, key: Key, scope: Scope) -> Iterator[tuple[int, Relation]]:
        """Return the relations whose left key is ``key``, with their numbers."""
        for number in self._by_left.get(key, ()):
            if scope.counts(self.relations[number]):
                yield number, self.relations[number]

    @cached_property
    def _by_left(self) -> dict[Key, list[int]]:
        return grouped((relation.left, number) for number, relation in enumerate(self.relations))


@dataclass(frozen=True)
class _Pairs:
    """What a table is computed from; ``like`` is the same where the table is, while the rest is alive."""

    like: tuple[object, ...]
    allowed: Callable[[Candidate, Candidate], bool] = field(compare=False)
    lefts: tuple[Candidate, ...] = field(compare=False)
    rights: tuple[Candidate, ...] = field(compare=False)


@lru_cache(maxsize=512)
def _table(pairs: _Pairs) -> Table:
    """Return a table, of which the problems behind one answer have most in common."""
    rows, columns = [], [0] * len(pairs.rights)
    for left in pairs.lefts:
        row = 0
        for right in pairs.rights:
            if pairs.allowed(left, right):
                row |= 1 << right.place
                columns[right.place] |= 1 << left.place
        rows.append(row)
    return tuple(rows), tuple(columns)


def _behaviour_key(function: Callable[..., Any]) -> tuple[object, ...]:
    """Return a key for functions that behave alike: their code, and their closure.

    A lab of 60 kinds of hosts has most of its tables 60 times; computed once it resolves 3 times as fast.
    """
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return (
        function.__code__,
        *(value if isinstance(value, str | bool | tuple) else id(value) for value in cells),
    )


def list_versions(candidates: Iterable[Candidate], among: Iterable[str] = ()) -> str:
    """Return candidates' versions for the reader, neighbours ``among`` all versions as a span."""
    return versions.spans((candidate.version for candidate in candidates), among)


@dataclass
class Pruned:
    """The rest of each domain; ``empty`` is a key with nothing left, if any.

    ``after_limits`` is the rest before any relation.
    """

    masks: dict[Key, int]
    after_limits: Mapping[Key, int]
    empty: Key | None = None


def prune(problem: ConstraintProblem, scope: Scope) -> Pruned:
    """Return the domains as limits and pairwise relations leave them (arc consistency)."""
    masks = {key: problem.full(key) & scope.only.get(key, -1) for key in problem.domains}
    for number, limit in enumerate(problem.limits):
        if scope.counts(limit):
            masks[limit.key] &= problem.limit_masks[number]
    pruned = Pruned(masks, dict(masks), next((key for key in masks if not masks[key]), None))
    relations = [(n, r) for n, r in enumerate(problem.relations) if scope.counts(r)]
    changed = set() if pruned.empty else set(masks)
    while changed:
        now, changed = changed, set()
        for number, relation in relations:
            if relation.left not in now and relation.right not in now:
                continue
            rows, columns = problem.tables[number]
            sides = ((relation.right, rows, relation.left), (relation.left, columns, relation.right))
            for key, table, other in sides:
                allowed = masks[key] & partners(table, masks[other])
                if allowed != masks[key]:
                    masks[key] = allowed
                    changed.add(key)
                if not allowed:
                    pruned.empty = key
                    return pruned
    return pruned


@lru_cache(maxsize=200_000)
def partners(table: tuple[int, ...], mask: int) -> int:
    """Return the union of a table's rows that are in the mask."""
    union = 0
    for place, row in enumerate(table):
        if mask >> place & 1:
            union |= row
    return union


# Preferences, besides keeping an installed driver.
SAME_TOOLKIT, ONE_CUDA, ONE_NCCL = "toolkit", "one cuda", "one nccl"
TENSORFLOW_TOOLKIT = "toolkit of tensorflow"
ONE_TORCH_NCCL = "one nccl of torch"
PIN, FACT = "pin", "fact"


def keep_driver(number: int) -> str:
    """Return the preference for keeping a group's installed driver."""
    return f"keep driver {number}"


@dataclass(kw_only=True)
class LabProblem(ConstraintProblem):
    """A constraint problem with its lab. Its assumptions are the lab's pins and facts."""

    groups: tuple[HostGroup, ...]
    catalogue: Catalogue
    _facts: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Assume every pin, then every fact, each once for all groups that share it."""
        for pin, numbers in self.pins.items():
            if pin.value:
                everyone = len(numbers) == len(self.groups)
                text = pin.text if everyone else f"{pin.text} ({some(self.hosts(numbers))})"
                self.assume(PIN, pin.name, pin.value, text, numbers)
        sharing = grouped((fact, number) for number, group in enumerate(self.groups) for fact in group.facts)
        for (kind, value), groups in sharing.items():
            text = f"{value} on {some(self.hosts(groups))}"
            self._facts[kind, value] = self.assume(FACT, kind, value, text, groups)

    @property
    def pins(self) -> dict[Pin, frozenset[int]]:
        """Every pin with the numbers of its groups."""
        numbers = grouped((pin, number) for number, group in enumerate(self.groups) for pin in group.pins)
        return {pin: frozenset(those) for pin, those in numbers.items()}

    def hosts(self, numbers: Iterable[int]) -> list[str]:
        """Return the hosts of groups."""
        return [host for number in sorted(numbers) for host in self.groups[number].hosts]

    def name(self, candidates: Sequence[Candidate]) -> str:
        """Return candidates for the reader, neighbours in their domain as a span."""
        return list_versions(candidates, [candidate.version for candidate in self.domains[candidates[0].key]])

    def fact(self, kind: str, value: str) -> int:
        """Return the assumption of a fact."""
        return self._facts[kind, value]

    def sharing(self, kind: str, value: str) -> str:
        """Return the hosts that share a fact, for the reader."""
        return some(self.hosts(self.assumptions[self.fact(kind, value)].groups))

    def where(self, gpu: Gpu) -> str:
        """Return a GPU with its hosts, for the reader: sm_52 (Tesla M40 on n3)."""
        return f"{gpu.sm} ({gpu.name} on {self.sharing('gpu', gpu.title)})"

    def find_pin(self, name: str, value: str | None = None) -> tuple[int, ...]:
        """Return the first pin of a component (to this value) as a rule's assumption; else nothing."""
        numbers = [
            item.number
            for item in self.assumptions
            if item.kind == PIN and item.name == name and value in (None, item.value)
        ]
        return tuple(numbers[:1])

    @property
    def frameworks(self) -> list[str]:
        """The frameworks to install: torch unless only TensorFlow is pinned."""
        pinned = {pin.name for pin in self.pins}
        return [name for name in FRAMEWORKS if name in pinned] or ["torch"]

    @property
    def without_horovod(self) -> bool:
        """Whether torch takes Horovod's place on every host, which then needs no MPI either."""
        return self.pins.get(Pin("horovod", TORCH)) == frozenset(range(len(self.groups)))

    @property
    def torch_on_cpu(self) -> bool:
        """Whether torch's build without CUDA is pinned."""
        return any(pin.build == "cpu" for pin in self.pins)

    @property
    def preferences(self) -> list[str]:
        """The lab's preferences, most important first; a search gives up as few as it can."""
        gpus = [number for number, group in enumerate(self.groups) if group.gpus]
        kept = [keep_driver(number) for number in reversed(gpus) if self.groups[number].host.driver]
        toolkit = [SAME_TOOLKIT] if gpus and "torch" in self.frameworks and not self.torch_on_cpu else []
        torch_nccl = [ONE_TORCH_NCCL] if toolkit else []
        toolkit = [TENSORFLOW_TOOLKIT, *toolkit] if gpus and "tensorflow" in self.frameworks else toolkit
        return [*kept, *toolkit, *([ONE_CUDA, *torch_nccl, ONE_NCCL] if len(gpus) > 1 else [])]
