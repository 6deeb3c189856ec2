"""One launch of the search on the hosts of a lab: a program that runs on all of them at the same time."""

from __future__ import annotations

import base64
import json
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from hvlab import workloads
from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.answers.shapes import HostAnswer, NotNegative, Scalar
from hvlab.base.errors import (
    LEAVE_OUT,
    CheckError,
    HvlabError,
    InterruptedRunError,
    UnreachableError,
    UsageError,
)
from hvlab.lab.inventory import Lab
from hvlab.remote import direct
from hvlab.remote.gather import collect
from hvlab.remote.playbook import HostFailure, explain
from hvlab.searches.slow.programs import transfers
from hvlab.searches.slow.steps import Cell, ProbeStep, Rates

TRANSFER_S, COMPUTE_S = 0.2, 0.75
MOST_HOSTS = 256
# Below the ephemeral ports; another program may have taken one.
_PORTS, _TRIED_PORTS = range(20_000, 32_000), 3
# Overhead of a step; of a launch (logins); and the wait for late hosts.
_STEP_S, _LAUNCH_S, _MEET_S = 0.5, 180, 60
_END_S = 30
_FIREWALL = "open all TCP ports between the hosts on the ranks' network; MPI and Gloo need them, too"
_TORCH = "name a Python with torch on every host, such as --torch /opt/hvlab/python/bin/python"
_INTERFACE = "bring it up there, or correct lab_interface, the interface to the ranks' network"

_Reading = Annotated[tuple[NotNegative, NotNegative], Field(strict=False)]


class Readings(HostAnswer):
    """The first host's output: an error, or a reading of each host for each step."""

    no_interface: list[Scalar] | None = None
    missing: list[Scalar] | None = None
    cut_off: list[Scalar] | None = None
    lost: Scalar = None
    failed: dict[str, Scalar] | None = None
    steps: list[list[_Reading | NotNegative | None]] | None = None


_FAILED = ("no_interface", "missing", "cut_off", "lost", "failed")


