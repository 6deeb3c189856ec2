"""One launch, and one that is infeasible: what the matrix makes, and everything after it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One launch: ``slots`` ranks on each of ``hosts``; the first of them starts it.

    ``variant`` is the build of Horovod that the ranks use.

    ``params`` holds every parameter of the workload, ``device`` (cpu or cuda) and Horovod's tuning; it is
    JSON-ready. ``timeout`` is in seconds. ``container`` and ``ssh_port`` are empty and 0 where the ranks
    run on the hosts themselves.
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
        """Return the number of ranks."""
        return len(self.hosts) * self.slots

    @property
    def framework(self) -> str:
        """Return whose tensors the ranks use."""
        return str(self.params.get("framework", "torch"))

    @property
    def command(self) -> str:
        """Return the user's own command, as one line of a shell; empty for hvlab's own programs."""
        return str(self.params.get("command", ""))


@dataclass(frozen=True)
class InfeasibleCase:
    """A case that cannot be measured, and why."""

    case: str
    reason: str
