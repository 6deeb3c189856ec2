# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The packages of a host, its users, and its SSH host key."""

from __future__ import annotations

import configparser
import glob
import json
import os
import re
import time
from typing import Any, Iterator

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hvlab_probe import read, run

DPKG = "/var/lib/dpkg/status"
LISTS = "/var/lib/apt/lists"
# Touched by apt's timer, if set up.
LISTS_STAMP = "/var/lib/apt/periodic/update-success-stamp"
HELD_OWN = "/etc/hvlab/held.json"
INSTALLED_OWN = "/etc/hvlab/installed.json"
LOCKS = (
    "/etc/dnf/plugins/versionlock.list",
    "/etc/yum/pluginconf.d/versionlock.list",
    "/etc/dnf/versionlock.toml",
)
# dnf: name-0:1.2-3.*; yum: 0:name-1.2-3.*; dnf 5: name = "name"
LOCK = re.compile(
    r"(?P<dnf>[^\s#!:]+)-\d+:[^-]+-[^-]+$|\d+:(?P<yum>[^\s:]+)-[^-]+-[^-]+$|name\s*=\s*\"(?P<dnf5>[^\"]+)\"$"
)

# For a newly started machine, whose own timer reads apt's lists: apt itself waits for dpkg's lock alone.
LOCK_SECONDS = 300


def ask_manager(module: AnsibleModule, argv: list[str]) -> tuple[int, str]:
    """Return status and output of a package manager; wait for another that holds its lock."""
    until = time.monotonic() + LOCK_SECONDS
    environment = {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    while True:
        status, out, err = module.run_command(argv, environ_update=environment)
        locked = re.search(r"Could not get lock|is another process using it", out + err)
        if not locked or time.monotonic() > until:
            return status, out + err
        time.sleep(2)


def packages() -> dict[str, str]:
    """Return ``{name: version}`` of the installed packages of dpkg or rpm."""
    if os.path.exists(DPKG):
        lines = run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n").splitlines()
        return {name: version for state, name, version in map(str.split, lines) if state == "installed"}
    lines = run("rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n").splitlines()
    return {name: version for name, version in map(str.split, lines) if name != "gpg-pubkey"}


def list_unfinished() -> list[str]:
    """Return the packages that dpkg could not configure: every later installation fails with them."""
    states = r"(?m)^Package: (\S+)\nStatus: \S+ \S+ (?:half-configured|half-installed|unpacked)$"
    return sorted(re.findall(states, read(DPKG) or ""))


def list_held() -> list[str]:
    """Return the names of the packages that stay at their version: dpkg's selection, dnf's or yum's locks."""
    if os.path.exists(DPKG):
        lines = run("dpkg-query", "-W", "-f", "${db:Status-Want} ${Package}\\n").splitlines()
        return sorted(name for want, name in map(str.split, lines) if want == "hold")
    names = set()
    for path in LOCKS:
        for line in (read(path) or "").splitlines():
            match = LOCK.match(line.strip())
            if match:
                names.add(match.group("dnf") or match.group("yum") or match.group("dnf5"))
    return sorted(names)


def list_held_own() -> list[str]:
    """Return the packages held by hvlab itself, as recorded by hvlab_packages."""
    return sorted(set(json.loads(read(HELD_OWN) or "[]")) & set(list_held()))


def installed_own() -> dict[str, bool]:
    """Return the packages that hvlab_packages recorded, and whether it was asked for them by name."""
    return dict(json.loads(read(INSTALLED_OWN) or "{}"))


def lists_age() -> float | None:
    """Return the age of apt's lists in seconds; None without any."""
    if not glob.glob(os.path.join(LISTS, "*Release")):
        return None
    return time.time() - max(os.stat(path).st_mtime for path in (LISTS, LISTS_STAMP) if os.path.exists(path))


def module_streams() -> dict[str, str]:
    """Return ``{name: stream}`` of dnf's enabled module streams."""
    streams = {}
    for path in glob.glob("/etc/dnf/modules.d/*.module"):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(read(path) or "")
        for name in parser.sections():
            if parser.get(name, "state", fallback="") == "enabled":
                streams[name] = parser.get(name, "stream", fallback="")
    return streams


def gcc() -> str:
    """Return the version of the C compiler; raise FileNotFoundError without one."""
    return str(run("gcc", "-dumpfullversion", "-dumpversion")).strip()


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
    """Yield the lines of a file of accounts, without those that refer to NIS or LDAP (+, -)."""
    for line in (read(path) or "").splitlines():
        parts = line.split(":")
        if len(parts) == fields and not line.startswith(("+", "-")):
            yield parts


def host_key() -> str | None:
    """Return type and key of the Ed25519 host key, without its comment."""
    key = read("/etc/ssh/ssh_host_ed25519_key.pub")
    return " ".join(key.split()[:2]) if key else None
