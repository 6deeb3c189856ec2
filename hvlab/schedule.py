"""What a bench is going to do: cases with the commands that start them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hvlab import launchers, stack
from hvlab.errors import UsageError
from hvlab.inventory import Lab
from hvlab.launchers import container
from hvlab.matrix import Case, Spec
from hvlab.workloads import WORKLOADS

DRY_RUN_ID = "RUN"


@dataclass(frozen=True)
class Schedule:
    """What is asked of a lab; ``asked`` tells that the backends were named, not chosen."""

    spec: Spec
    lab: Lab
    cases: tuple[Case, ...]
    asked: bool

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return every host that takes part, in the inventory's order."""
        used = {name for case in self.cases for name in case.hosts}
        return tuple(host.name for host in self.lab.hosts if host.name in used)

    def variant(self, case: Case) -> str:
        """Return the Horovod variant the case runs with."""
        found = stack.variant_for(case.backend, [self.lab.host(name) for name in case.hosts])
        if found is None:
            raise UsageError(f"no Horovod variant has {case.backend} on {', '.join(case.hosts)}")
        return found

    def command(self, case: Case, run_id: str = DRY_RUN_ID) -> launchers.Command:
        """Return the command that starts a case."""
        return launchers.command(case, self.lab, run_id, WORKLOADS[case.workload].command(case))

    def containers(self, run_id: str = DRY_RUN_ID) -> dict[str, tuple[str, ...]]:
        """Return the command that starts the run's container on each host; none where none is asked for."""
        image = self.spec.container
        if image is None:
            return {}
        port, options = self.spec.ssh_port, self.spec.container_options
        return {
            name: container.argv(
                self.lab.host(name), self.lab, run_id, image=image, port=port, options=options
            )
            for name in self.hosts
        }

    def content(self, cases: Sequence[Case], run_id: str) -> dict[str, Any]:
        """Return what the playbook works from, JSON-ready."""
        rows = {}
        for case in cases:
            ready = self.command(case, run_id)
            rows[case.id] = {
                "id": case.id,
                "mark": f"{run_id}/{case.id}",
                "backend": case.backend,
                "variant": self.variant(case),
                "device": stack.device(case.backend, [self.lab.host(name) for name in case.hosts]),
                "slots": case.slots,
                "asked": self.asked,
                "hosts": list(case.hosts),
                "argv": list(ready.argv),
                "env": dict(ready.env),
                "timeout": case.timeout,
                "ssh_port": case.ssh_port,
            }
        return {
            "run_id": run_id,
            "lab": self.lab.name,
            "hosts": list(self.hosts),
            "programs": stack.folders(self.lab).workloads,
            "cases": rows,
        }
