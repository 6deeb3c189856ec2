"""Turns the answers of hosts and the machine types into checks and a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import ModuleType
from typing import Any

from junitparser import TestCase

from hvlab.base.errors import CheckError, HvlabError, UnreachableError, advise_unreachable, some, unusable
from hvlab.base.groups import grouped
from hvlab.checks import links
from hvlab.checks.ask import Answered
from hvlab.checks.node import burn, machine, subjects
from hvlab.checks.outliers import outliers
from hvlab.lab.inventory import Host, Lab
from hvlab.remote.verify import CheckOutcome
from hvlab.results.formats import junit
from hvlab.results.formats.plain import Families

_PYTHON = "see that it has a Python from 3.8 on, and the one of --python"
_BECOME = "see that Ansible becomes root there, and has a Python from 3.8 on (ansible_python_interpreter)"


@dataclass(frozen=True, kw_only=True)
class HealthCheck(CheckOutcome):
    """One check of one host; ``severity`` of a failed one is ``hard`` or ``soft``.

    ``observed`` is the reading, or the reason for skipping.
    """

    severity: str = ""

    @property
    def unfit(self) -> bool:
        """Whether work on this host would fail or be wrong."""
        return self.wrong and self.severity != "soft"

    @property
    def title(self) -> str:
        """Return the host, the check and its outcome in one line."""
        return f"{self.host}  {self.check} ({self.severity or self.outcome})"


def judge(
    lab: Lab, answered: Answered, chosen: Sequence[ModuleType], types: Sequence[Mapping[str, Any]] | None
) -> list[HealthCheck]:
    """Return every check of every host, in the lab's order; without ``types``, by the rules for any machine.

    Assumes that the inventory's type names passed :func:`machine_types.check_names`.
    """
    checks = []
    shared = outliers(answered.readings)
    for host in lab.hosts:
        if host.name not in answered.readings:
            checks.append(_explain_silence(host, answered, listed=lab.listed))
            continue
        readings = answered.readings[host.name]
        should = expectations(host, lab, answered) | shared.get(host.name, {}) | links.capacity(readings)
        if types is not None:
            should |= machine.find_expected(types, readings, host.text("lab_machine_type"))
        findings = subjects.findings(chosen, readings, should)
        checks += [HealthCheck(host=host.name, **finding._asdict()) for finding in findings]
    return checks


def _explain_silence(host: Host, answered: Answered, *, listed: bool) -> HealthCheck:
    if host.name in answered.broken:
        outcome, observed, remedy = "error", answered.broken[host.name], _PYTHON if listed else _BECOME
    else:
        outcome, observed = "unreachable", answered.silent.get(host.name, "no answer")
        remedy = advise_unreachable(observed, virtual=host.virtual)
    return HealthCheck(
        host=host.name, check="host answers", outcome=outcome, observed=observed, remedy=remedy
    )


def expectations(host: Host, lab: Lab, answered: Answered) -> dict[str, Any]:
    """Return the values expected of a host whatever its type; a type may override them."""
    interface = host.text("lab_interface") or lab.interface
    return {"network_interfaces": [interface], "controller_clock": answered.asked}


def verdict(checks: Sequence[HealthCheck]) -> HvlabError | None:
    """Return the error that names the unfit and the silent hosts, or None if every host is fit."""
    every = len({check.host for check in checks})
    silent = sorted({check.host for check in checks if check.outcome == "unreachable"})
    unfit = sorted({check.host for check in checks if check.unfit and check.outcome != "unreachable"})
    named = f"unfit for work: {some(unfit)}" if unfit else ""
    if silent:
        return UnreachableError(
            "; ".join(filter(None, [f"{unusable(silent, every)}: {some(silent)}", named])), remedy="see above"
        )
    return CheckError(named, remedy="see above; take them out of work until it is done") if unfit else None


def find_unmeasured(
    checks: Sequence[HealthCheck], requested: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (name, host, reason) for each requested subject of which a host shows nothing."""
    for name in requested:
        words = subjects.names(subjects.ON_REQUEST[name])
        by_host = grouped((check.host, check) for check in checks if check.check.partition(" ")[0] in words)
        for host, own in by_host.items():
            if all(check.outcome == "skipped" for check in own):
                yield name, host, own[0].observed


def find_measured(checks: Sequence[HealthCheck], requested: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (host, check, observed) for each figure of the requested subjects that is no fault."""
    shown = {check for name in requested for check in getattr(subjects.ON_REQUEST[name], "SHOWN", ())}
    for check in checks:
        # Without a figure the reason alone is observed.
        if check.check in shown and not check.wrong and re.search("[0-9]", check.observed):
            yield check.host, check.check, check.observed


def as_gauges(checks: Sequence[HealthCheck]) -> Families:
    """Return for each check of each host whether it is a hard or a soft fault; without skipped ones."""
    faults: dict[str, dict[tuple[tuple[str, str], ...], float]] = {"hard": {}, "soft": {}}
    silent = dict.fromkeys((("host", check.host),) for check in checks)
    for check in checks:
        if check.outcome in ("passed", "failed"):
            labels = (("host", check.host), ("check", check.check))
            for severity, values in faults.items():
                values[labels] = max(values.get(labels, 0.0), float(check.severity == severity))
    unanswered = {check.host for check in checks if check.outcome in ("unreachable", "error")}
    return {
        "hvlab_hard_fault": ("1 where work on the host would fail or be wrong.", faults["hard"]),
        "hvlab_soft_fault": ("1 where work on the host is slow, or doubtful.", faults["soft"]),
        "hvlab_no_answer": (
            "1 where the host gave no answer.",
            {labels: float(labels[0][1] in unanswered) for labels in silent},
        ),
    }


_SPEEDS = {
    "TFLOPS": ("hvlab_burn_flop_per_second", "Median speed of matrix products in the burn-in.", 1e12),
    "GB/s": ("hvlab_burn_bytes_per_second", "Median speed of the memory sweep and of copies in it.", 1e9),
}


def speeds_as_gauges(readings: Mapping[str, Mapping[str, Any]]) -> Families:
    """Return the speeds of each device in the burn-in; ``readings`` are by host."""
    families: dict[str, tuple[str, dict[tuple[tuple[str, str], ...], float]]] = {}
    for host, own in readings.items():
        for device, burned in (own["burn"]["devices"] if "burn" in own else {}).items():
            for kind, unit in burn.UNITS.items():
                if kind not in burned["rates"]:
                    continue
                name, text, factor = _SPEEDS[unit]
                labels = (("host", host), ("device", device), ("kind", kind))
                families.setdefault(name, (text, {}))[1][labels] = median(burned["rates"][kind]) * factor
    return families


def as_junit(checks: Sequence[HealthCheck], name: str) -> str:
    """Return the checks as JUnit XML: a suite for each host; soft faults pass, with an output."""
    hosts = dict.fromkeys(check.host for check in checks)
    suites = [junit.suite(host, [_test(check) for check in checks if check.host == host]) for host in hosts]
    return junit.document(f"hvlab health {name}", suites)


def _test(check: HealthCheck) -> TestCase:
    reason = f"{check.observed}\nwhat to do: {check.remedy}" if check.wrong else check.observed
    return junit.case(
        name=check.check,
        classname=check.host,
        failure=reason if check.unfit else None,
        skipped=check.observed if check.outcome == "skipped" else None,
        output=reason if check.severity == "soft" else None,
    )
