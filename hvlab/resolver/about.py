"""One group's hosts with what was chosen for them: what reasons and notes are told of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.resolver import rules, versions
from hvlab.resolver.entries import Catalogue
from hvlab.resolver.lab import Group
from hvlab.resolver.solve import Solution


@dataclass(frozen=True)
class About:
    """A group in a solution; ``found`` are its versions, None where it does not get a component."""

    solution: Solution
    number: int
    group: Group
    found: Mapping[str, str | None]

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue it was chosen from."""
        return self.solution.built.catalogue

    @property
    def torch(self) -> Any:
        """What the catalogue knows of the chosen torch; None where there is none."""
        return self.data("torch", None)

    @property
    def sms(self) -> str:
        """The GPUs' code names for the reader."""
        return ", ".join("sm_" + capability.replace(".", "") for capability in self.group.capabilities)

    @property
    def gcc(self) -> int | None:
        """The major version of the compiler that is there."""
        return versions.major(self.group.host.gcc) if self.group.host.gcc else None

    @property
    def torch_build(self) -> str | None:
        """The CUDA release of the torch wheel; None for the one without CUDA."""
        cuda = self.found["cuda"]
        if self.torch is None or cuda is None or self.solution.built.torch_on_cpu:
            return None
        fits = rules.torch_fits(
            self.torch, cuda, self.group.capabilities, self.group.host.architecture, exact=False
        )
        return next(iter(fits), None)

    def version(self, name: str) -> str:
        """Return the version of a component that the hosts get."""
        return str(self.found[name])

    def data(self, name: str, number: int | None) -> Any:
        """Return what the catalogue knows of a chosen version."""
        candidate = self.solution.chosen.get((name, number))
        return None if candidate is None else candidate.data
