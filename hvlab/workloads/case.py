"""One launch, or an infeasible one: from the matrix to everything after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One launch: ``slots`` ranks on each of ``hosts``; the first host starts it.

    ``variant`` is the build of Horovod. ``params`` holds every parameter of the workload, ``device`` (cpu or
    cuda) and Horovod's tuning, JSON-ready. ``timeout`` is in seconds. ``container`` and ``ssh_port`` are
    empty and 0 if the ranks run on the hosts themselves.
    """

    id: str
    workload: str
    backend: str
    launcher: str
    hosts: tuple[str, ...]
    slots: int
    repeat: int
    variant: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    timeout: int = 900
    container: str = ""
    ssh_port: int = 0

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.hosts) * self.slots

    @property
    def framework(self) -> str:
        """Framework of the ranks' tensors."""
        return str(self.params.get("framework", "torch"))

    @property
    def command(self) -> str:
        """The user's own command as a shell line; empty for hvlab's programs."""
        return str(self.params.get("command", ""))


@dataclass(frozen=True)
class InfeasibleCase:
    """A case that cannot be measured, and why."""

    case: str
    reason: str
