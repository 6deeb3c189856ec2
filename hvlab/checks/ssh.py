"""Logins among the hosts, by the user who runs the ranks and as a launcher does them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.base.answers.shapes import HostAnswer
from hvlab.checks.programs import source
from hvlab.checks.replies import HostReplies
from hvlab.checks.site import TRIED, HostFault, Site
from hvlab.doctor import reading

_LOGINS = "logins"
_USER = "user"
# What a login finds there; its limits are those of ranks.
_SCRIPT = (
    "echo hostname $(hostname); echo memlock $(ulimit -l); echo orted $(command -v orted || command -v prted)"
)
# What the roles write: keys, certificates, modes. A login fails by what either end lacks, but for the modes.
_EITHER = ("host-key", "host-key-changed", "ssh-denied")
_MENDED = (*_EITHER, "ssh-key-modes")


class PeerLogin(HostAnswer):
    """How one login ended."""

    rc: int
    out: str
    err: str


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask whether the user is there and gets to the next hosts."""
    asked: dict[str, dict[str, Any]] = {_USER: {"run": ["id", "-u", site.user], "timeout": 5}}
    if len(site.hosts) > 1 and not any(host.local for host in site.hosts):
        given = {
            "hosts": [
                {"name": host.name, "address": host.addresses[0], "port": host.port} for host in site.hosts
            ],
            "tried": TRIED,
            "script": _SCRIPT,
        }
        argv = ["python3", "-c", source("log_in"), "@HOST@", json.dumps(given)]
        asked[_LOGINS] = {"run": argv, "user": site.user, "timeout": 60}
    return asked


def logins(replies: HostReplies) -> dict[str, PeerLogin]:
    """Return how a host's logins to others ended, by the other's name."""
    document = replies.document(_LOGINS, dict[str, PeerLogin]) or {}
    return {name: PeerLogin.model_validate(each) for name, each in document.items()}


def reached(every: Mapping[str, HostReplies]) -> dict[str, tuple[str, dict[str, str]]]:
    """Return host -> the host that logged in to it, and the words that the login found there."""
    observed: dict[str, tuple[str, dict[str, str]]] = {}
    for name, replies in every.items():
        for other, login in logins(replies).items():
            if login.rc == 0:
                rows = (line.partition(" ") for line in login.out.splitlines())
                observed.setdefault(other, (name, {key: value.strip() for key, _, value in rows}))
    return observed


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Say why a login failed, by what ssh says of it."""
    for name, replies in every.items():
        if "no such user" in replies.error(_USER):
            yield HostFault("user-missing", name, f"there is no user {site.user}", "lab_user")
            continue
        for other, login in logins(replies).items():
            if login.rc == 0:
                if not any(line.startswith("hostname ") for line in login.out.splitlines()):
                    observed = f"a login of {site.user} from {name} ends with 0 before it runs its command"
                    yield HostFault("silent-login", other, observed)
                continue
            if not login.err.strip():
                continue
            root = reading.root(login.err.splitlines())
            lines = [text for _, text in root.lines] if root else login.err.splitlines()
            words = " ".join(" ".join(lines).split())[:200]
            observed = f"{site.user} cannot log in from {name} to {other}: {words}"
            id_ = root.cause.id if root else "horovodrun-ssh"
            ends = (name, other) if id_ in _EITHER and other in every else (name,)
            role = "ssh_trust" if id_ in _MENDED else ""
            yield from (HostFault(id_, end, observed, role) for end in ends)
