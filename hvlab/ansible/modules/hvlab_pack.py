#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Build once, install everywhere: one host builds a folder, the controller keeps it, the others unpack it."""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import os
import pwd
import shutil
import stat
import subprocess
import tarfile
import tempfile
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Iterator

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hvlab_archive import folder_of, receive
from ansible.module_utils.hvlab_disk import free_bytes
from ansible.module_utils.hvlab_managed import writer
from ansible.module_utils.hvlab_packed import (
    MARKER,
    contents,
    holding,
    is_settings,
    leftovers,
    manifest,
    measure,
    read_marker,
    state,
    walk,
    write_manifest,
)

TAR_SECONDS = 900
# From linux/fcntl.h and linux/fs.h.
AT_FDCWD, RENAME_EXCHANGE = -100, 2
# Maximum number of damaged files listed per pack.
LISTED = 10


def describe(
    root: str, needs: list[str], *, user: str = "", builds: str = "", room: str = "", record: bool = False
) -> dict[str, Any]:
    """Return the pack's key and state, and the keys of the packs it is built on (None: missing).

    ``trusted`` says whether ``user`` has a key with which it may log in to the lab's other hosts. ``record``
    keeps the pack's manifest up to date. ``building`` are the folders below ``builds``. ``free`` is the
    space at ``room``, where the pack will be unpacked.
    """
    keys = {path: read_marker(path).get("key", "unpacked") if os.path.isdir(path) else None for path in needs}
    held = state(root, record=record)
    return {
        **held,
        "wrong": held["wrong"][:LISTED],
        "leftovers": leftovers(root),
        "building": glob.glob(os.path.join(builds, "*")) if builds else [],
        "needs": keys,
        "free": free_bytes(room or root),
        "linked": os.path.islink(root),
        "trusted": bool(user) and os.path.exists(certificate(user)),
    }


def certificate(user: str) -> str:
    """Return the path of the certificate of a user's key; an empty text for an unknown user."""
    try:
        return os.path.join(pwd.getpwnam(user).pw_dir, ".ssh/id_ed25519-cert.pub")
    except KeyError:
        return ""


def check(root: str, key: str) -> None:
    """Raise ValueError unless the folder holds this key and all that its marker says."""
    marker = read_marker(root)
    if marker.get("key") != key or (marker.get("files"), marker.get("bytes")) != measure(root):
        raise ValueError("the pack does not match its marker")


def as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make a tar member root's."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def save(root: str, marker: dict[str, Any], reader: str, archive: str) -> str:
    """Write the marker, pack the folder into ``archive`` for user ``reader`` to fetch; return its sha256.

    Settings that a role wrote into it are for this host alone, so they are removed first.
    """
    for name, info in walk(root):
        if stat.S_ISREG(info.st_mode) and is_settings(os.path.join(root, name)):
            with open(os.path.join(root, name), "r+b") as file:
                file.readline()
                file.truncate()
    marker["files"], marker["bytes"] = measure(root)
    with open(os.path.join(root, MARKER), "w") as file:
        json.dump(marker, file, indent=2, sort_keys=True)
    write_manifest(root, contents(root))
    digest = hashlib.sha256()
    try:
        with folder_of(archive) as folder:
            with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
                tar.add(os.path.join(root, MARKER), MARKER, filter=as_root)
                for name in sorted(set(os.listdir(root)) - {MARKER}):
                    tar.add(os.path.join(root, name), name, filter=as_root)
            with open(archive, "rb") as packed:
                for block in iter(lambda: packed.read(1 << 20), b""):
                    digest.update(block)
            # Last, and the archive before the folder: the folder's owner can replace the archive by a link.
            for path in (archive, folder):
                shutil.chown(path, reader)
    except OSError as error:
        raise ValueError("writing {}: {}".format(archive, error)) from error
    return digest.hexdigest()


