# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Who can log in to a host, and the key it shows."""

from __future__ import annotations

from typing import Any, Iterator

from ansible.module_utils.hvlab_probe import read


def users() -> dict[str, Any]:
    """Return the users of /etc/passwd that can log in, with their groups and whether they are locked."""
    members: dict[str, list[str]] = {}
    primary = {}
    for group, _, gid, listed in entries("/etc/group", 4):
        primary[gid] = group
        for user in filter(None, listed.split(",")):
            members.setdefault(user, []).append(group)
    shadow = dict(line.split(":")[:2] for line in (read("/etc/shadow") or "").splitlines() if ":" in line)
    known = {}
    for name, _, uid, gid, _, home, shell in entries("/etc/passwd", 7):
        if shell.endswith(("/nologin", "/false", "/sync")):
            continue
        known[name] = {
            "uid": int(uid),
            "group": primary.get(gid),
            "groups": sorted(members.get(name, [])),
            "home": home,
            "shell": shell,
            "locked": shadow.get(name, "").startswith("!"),
        }
    return known


def entries(path: str, fields: int) -> Iterator[list[str]]:
    """Yield the lines of a file of accounts, without those that stand for what NIS or LDAP has (+, -)."""
    for line in (read(path) or "").splitlines():
        parts = line.split(":")
        if len(parts) == fields and not line.startswith(("+", "-")):
            yield parts


def host_key() -> str | None:
    """Return type and key of the Ed25519 host key, without its comment."""
    key = read("/etc/ssh/ssh_host_ed25519_key.pub")
    return " ".join(key.split()[:2]) if key else None
