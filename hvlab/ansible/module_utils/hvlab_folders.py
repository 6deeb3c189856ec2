# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Root writes nothing where another person controls the path."""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager
from typing import Iterator

LOGIN_SETTINGS = "/etc/login.defs"
# UIDs that Debian (policy 9.2.2, 60000 to 64999) and systemd (up to 65519) give to services.
SERVICES = range(60000, 65520)
LINKS = 40


def above(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each existing folder and link on the way to ``path``, including the targets of links."""
    pending, links = [os.path.dirname(os.path.abspath(path))], 0
    while pending:
        names = pending.pop().strip("/").split("/")
        for count in range(len(names) + 1):
            part = "/" + "/".join(names[:count])
            try:
                info = os.lstat(part)
            except FileNotFoundError:
                break
            yield part, info
            if stat.S_ISLNK(info.st_mode) and links < LINKS:
                links += 1
                target = os.path.join(os.path.dirname(part), os.readlink(part), *names[count:])
                pending.append(os.path.normpath(target))
                break


def first_person() -> int:
    """Return the lowest UID of people: UID_MIN, at most 1000, for those of a directory may be below it."""
    try:
        with open(LOGIN_SETTINGS, encoding="utf-8", errors="replace") as file:
            minimum = re.search(r"(?m)^UID_MIN\s+(\d+)", file.read())
    except OSError:
        minimum = None
    return min(1000, int(minimum.group(1))) if minimum else 1000


def writer(path: str, owner: int) -> int:
    """Return the UID that should write at ``path`` a file of UID ``owner``.

    It is ``owner`` where a folder on the way belongs to that user, whatever the UID: without more rights than
    that user's, a link gains nothing. Elsewhere it is who runs this. Raises PermissionError
    where a folder belongs to another person, or is everybody's.
    """
    me = os.geteuid()
    acting, people = me, first_person()
    for part, info in above(path):
        if info.st_uid == owner and owner != 0:
            acting = owner
        elif info.st_uid != me and info.st_uid >= people and info.st_uid not in SERVICES:
            raise PermissionError("{} belongs to UID {}".format(part, info.st_uid))
        if stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_IWOTH and not info.st_mode & stat.S_ISVTX:
            raise PermissionError("everybody may write to {}".format(part))
    return acting


@contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """Run the block with the rights of a user; needs root for another one."""
    if uid == os.geteuid():
        yield
        return
    before = os.getegid(), os.getgroups()
    os.setgroups([gid])
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(before[0])
        os.setgroups(before[1])


def make_private(path: str) -> None:
    """Make a folder for root's own work, and missing parents. A new one is closed to everybody else.

    Raises PermissionError as ``writer`` does, and for a folder in which everybody may make files.
    """
    writer(os.path.join(path, "file"), 0)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if os.stat(path).st_mode & stat.S_IWOTH:
            raise PermissionError("everybody may make files in {}".format(path)) from None
    # Another person may have made a part of the way since the first look.
    writer(os.path.join(path, "file"), 0)
