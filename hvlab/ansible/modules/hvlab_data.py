#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Data sets on a host: finds them, and installs missing ones, completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import os
import shutil
import tarfile
import zlib
from typing import Any, Iterable

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hvlab_disk import free_bytes

BLOCK = 1 << 20
# Lustre without the mount option flock, NFS without lockd.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
# As datasets/own_files.py has them.
ARCHIVE, KEPT = "files.tar", 5


def key_in(folder: str) -> str:
    """Return the key of the files in a folder; empty if any cannot be read."""
    lines = []
    try:
        for name in sorted(os.listdir(folder)):
            digest = hashlib.sha256()
            with open(os.path.join(folder, name), "rb") as file:
                for block in iter(lambda: file.read(BLOCK), b""):
                    digest.update(block)
            lines.append("{}  {}\n".format(digest.hexdigest(), name))
    except OSError:
        return ""
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def unpack(archive: str, folder: str) -> None:
    """Write the files of a flat archive into ``folder``."""
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            source = tar.extractfile(member) if member.isfile() else None
            if source is None or os.path.basename(member.name) != member.name:
                raise ValueError("the archive holds {}, which is no plain file".format(member.name))
            with open(os.path.join(folder, member.name), "wb") as file:
                shutil.copyfileobj(source, file, BLOCK)


def install(archive: str, root: str, key: str) -> bool:
    """Unpack beside the set's place and rename; return whether that was needed.

    Files that another process of this user put there meanwhile, on a host with the same home, stay.
    Raises ValueError if the archive does not match its key.
    """
    place, new, old = (os.path.join(root, name) for name in (key, "." + key + ".new", "." + key + ".old"))
    os.makedirs(root, exist_ok=True)
    with open(os.path.join(root, ".lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            # Without locks, renaming keeps the set whole.
            if error.errno not in NO_LOCKS:
                raise
        if key_in(place) == key:
            return False
        try:
            remove(new)
            os.mkdir(new)
            unpack(archive, new)
            if key_in(new) != key:
                raise ValueError("the archive does not match its key {}".format(key))
            remove(old)
            if os.path.lexists(place):
                os.rename(place, old)
            os.rename(new, place)
            with contextlib.suppress(OSError):
                forget(root, key)
        finally:
            remove(new)
            remove(old)
    return True


def forget(root: str, key: str) -> None:
    """Remove the least recently used files of a user's own trainings; those of ``key`` stay."""
    own = []
    for name in os.listdir(root):
        place = os.path.join(root, name)
        other = name == key or name.startswith(".") or not os.path.isdir(place)
        if not other and os.listdir(place) == [ARCHIVE]:
            own.append((os.stat(place).st_mtime, place))
    for _, place in sorted(own, reverse=True)[KEPT - 1 :]:
        shutil.rmtree(place, ignore_errors=True)


def touch(places: Iterable[str]) -> None:
    """Mark what is used now, so that it is not forgotten."""
    for place in places:
        with contextlib.suppress(OSError):
            os.utime(place)


def remove(path: str) -> None:
    """Remove everything there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def main() -> None:
    """Do one step for the action plugin."""
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "choices": ["look", "put"], "required": True},
            "path": {"type": "path", "required": True},
            "keys": {"type": "list", "elements": "str", "required": True, "no_log": False},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    step, root, keys = module.params["step"], module.params["path"], module.params["keys"]
    result: dict[str, Any] = {"changed": False, "path": root}
    try:
        if step == "look":
            missing = [key for key in keys if key_in(os.path.join(root, key)) != key]
            result["missing"] = missing
            if not module.check_mode:
                touch(os.path.join(root, key) for key in keys if key not in missing)
            result["free"] = free_bytes(root)
        else:
            result["changed"] = install(module.params["archive"], root, keys[0])
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        module.fail_json(msg=str(error), damaged=True)
    except OSError as error:
        module.fail_json(msg="{}: {}".format(error.filename or root, error.strerror or error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
