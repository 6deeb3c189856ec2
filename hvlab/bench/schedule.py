"""The schedule of a bench: its cases, with the commands that start them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hvlab import workloads
from hvlab.bench.matrix import Spec, expand
from hvlab.lab.inventory import Lab, folders
from hvlab.workloads import launchers
from hvlab.workloads.case import Case, InfeasibleCase
from hvlab.workloads.launchers import container, slurm
from hvlab.workloads.launchers.command import SSH
from hvlab.workloads.parameters import STACK

DRY_RUN_ID = "RUN"


@dataclass(frozen=True)
class Schedule:
    """The cases to measure on a lab. ``keys`` names the folder of each data set on the hosts."""

    spec: Spec
    lab: Lab
    cases: tuple[Case, ...]
    infeasible: tuple[InfeasibleCase, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Spec, lab: Lab) -> Schedule:
        """Return the schedule of all cases that ``spec`` requests on ``lab``."""
        cases, infeasible = expand(spec, lab)
        return cls(spec, lab, tuple(cases), tuple(infeasible))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return every host that takes part, in the inventory's order."""
        used = {name for case in self.cases for name in case.hosts}
        return tuple(host.name for host in self.lab.hosts if host.name in used)

    @property
    def data(self) -> tuple[str, ...]:
        """Return the names or folders of the data sets that the cases need."""
        return tuple(dict.fromkeys(name for case in self.cases for name in workloads.data(case)))

    @property
    def port(self) -> int:
        """Return the port of the sshd in the run's containers; 0 without, and where srun starts them."""
        return max((case.ssh_port for case in self.cases), default=0)

    def list_allocated(self, cases: Sequence[Case]) -> tuple[str, ...]:
        """Return the hosts of those cases that are steps of Slurm, in the inventory's order."""
        used = {name for case in cases if self.command(case).step for name in case.hosts}
        return tuple(host.name for host in self.lab.hosts if host.name in used)

    def allocation(
        self,
        cases: Sequence[Case],
        run_id: str = DRY_RUN_ID,
        *,
        seconds: float = 0.0,
        longest: int | None = None,
    ) -> tuple[str, ...]:
        """Return the command that asks Slurm for the hosts of those cases; empty if none is needed.

        ``seconds`` is how long they are estimated to take; the partition gives at most ``longest`` minutes.
        """
        hosts = () if self.lab.step else self.list_allocated(cases)
        if not hosts:
            return ()
        minutes = slurm.minutes(seconds, max(case.timeout for case in cases), longest)
        return slurm.request(self.lab, hosts, run_id, gpus=self._gpus(cases, hosts), minutes=minutes)

    def _gpus(self, cases: Sequence[Case], hosts: Sequence[str]) -> int:
        """Return the GPUs to ask for on each of the hosts: as many as a case uses, if all of them have some.

        Slurm takes one number for all hosts, and a step has no more than that.
        """
        on_gpu = [case for case in cases if case.params["device"] == "cuda"]
        used = [[case.slots for case in on_gpu if name in case.hosts] for name in hosts]
        slots = [self.lab.host(name).slots for name in hosts]
        return min(max(map(max, used)), *slots) if all(used) else 0

    def command(self, case: Case, run_id: str = DRY_RUN_ID) -> launchers.Command:
        """Return the command that starts a case."""
        options = self.spec.container_options
        argv = workloads.argv(case, self.keys)
        return launchers.command(case, self.lab, run_id, argv, container_options=options)

    def containers(self, run_id: str = DRY_RUN_ID) -> dict[str, tuple[str, ...]]:
        """Return the command that starts the run's container on each host; empty if docker starts none."""
        image = self.spec.container
        if image is None or not self.port:
            return {}
        port, options = self.spec.ssh_port, self.spec.container_options
        return {
            name: container.argv(
                self.lab.host(name), self.lab, run_id, image=image, port=port, options=options
            )
            for name in self.hosts
        }

    def content(self, cases: Sequence[Case], run_id: str) -> dict[str, Any]:
        """Return the playbook's input, JSON-ready."""
        rows = {}
        for case in cases:
            command = self.command(case, run_id)
            rows[case.id] = {
                "id": case.id,
                "mark": f"{run_id}/{case.id}",
                "backend": case.backend,
                "variant": case.variant,
                "stack": case.params.get(STACK.name, ""),
                "device": case.params["device"],
                "slots": case.slots,
                "asked": self.spec.asked,
                "hosts": list(case.hosts),
                "argv": list(command.argv),
                "env": dict(command.env),
                "step": command.step,
                "timeout": case.timeout,
                "ssh_port": case.ssh_port,
            }
        return {
            "run_id": run_id,
            "lab": self.lab.name,
            "hosts": list(self.hosts),
            # Steps of the Slurm job that hvlab runs in are started here, wherever their ranks are.
            "head": self.lab.hosts[0].name if self.lab.step else "",
            "reach": list(self.lab.step or SSH),
            "programs": folders(self.lab).workloads,
            # An image has its own.
            "python": "python3" if self.port else self.lab.python,
            "cases": rows,
        }
