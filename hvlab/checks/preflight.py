"""The objections of role preflight to changing hosts, and of `hvlab init` to using them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

from hvlab.base.errors import Problem
from hvlab.base.paths import project_dir, trust_dir
from hvlab.base.yaml_files import read_shipped
from hvlab.checks import folders, machine, names, network, python, ssh  # noqa: F401 - for their checks
from hvlab.checks.before import (
    BEFORE,
    HostLimits,
    PreflightHost,
    PreflightLab,
    SoftProblem,
    address_of,
    lab_hosts,
)
from hvlab.lab.inventory import Lab
from hvlab.remote.ssh_client import OLDEST_PYTHON, FirstLogin
from hvlab.remote.trust import Trust
from hvlab.stack.resolver.catalogue import load
from hvlab.stack.resolver.facts import HostFacts, advise_python, system_of

_DEFAULTS = project_dir() / "roles/preflight/defaults/main.yml"


def check(
    hosts: list[PreflightHost],
    inventory: Mapping[str, Mapping[str, Any]],
    limits: HostLimits,
    reached: Mapping[str, str | None],
) -> tuple[list[Problem], list[Problem]]:
    """Return the problems that stop a run, and those that are only warnings.

    ``inventory`` is the result of :func:`lab_hosts`, ``reached`` where the inventory says that hosts are.
    """
    lab = PreflightLab(hosts, limits, inventory, reached, time.time())
    errors: list[Problem] = []
    warnings: list[Problem] = []
    for problem in (problem for one in BEFORE for problem in one(lab)):
        (warnings if isinstance(problem, SoftProblem) else errors).append(problem)
    return errors, warnings


def foresee(lab: Lab, facts: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Return the objections of the role to hosts whose facts were gathered without it."""
    limits: dict[str, Any] = {"names_managed": lab.vars.get("common_hosts_managed", True) is not False}
    for name, usual in read_shipped(_DEFAULTS).items():
        given = lab.vars.get(name)
        # A template is not filled in here.
        limits.setdefault(name.removeprefix("preflight_"), given if isinstance(given, type(usual)) else usual)
    del limits["lock_write"]
    hosts = [
        PreflightHost(
            name=one.name,
            facts=facts[one.name],
            address=address_of(one.address),
            network=str(ip_network(str(one.vars["lab_network"]), strict=False)),
            interface=str(one.vars["lab_interface"]),
            port=one.port,
            alone=lab.local and len(lab.hosts) == 1,
            gpu=one.gpu,
        )
        for one in lab.hosts
        if one.name in facts
    ]
    reached = {one.name: one.address for one in lab.hosts}
    objections, _ = check(hosts, lab_hosts(hosts, reached), HostLimits(**limits), reached)
    return [*ssh.check_owner(hosts, Trust(lab.name, trust_dir(lab.name))), *objections]


def report_missing(hosts: list[str], present: list[str]) -> list[Problem]:
    """Return a problem that names the hosts without facts."""
    absent = [name for name in hosts if name not in present]
    if not absent:
        return []
    observed = "could not be reached, or the facts could not be read (the lines above say why)"
    without = ":".join(["all", *(f"!{name}" for name in absent)])
    return [
        Problem(
            ", ".join(absent),
            observed,
            f"correct the ssh access to it, or leave it out: --limit '{without}'",
        )
    ]


def without_python(login: FirstLogin) -> Problem | None:
    """Return the problem of a host without a usable Python; None if it has one."""
    if login.interpreter:
        return None
    oldest = ".".join(map(str, OLDEST_PYTHON))
    if not login.pythons:
        observed = "it has no python3, which Ansible needs"
    else:
        versions = ", ".join(f"{path} ({version or 'does not run'})" for path, version in login.pythons)
        observed = f"its Python is too old for Ansible, which needs {oldest} or later: {versions}"
    system = system_of(HostFacts(login.host.name, *login.system), load())
    return Problem(login.host.name, observed, advise_python(system))


def problems(logins: Sequence[FirstLogin], facts: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Return the problems to solve before hosts can be provisioned."""
    hosts = [
        PreflightHost(login.host.name, facts[login.host.name], None, "0.0.0.0/0", "")
        for login in logins
        if login.host.name in facts
    ]
    checks = (
        *(machine.check_system, machine.check_packages),
        *(names.check_names, folders.check_tmp, ssh.check_host_key),
    )
    lab = PreflightLab(hosts)
    return [
        *(problem for login in logins for problem in _sudo(login)),
        *(problem for login in logins for problem in _clock(login)),
        *python.check_pythons(hosts),
        *(problem for one in checks for problem in one(lab)),
    ]


def _sudo(login: FirstLogin) -> Iterator[Problem]:
    if login.sudo is None:
        return
    user = login.host.user or "the login"
    remedy = f"write `{user} ALL=(ALL) NOPASSWD: ALL` into /etc/sudoers.d/{user} there, with visudo"
    if "password" in login.sudo:
        remedy += "; or set ansible_become_password in a vault"
    yield Problem(login.host.name, f"{user} has no root rights through sudo: {login.sudo}", remedy)


def _clock(login: FirstLogin) -> Iterator[Problem]:
    reading = {"hvlab": {"now": login.now, "sent": login.sent}}
    host = PreflightHost(login.host.name, reading, None, "0.0.0.0/0", "")
    yield from machine.check_clocks(PreflightLab([host], received=login.received))
