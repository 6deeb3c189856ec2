# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Where a host has room."""

from __future__ import annotations

import os
import stat
import tempfile
from typing import Any


def free_mb(path: str) -> int:
    """Return the MiB a user may still write at a path, or at its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize // 2**20


def tmp() -> dict[str, Any]:
    """Return whether /tmp can be written and run from, its mode and free MiB."""
    writable = True
    try:
        with tempfile.TemporaryFile(dir="/tmp"):
            pass
    except OSError:
        writable = False
    return {
        "writable": writable,
        "noexec": bool(os.statvfs("/tmp").f_flag & os.ST_NOEXEC),  # noqa: S108
        "mode": "{:04o}".format(stat.S_IMODE(os.stat("/tmp").st_mode)),  # noqa: S108
        "free_mb": free_mb("/tmp"),  # noqa: S108
    }
