# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""A host's free space, and leftovers that waste it."""

from __future__ import annotations

import glob
import os
import pwd
import stat
import tempfile
from typing import Any

INITRAMFS = "/boot/init*.img*"
# Prefix of the folders that module hvlab_source downloads into.
SOURCES = "/var/tmp/hvlab-source-"  # noqa: S108 - with a random ending, in mode 0700


def free_bytes(path: str) -> int:
    """Return the bytes a user may still write at a path, or at its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def free_mb(path: str) -> int:
    """Return the same in MiB."""
    return free_bytes(path) // 2**20


def initramfs_mb() -> int:
    """Return the MiB of the largest initramfs; a new one is written beside it."""
    sizes = [os.path.getsize(path) for path in glob.glob(INITRAMFS) if "-rescue-" not in path]
    return -(-max(sizes, default=0) // 2**20)


def tmp() -> dict[str, Any]:
    """Whether /tmp can be written and run from, its mode and free MiB."""
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


def find_leftovers(own: str | None) -> list[str]:
    """Return folders left by killed runs: Ansible's in the login user's home, and downloaded sources.

    ``own`` is Ansible's folder of this task; it has none where modules come over the connection itself.
    """
    user = pwd.getpwnam(os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name)
    # As remote_tmp in ansible.cfg, and as the module hvlab_source.
    folders = glob.glob(os.path.join(user.pw_dir, ".hvlab/tmp/ansible-tmp-*"))
    folders += [path for path in glob.glob(SOURCES + "*") if os.lstat(path).st_uid in (0, user.pw_uid)]
    return sorted(folder for folder in folders if not own or folder != own.rstrip("/"))
