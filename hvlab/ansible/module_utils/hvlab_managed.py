# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The small files that hvlab wrote on this host, as they are now."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import stat
from contextlib import suppress
from typing import Any


def record(path: str) -> dict[str, Any]:
    """Return hvlab_files' record: each path it was given, and whether the facts hold its text."""
    try:
        with open(path) as file:
            paths = json.load(file)
    except (OSError, ValueError):
        return {}
    return paths if isinstance(paths, dict) else {}


ALTERNATIVES = "/etc/alternatives/"


def target(path: str) -> str:
    """Return the target of a link; with update-alternatives, the target of its choice."""
    first = os.readlink(path)
    return os.readlink(first) if alternative(path) and os.path.islink(first) else first


def alternative(path: str) -> str:
    """Return a link's name in update-alternatives; empty if it is not one of its links."""
    first = os.readlink(path) if os.path.islink(path) else ""
    return first[len(ALTERNATIVES) :] if first.startswith(ALTERNATIVES) else ""


def replaced(path: str) -> dict[str, Any]:
    """Return ``{kind, text, mode, uid, gid}`` of the files that hvlab_files replaced, by path."""
    return record(path + ".before")


def file_state(path: str, with_text: bool) -> dict[str, Any]:
    """Return ``{kind, mode, owner, mtime}`` of a path, and ``sha256``, ``text`` or ``target``.

    Kind None says that nothing is there. The owner is empty where the group is not that user's own.
    """
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return {"kind": None}
    state: dict[str, Any] = {
        "kind": "other",
        "mode": stat.S_IMODE(info.st_mode),
        "owner": owner(info.st_uid, info.st_gid),
        "mtime": info.st_mtime,
    }
    if stat.S_ISLNK(info.st_mode):
        state.update(kind="link", target=target(path))
    elif stat.S_ISDIR(info.st_mode):
        state["kind"] = "directory"
    elif stat.S_ISREG(info.st_mode):
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            content = file.read()
        state.update(kind="file", sha256=hashlib.sha256(content).hexdigest())
        if with_text:
            state["text"] = content.decode("utf-8", "replace")
    return state


def owner(uid: int, gid: int) -> str:
    """Return the user with these ids; empty if they are not one user's."""
    with suppress(KeyError):
        user = pwd.getpwuid(uid)
        return user.pw_name if user.pw_gid == gid else ""
    return ""


def files(path: str) -> dict[str, Any]:
    """Return the states of the files in this record, without those that cannot be read."""
    states = {}
    for name, with_text in record(path).items():
        with suppress(OSError):
            states[name] = file_state(name, with_text)
    return states
