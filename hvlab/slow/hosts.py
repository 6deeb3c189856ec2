"""One launch of the search on the hosts of a lab: a program that runs on all of them at the same time."""

from __future__ import annotations

import base64
import json
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hvlab.errors import CheckError, UnreachableError, UsageError
from hvlab.lab.inventory import Lab
from hvlab.remote.collect import collect
from hvlab.slow.programs import transfers
from hvlab.slow.steps import Cell, ProbeStep, Rates

TRANSFER_S, COMPUTE_S = 0.2, 0.75
MOST_HOSTS = 256
# Below the ports that systems hand out by themselves.
_PORTS = (20_000, 32_000)
# What a step takes besides, and what a launch does: logins, and hosts that come late.
_STEP_S, _LAUNCH_S, _MEET_S = 0.5, 180, 60
_BACK = "bring them back, or leave them out with --limit"
_FIREWALL = "let the hosts reach one another on all TCP ports of the ranks' network, as MPI and Gloo need it"


def start(lab: Lab, plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run the program on all hosts at once, through Ansible; return what the first host printed.

    Raises UnreachableError (a host does not answer) and CheckError (the program failed).
    """
    variables = {
        "hvlab_program": transfers.__file__,
        "hvlab_plan": base64.b64encode(json.dumps(plan).encode()).decode(),
        "hvlab_seconds": plan["limit_s"],
    }
    gathered, failures = collect(lab, "find-slow.yml", variables, at_once=len(lab.hosts))
    text = "\n".join(f"  {failure.host}: {failure.message.strip()}" for failure in failures)
    if any(failure.unreachable for failure in failures):
        raise UnreachableError(f"hosts do not answer:\n{text}", remedy=_BACK)
    answer: dict[str, Any] = json.loads(gathered.get(lab.hosts[0].name) or "{}")
    if not answer:
        raise CheckError(f"the measurement failed:\n{text}", remedy="it needs Python 3.8 on every host")
    return answer


@dataclass
class HostProbe:
    """Measures steps on a lab.

    ``shares`` grows: what part of a processor each host got, by place. ``start`` is how a launch is made.
    """

    lab: Lab
    transfer_s: float = TRANSFER_S
    compute_s: float = COMPUTE_S
    on_launch: Callable[[int, int], None] = lambda *_: None
    shares: dict[int, list[float]] = field(default_factory=dict)
    launches: int = 0
    start: Callable[[Lab, Mapping[str, Any]], Mapping[str, Any]] = start

    def __call__(self, steps: Sequence[ProbeStep]) -> list[Rates]:
        """Return the readings of each step, from one launch.

        Raises UnreachableError (a host does not answer, or does not reach the first one) and CheckError.
        """
        count = len(self.lab.hosts)
        if count > MOST_HOSTS:
            raise UsageError(f"{count} hosts are too many for one launch", remedy="choose some with --limit")
        self.launches += 1
        self.on_launch(self.launches, len(steps))
        plan = self._plan(steps)
        answer = self.start(self.lab, plan)
        first = self.lab.hosts[0]
        if answer.get("missing"):
            lost = f"{', '.join(answer['missing'])} cannot reach {first.name} at {first.address}"
            raise UnreachableError(lost, remedy=_FIREWALL)
        if answer.get("lost"):
            raise UnreachableError(f"{answer['lost']} was lost during the measurement", remedy=_BACK)
        return [self._rates(step, readings) for step, readings in zip(steps, answer["steps"], strict=True)]

    def _plan(self, steps: Sequence[ProbeStep]) -> dict[str, Any]:
        longest = max(self.transfer_s, 2 * self.compute_s) + _STEP_S
        return {
            "mark": secrets.token_hex(8),
            "names": [host.name for host in self.lab.hosts],
            "meet": [self.lab.hosts[0].address, random.randrange(*_PORTS)],  # noqa: S311 - a free port
            "interface": self.lab.interface,
            "meet_s": _MEET_S,
            "transfer_s": self.transfer_s,
            "compute_s": self.compute_s,
            "limit_s": round(_LAUNCH_S + len(steps) * longest),
            "steps": [step.content() for step in steps],
        }

    def _rates(self, step: ProbeStep, readings: Sequence[Any]) -> Rates:
        rates: dict[Cell, float] = {}
        for cell in step.cells(len(self.lab.hosts)):
            reading = readings[cell[1]]
            if step.computes:
                rates[cell], share = reading
                self.shares.setdefault(cell[0], []).append(share)
            else:
                rates[cell] = float(reading or 0.0)
        return rates
