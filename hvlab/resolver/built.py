"""A problem with the lab it is of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hvlab.resolver.entries import Catalogue
from hvlab.resolver.lab import Group
from hvlab.resolver.model import Problem
from hvlab.resolver.pins import Pin

# Preferences, besides that of keeping an installed driver; a search gives up as few as it can.
SAME_TOOLKIT, ONE_CUDA, ONE_NCCL = "toolkit", "one cuda", "one nccl"


@dataclass(frozen=True)
class Wishes:
    """All wishes: of the command line for every host, and of the inventory (which the groups have)."""

    everywhere: tuple[Pin, ...] = ()

    def of(self, group: Group) -> tuple[Pin, ...]:
        """Return what is wished for one group's hosts."""
        return (*self.everywhere, *group.pins)


@dataclass
class Built:
    """A problem with the lab it is of; ``soft`` are the preferences it has, the dearest first."""

    problem: Problem
    groups: tuple[Group, ...]
    wishes: Wishes
    catalogue: Catalogue
    soft: list[str] = field(default_factory=list)

    def pins(self) -> dict[Pin, frozenset[int]]:
        """Return every wish with the groups it is for."""
        found: dict[Pin, set[int]] = {}
        for number, group in enumerate(self.groups):
            for pin in self.wishes.of(group):
                found.setdefault(pin, set()).add(number)
        return {pin: frozenset(numbers) for pin, numbers in found.items()}

    def hosts(self, numbers: Iterable[int]) -> list[str]:
        """Return the hosts of groups."""
        return [host for number in sorted(numbers) for host in self.groups[number].hosts]

    @property
    def frameworks(self) -> list[str]:
        """The frameworks wanted: torch unless only TensorFlow is asked for."""
        asked = {pin.name for pin in self.pins()} & {"torch", "tensorflow"}
        return sorted(asked, key=["torch", "tensorflow"].index) or ["torch"]

    def wished(self, name: str, value: str | None = None) -> tuple[int, ...]:
        """Return the assumption that a component (of this value) is there for, if it is there for a wish."""
        found = [
            a.number
            for a in self.problem.assumptions
            if a.kind == "wish" and a.name == name and value in (None, a.value)
        ]
        return tuple(found[:1])

    @property
    def torch_on_cpu(self) -> bool:
        """Whether torch's build without CUDA is asked for."""
        return any(pin.build == "cpu" for pin in self.pins())
