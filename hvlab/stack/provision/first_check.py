"""What a first login and the first facts of hosts say against using them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hvlab.base.errors import Problem
from hvlab.remote.ssh_client import OLDEST_PYTHON, FirstLogin
from hvlab.stack.provision.preflight import (
    HostLimits,
    PreflightHost,
    check_clocks,
    check_host_key,
    check_names,
    check_system,
    check_tmp,
)


def without_python(login: FirstLogin) -> Problem | None:
    """Return why Ansible cannot work on a host; None where it can."""
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
    """Return what has to be put right on hosts before they can be provisioned."""
    limits = HostLimits()
    hosts = [
        PreflightHost(login.host.name, facts[login.host.name], None, "0.0.0.0/0", "")
        for login in logins
        if login.host.name in facts
    ]
    return [
        *(problem for login in logins for problem in _sudo(login)),
        *(problem for login in logins for problem in _clock(login, limits)),
        *_pythons(hosts),
        *check_system(hosts, limits),
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


def _pythons(hosts: Sequence[PreflightHost]) -> Iterator[Problem]:
    minors = {host.name: ".".join(str(host.facts.get("python_version")).split(".")[:2]) for host in hosts}
    if len(set(minors.values())) > 1:
        usual = Counter(minors.values()).most_common(1)[0][0]
        for name, minor in minors.items():
            if minor != usual:
                observed = f"its Python is {minor}, that of most hosts {usual}"
                remedy = (
                    f"install {usual} and set ansible_python_interpreter; `hvlab plan` says what fits both"
                )
                yield Problem(name, observed, remedy)