def start(lab: Lab, plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run the program on all hosts at once; return the first host's output. An interruption ends it there.

    Raises UnreachableError (a host does not answer), CheckError (the program failed) and InterruptedRunError
    (interrupted, and a host may go on).
    """
    # The mark identifies leftover processes; every user of a host can read it, unlike the plan's secret.
    mark, seconds = secrets.token_hex(8), plan["limit_s"]
    try:
        gathered, failures = _run_on_all(
            lab, transfers.__file__, json.dumps(plan), mark=mark, seconds=seconds
        )
    except BaseException as error:
        left = _end(lab, mark)
        if left and isinstance(error, KeyboardInterrupt):
            problem = f"interrupted; the measurement could not be ended on {', '.join(left)}"
            raise InterruptedRunError(problem, remedy=f"it ends on its own within {seconds} s") from error
        raise
    printed = gathered.get(lab.hosts[0].name) if not any(each.unreachable for each in failures) else None
    answer = read(printed, f"{lab.hosts[0].name}: its readings", plan) if printed else {}
    if not answer:
        remedy = "it needs Python 3.8 on every host"
        raise explain(failures, len(lab.hosts), "the measurement failed", remedy=remedy)
    return dict(answer)


def read(printed: str, where: str, plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parse the first host's output of a plan: an error, or a reading of each step and host.

    Raises AnswerError.
    """
    answer: dict[str, Any] = answers.load(printed, where, Readings)
    if answer and not any(answer.get(name) for name in _FAILED):
        steps, hosts = answer.get("steps") or [], len(plan["names"])
        if len(steps) != len(plan["steps"]) or any(len(step) != hosts for step in steps):
            raise AnswerError(where, f"expected readings of {len(plan['steps'])} steps and {hosts} hosts")
        for step, readings in zip(plan["steps"], steps, strict=True):
            computes = not step.get("shift") and not step.get("transfers")
            if not all(isinstance(reading, list) == computes for reading in readings):
                raise AnswerError(where, "it mixes readings of links and of computations")
    return answer


def _end(lab: Lab, mark: str) -> list[str]:
    program = str(workloads.PROGRAMS / "reap.py")
    try:
        _, failures = _run_on_all(lab, program, "", mark=mark, seconds=_END_S)
    except HvlabError:
        return [host.name for host in lab.hosts]
    return [failure.host for failure in failures]


def _run_on_all(
    lab: Lab, program: str, plan: str, *, mark: str, seconds: int
) -> tuple[dict[str, Any], list[HostFailure]]:
    if lab.listed:
        places = {host.name: str(place) for place, host in enumerate(lab.hosts)}
        return direct.run(
            lab,
            Path(program).read_text("utf-8"),
            arguments=lambda host: [mark, places[host]],
            environment=lambda host: {"HVLAB_CASE": f"{mark}/{places[host]}"},
            given=plan,
            seconds=seconds,
        )
    variables = {
        "hvlab_program": program,
        "hvlab_plan": base64.b64encode(plan.encode()).decode(),
        "hvlab_mark": mark,
        "hvlab_seconds": seconds,
    }
    return collect(lab, "find-slow.yml", variables, at_once=len(lab.hosts), shape=str)


@dataclass
class HostProbe:
    """Measures steps on a lab.

    ``shares`` collects the share of a processor that each host got, by place. With ``torch``, a Python of the
    hosts, their devices send. ``start`` makes a launch.
    """

    lab: Lab
    transfer_s: float = TRANSFER_S
    compute_s: float = COMPUTE_S
    torch: str = ""
    on_launch: Callable[[int, int], None] = lambda *_: None
    shares: dict[int, list[float]] = field(default_factory=dict)
    launches: int = 0
    start: Callable[[Lab, Mapping[str, Any]], Mapping[str, Any]] = start

    def __call__(self, steps: Sequence[ProbeStep]) -> list[Rates]:
        """Return the readings of each step, from one launch.

        Raises UnreachableError (a host does not answer, or does not reach the others), UsageError (a host
        does not have the ranks' interface) and CheckError.
        """
        count = len(self.lab.hosts)
        if count > MOST_HOSTS:
            raise UsageError(f"{count} hosts are too many for one launch", remedy="choose some with --limit")
        self.launches += 1
        self.on_launch(self.launches, len(steps))
        plan = self._plan(steps)
        answer = self.start(self.lab, plan)
        if answer.get("no_interface"):
            problem = f"{self.lab.interface} has no IPv4 address, or no link"
            raise UsageError(f"{', '.join(answer['no_interface'])}: {problem}", remedy=_INTERFACE)
        if answer.get("missing"):
            first = f"{self.lab.hosts[0].name} at {' or '.join(self._addresses())}"
            raise UnreachableError(f"{', '.join(answer['missing'])} cannot reach {first}", remedy=_FIREWALL)
        if answer.get("cut_off"):
            lost = f"no other host connects to it over {self.lab.interface}, or it connects to none"
            raise UnreachableError(f"{', '.join(answer['cut_off'])}: {lost}", remedy=_FIREWALL)
        if failed := answer.get("failed"):
            texts = "; ".join(f"{host}: {text}" for host, text in failed.items())
            raise CheckError(f"devices cannot take part: {texts}", remedy=_TORCH)
        if answer.get("lost"):
            raise UnreachableError(f"{answer['lost']} was lost during the measurement", remedy=LEAVE_OUT)
        return [self._rates(step, readings) for step, readings in zip(steps, answer["steps"], strict=True)]

    def _plan(self, steps: Sequence[ProbeStep]) -> dict[str, Any]:
        # A connection that breaks halfway delays its sender, then its receiver.
        longest = max(self.transfer_s, 2 * self.compute_s) + _STEP_S + 2 * transfers.CONNECT_S
        ports = random.sample(_PORTS, _TRIED_PORTS)
        return {
            "secret": secrets.token_hex(16),
            "names": [host.name for host in self.lab.hosts],
            "meet": [[address, port] for port in ports for address in self._addresses()],
            "interface": self.lab.interface,
            "meet_s": _MEET_S,
            "transfer_s": self.transfer_s,
            "compute_s": self.compute_s,
            "limit_s": round(_LAUNCH_S + len(steps) * longest + 2 * transfers.DEVICES_S * bool(self.torch)),
            "devices": self._devices(),
            "steps": [step.content() for step in steps],
        }

    def _devices(self) -> dict[str, Any] | None:
        if not self.torch:
            return None
        gpus = all("gpu" in host.groups for host in self.lab.hosts)
        count = min(host.slots for host in self.lab.hosts) if gpus else 1
        program = Path(transfers.__file__).with_name("devices.py").read_text("utf-8")
        return {"python": self.torch, "program": program, "count": count}

    def _addresses(self) -> list[str]:
        first = self.lab.hosts[0]
        return list(dict.fromkeys([self.lab.rank_address(first), first.address]))

    def _rates(self, step: ProbeStep, readings: Sequence[Any]) -> Rates:
        rates: dict[Cell, float] = {}
        for cell in step.cells(len(self.lab.hosts)):
            reading = readings[cell[1] if step.moves else cell[0]]
            if not step.moves:
                rates[cell], share = reading
                self.shares.setdefault(cell[0], []).append(share)
            else:
                rates[cell] = float(reading or 0.0)
        return rates