def extract(archive: str, folder: str) -> None:
    """Unpack with tar, in half the time that tarfile takes; raise ValueError when it fails."""
    try:
        done = subprocess.run(
            ["tar", "--extract", "--gzip", "--file", archive, "--directory", folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(os.environ, LC_ALL="C"),
            check=False,
            timeout=TAR_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            "tar was killed: {} s were not enough to unpack into {}; see that this disk answers".format(
                TAR_SECONDS, folder
            )
        ) from None
    if done.returncode:
        raise ValueError(done.stderr.decode("utf-8", "replace").strip()[:500])


def unpack(archive: str, root: str, key: str) -> None:
    """Unpack beside ``root``, then replace it."""
    place = os.path.dirname(archive)
    hold = holding(place) if place in leftovers(root) else nullcontext()
    with hold, beside(root) as folder:
        new = os.path.join(folder, "pack")
        os.mkdir(new, 0o755)
        extract(archive, new)
        check(new, key)
        entries = contents(new)
        put_in_place(new, root)
        write_manifest(root, entries)


def link(shared: str, root: str, key: str) -> bool:
    """Make ``root`` a link to a folder that all hosts share, if that holds the whole pack; return whether.

    Raises PermissionError if others than root may write there.
    """
    writer(os.path.join(shared, "file"), 0)
    held = state(shared)
    if held["key"] != key or not held["whole"]:
        return False
    with beside(root) as new:
        os.symlink(shared, os.path.join(new, "link"))
        put_in_place(os.path.join(new, "link"), root)
    return True


def clear(root: str, work: str = "") -> None:
    """Remove leftovers of killed runs beside a pack, and ``work``."""
    for place in leftovers(root):
        with holding(place) as mine:
            if mine:
                shutil.rmtree(place)
    if work and os.path.isdir(work):
        shutil.rmtree(work)


@contextmanager
def beside(root: str) -> Iterator[str]:
    """Yield a held folder beside ``root``, removed after the block; leftovers of killed runs go first."""
    parent, name = os.path.split(root)
    os.makedirs(parent, mode=0o755, exist_ok=True)
    clear(root)
    while True:
        new = tempfile.mkdtemp(prefix=".{}.new-".format(name), dir=parent)
        with holding(new) as mine:
            # Another process may have taken it for a leftover before it was held.
            if mine:
                try:
                    yield new
                finally:
                    shutil.rmtree(new, ignore_errors=True)
                return


def put_in_place(new: str, root: str) -> None:
    """Rename ``new``, a folder or a link, to ``root``; the former ``root`` ends up beside ``new``."""
    if not os.path.islink(root):
        with suppress(FileNotFoundError):
            os.unlink(manifest(root))
    if exchange(new, root):
        return
    if os.path.lexists(root):
        os.rename(root, new + ".old")
    os.rename(new, root)


def exchange(one: str, other: str) -> bool:
    """Swap two names in one step; return whether kernel, C library and file system could."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other))
    return rename is not None and rename(*names, RENAME_EXCHANGE) == 0


def main() -> None:
    """Do one step for the action plugin."""
    # Whatever root's umask, the lab's users can read what is installed.
    os.umask(0o022)
    module = AnsibleModule(
        argument_spec={
            "step": {
                "type": "str",
                "choices": ["check", "receive", "unpack", "link", "unlink", "save", "forget", "clear"],
                "required": True,
            },
            "path": {"type": "path", "required": True},
            "key": {"type": "str", "default": "", "no_log": False},
            "needs": {"type": "list", "elements": "path", "default": []},
            "archive": {"type": "path"},
            "place": {"type": "path"},
            "shared": {"type": "path"},
            "room": {"type": "path"},
            "url": {"type": "str", "default": ""},
            "peer": {"type": "dict", "default": {}},
            "size": {"type": "int", "default": 0},
            "sha256": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "builds": {"type": "path"},
            "work": {"type": "path"},
            "marker": {"type": "dict", "default": {}},
            "reader": {"type": "str", "default": "root"},
        },
        supports_check_mode=True,
    )
    step, path, archive = module.params["step"], module.params["path"], module.params["archive"]
    result: dict[str, Any] = {"changed": False}
    try:
        if step == "check":
            about = {name: module.params[name] for name in ("needs", "user", "builds", "room")}
            result.update(describe(path, **about, record=not module.check_mode))
        elif step == "receive":
            names = ("archive", "url", "peer", "size", "sha256", "user")
            receive(module.params["place"], **{name: module.params[name] for name in names})
        elif step == "unpack":
            unpack(archive, path, module.params["key"])
        elif step == "link":
            result["linked"] = link(module.params["shared"], path, module.params["key"])
        elif step == "unlink":
            os.unlink(path)
        elif step == "save":
            result["sha256"] = save(path, *(module.params[name] for name in ("marker", "reader", "archive")))
        elif step == "clear":
            clear(path, work=module.params["work"])
        else:
            shutil.rmtree(os.path.dirname(archive))
    except (OSError, ValueError, tarfile.TarError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
