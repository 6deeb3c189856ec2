"""The objections of role preflight to changing hosts, and of `hvlab init` to using them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hvlab.base.errors import Problem
from hvlab.checks.before import HostLimits, PreflightHost
from hvlab.checks.folders import check_disk, check_tmp
from hvlab.checks.machine import check_clocks, check_packages, check_system
from hvlab.checks.names import check_claims, check_names, check_recorded, check_resolution
from hvlab.checks.network import check_interface
from hvlab.checks.python import check_gcc, check_pythons
from hvlab.checks.ssh import check_host_key, check_shared_keys
from hvlab.remote.ssh_client import OLDEST_PYTHON, FirstLogin


def check(
    hosts: list[PreflightHost],
    inventory: Mapping[str, Mapping[str, Any]],
    limits: HostLimits,
    reached: Mapping[str, str | None],
) -> tuple[list[Problem], list[Problem]]:
    """Return the problems that stop a run, and those that are only warnings.

    ``inventory`` is the result of :func:`lab_hosts`, ``reached`` where the inventory says that hosts are.
    """
    names = list(check_resolution(hosts, inventory, limits.names_managed))
    errors = [
        *check_system(hosts, limits),
        *check_packages(hosts),
        *check_names(hosts),
        *check_claims(hosts, reached),
        *check_recorded(hosts, reached.keys() - {host.name for host in hosts}),
        *(problem for problem, mends in names if not mends),
        *check_clocks(hosts, limits.clock_offset_max, received=time.time()),
        *check_tmp(hosts),
        *check_disk(hosts, limits),
        *check_interface(hosts),
        *check_host_key(hosts),
        *check_shared_keys(hosts),
    ]
    warnings = [problem for problem, mends in names if mends]
    skew = [] if limits.gcc_skew == "ignore" else list(check_gcc(hosts))
    return (errors + skew, warnings) if limits.gcc_skew == "error" else (errors, warnings + skew)


def report_missing(names: list[str], present: list[str]) -> list[Problem]:
    """Return a problem that names the hosts without facts."""
    absent = [name for name in names if name not in present]
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
        return Problem(
            login.host.name, observed, "install it: `apt-get install python3`, or `dnf install python3`"
        )
    versions = ", ".join(f"{path} ({version or 'does not run'})" for path, version in login.pythons)
    observed = f"its Python is too old for Ansible, which needs {oldest} or later: {versions}"
    return Problem(login.host.name, observed, "install a later one beside it, such as python3.11")


def problems(logins: Sequence[FirstLogin], facts: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Return the problems to solve before hosts can be provisioned."""
    limits = HostLimits()
    hosts = [
        PreflightHost(login.host.name, facts[login.host.name], None, "0.0.0.0/0", "")
        for login in logins
        if login.host.name in facts
    ]
    return [
        *(problem for login in logins for problem in _sudo(login)),
        *(problem for login in logins for problem in _clock(login, limits)),
        *check_pythons(hosts),
        *check_system(hosts, limits),
        *check_packages(hosts),
        *check_names(hosts),
        *check_tmp(hosts),
        *check_host_key(hosts),
    ]


def _sudo(login: FirstLogin) -> Iterator[Problem]:
    if login.sudo is None:
        return
    user = login.host.user or "the login"
    remedy = f"write `{user} ALL=(ALL) NOPASSWD: ALL` into /etc/sudoers.d/{user} there, with visudo"
    if "password" in login.sudo:
        remedy += "; or set ansible_become_password in a vault"
    yield Problem(login.host.name, f"{user} has no root rights through sudo: {login.sudo}", remedy)


def _clock(login: FirstLogin, limits: HostLimits) -> Iterator[Problem]:
    reading = {"hvlab": {"now": login.now, "sent": login.sent}}
    host = PreflightHost(login.host.name, reading, None, "0.0.0.0/0", "")
    yield from check_clocks([host], limits.clock_offset_max, received=login.received)
