# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The packs on this host: their content, and whether it is still as installed. Needs no other module.

Beside each pack lies its manifest, which root alone writes: ``lstat`` and sha256 of each file. A file whose
``lstat`` is unchanged counts as right; any other is summed. Settings that hvlab wrote into a pack are right,
too.
As a program it prints ``{folder: [[path, what is wrong]]}`` of the packs below a folder, and changes nothing.
``--others-read FOLDER`` looks at the marker alone of packs that lie there, ``--only`` at these packs only.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import glob
import hashlib
import json
import os
import stat
import sys
import tempfile
from contextlib import contextmanager, suppress
from typing import Any, Iterator

MARKER = ".hvlab-pack.json"
# Lock file: a process that holds it owns the folder.
HOLD = ".held"
BYTE_CODE = "__pycache__"
BLOCK = 1 << 20
# The first bytes of a file of settings that a role writes into an installed pack.
WRITTEN = b"# Written by hvlab: "
# An entry: kind, mode, uid, gid, then size, times and inode, which show a change, then its sum or target.
_RIGHTS, _STAT = slice(0, 4), slice(0, 8)
_KIND, _MODE, _UID, _GID, _SIZE, _SUM = 0, 1, 2, 3, 4, 8
_KINDS = ((stat.S_ISREG, "file"), (stat.S_ISLNK, "link"), (stat.S_ISDIR, "directory"))


def walk(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and ``lstat`` of all below ``root``; byte code and the marker do not count, they move."""
    folders = [""]
    while folders:
        folder = folders.pop()
        with suppress(OSError), os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                name = os.path.join(folder, entry.name)
                directory = entry.is_dir(follow_symlinks=False)
                if name == MARKER or (directory and entry.name == BYTE_CODE):
                    continue
                yield name, entry.stat(follow_symlinks=False)
                if directory:
                    folders.append(name)


def measure(root: str) -> tuple[int, int]:
    """Return ``(files, bytes)`` below ``root``."""
    return _count(info for _, info in walk(root))


def _count(infos: Any) -> tuple[int, int]:
    count = size = 0
    for info in infos:
        if not stat.S_ISDIR(info.st_mode):
            count += 1
            size += 0 if stat.S_ISLNK(info.st_mode) else info.st_size
    return count, size


def read_marker(root: str) -> dict[str, Any]:
    """Return the marker of a packed folder; ``{}`` without a readable one."""
    return _read(os.path.join(root, MARKER))


def manifest(root: str) -> str:
    """Return the path of a pack's manifest."""
    parent, name = os.path.split(os.path.realpath(root))
    return os.path.join(parent, ".{}.manifest".format(name))


def leftovers(root: str) -> list[str]:
    """Return leftovers of killed runs beside a pack: archives, and folders half filled or half removed.

    A folder held by a process is left out.
    """
    parent, name = os.path.split(root)
    kinds = tuple(".{}.{}-".format(name, kind) for kind in ("new", "pack"))
    places: list[str] = []
    with suppress(OSError):
        places = sorted(
            os.path.join(parent, entry) for entry in os.listdir(parent) if entry.startswith(kinds)
        )
    return [place for place in places if not is_in_use(place)]


def is_in_use(place: str) -> bool:
    """Whether a process works on a folder."""
    try:
        handle = os.open(os.path.join(place, HOLD), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _is_locked(handle)
    finally:
        os.close(handle)


@contextmanager
def holding(place: str) -> Iterator[bool]:
    """Hold a folder during the block; yield False if another process has it or has removed it.

    The lock is on a file: NFS locks no folders. Without locks on the file system, nobody holds anything.
    """
    try:
        handle = os.open(os.path.join(place, HOLD), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        yield False
        return
    try:
        yield _is_locked(handle) and bool(os.fstat(handle).st_nlink)
    finally:
        os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
    return True


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path) as file:
            loaded = json.load(file)
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _entry(info: os.stat_result) -> list[Any]:
    """Return an entry without its sum; the size and times of a folder change with its byte code."""
    kind = next((name for is_kind, name in _KINDS if is_kind(info.st_mode)), "other")
    rights = [kind, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid]
    if kind == "directory":
        return [*rights, 0, 0, 0, 0]
    return [*rights, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino]


def _sum(path: str, kind: str) -> str:
    if kind == "link":
        return os.readlink(path)
    if kind != "file":
        return ""
    digest = hashlib.sha256()
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", buffering=0) as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def contents(root: str) -> dict[str, list[Any]]:
    """Return the entries of all below ``root``, each with its sum. Raises OSError."""
    entries = {}
    for name, info in walk(root):
        entry = _entry(info)
        entries[name] = [*entry, _sum(os.path.join(root, name), entry[_KIND])]
    return entries


def write_manifest(root: str, entries: dict[str, list[Any]]) -> None:
    """Write the manifest of the pack that is at ``root`` now. Raises OSError."""
    path = manifest(root)
    handle, part = tempfile.mkstemp(prefix=os.path.basename(path) + "-", dir=os.path.dirname(path))
    try:
        # Works under root_squash, too.
        os.fchmod(handle, 0o644)
        with open(handle, "w") as file:
            json.dump({"key": read_marker(root).get("key"), "entries": entries}, file, separators=(",", ":"))
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def state(root: str, deep: bool = False, record: bool = False) -> dict[str, Any]:
    """Return ``{key, whole, wrong}`` of a pack: its key, and its changed files with their faults.

    Whole is a pack with as many files and bytes as its marker says, and nothing wrong. ``deep`` sums
    each file. ``record`` writes the manifest where it is missing, or where times moved but no content.
    """
    root = os.path.realpath(root)
    marker, infos = read_marker(root), dict(walk(root))
    entries = _entries(root, marker)
    wrong, moved, grown = _compare(root, infos, entries, deep) if entries else ([], True, 0)
    files, size = _count(infos.values())
    whole = (marker.get("files"), marker.get("bytes")) == (files, size - grown) and not wrong
    if record and whole and moved:
        # A later run writes it if this one cannot.
        with suppress(OSError):
            write_manifest(root, entries or contents(root))
    return {"key": marker.get("key", "unpacked"), "whole": whole, "wrong": wrong}


def _entries(root: str, marker: dict[str, Any]) -> dict[str, list[Any]]:
    held = _read(manifest(root))
    entries = held.get("entries")
    if not isinstance(entries, dict) or held.get("key") != marker.get("key"):
        return {}
    right = all(isinstance(entry, list) and len(entry) == _SUM + 1 for entry in entries.values())
    return entries if right else {}


def _compare(
    root: str, infos: dict[str, os.stat_result], entries: dict[str, list[Any]], deep: bool
) -> tuple[list[list[str]], bool, int]:
    """Return the problems, whether any ``stat`` moved, and the bytes added by settings.

    Correct entries get their present ``stat``.
    """
    wrong, moved, grown = [], False, 0
    for name, before in entries.items():
        path = os.path.join(root, name)
        if name not in infos:
            wrong.append([path, "is gone"])
            continue
        now = _entry(infos[name])
        same = now == before[_STAT]
        if not same and now[_RIGHTS] == before[_RIGHTS] and now[_KIND] == "file" and is_settings(path):
            grown += now[_SIZE] - before[_SIZE]
            continue
        moved = moved or not same
        if same and not deep:
            continue
        problem = _rights(before, now) or _content(path, before, same)
        if problem:
            wrong.append([path, problem])
        else:
            entries[name] = [*now, before[_SUM]]
    return wrong, moved, grown


def is_settings(path: str) -> bool:
    """Whether a role wrote this file into a pack that was installed."""
    if not path.endswith(".conf"):
        return False
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", buffering=0) as file:
            return file.read(len(WRITTEN)) == WRITTEN
    except OSError:
        return False


def _rights(before: list[Any], now: list[Any]) -> str:
    if now[_RIGHTS] == before[_RIGHTS]:
        return ""
    if now[_KIND] != before[_KIND]:
        return "is no {}, as it was when installed".format(before[_KIND])
    if now[_MODE] != before[_MODE]:
        return "has mode {:04o}, was installed with {:04o}".format(now[_MODE], before[_MODE])
    owners = (now[_UID], now[_GID], before[_UID], before[_GID])
    return "belongs to {}:{}, was installed for {}:{}".format(*owners)


def _content(path: str, before: list[Any], same: bool) -> str:
    try:
        if _sum(path, before[_KIND]) == before[_SUM]:
            return ""
    except OSError as error:
        return "cannot be read: {}".format(error.strerror)
    # Only a faulty disk or memory changes a file without its times.
    return "has another content than was installed" + (", though its times are the same" if same else "")


def folders(root: str) -> list[str]:
    """Return the packs at most three folders below ``root``: links, too, and those that lost their marker."""
    places = [os.path.join(root, *depth) for depth in ([], ["*"], ["*", "*"])]
    marked = [os.path.dirname(path) for at in places for path in glob.glob(os.path.join(at, "*", MARKER))]
    manifests = [os.path.split(path) for at in places for path in glob.glob(os.path.join(at, ".*.manifest"))]
    listed = [os.path.join(folder, name[1 : -len(".manifest")]) for folder, name in manifests]
    return sorted({*marked, *filter(os.path.isdir, listed)})


def packs(root: str, record: bool = False) -> dict[str, Any]:
    """Return ``{folder: {key, whole, leftovers}}`` of the packs below ``root``; links included."""
    states: dict[str, Any] = {}
    for folder in folders(root):
        real = os.path.realpath(folder)
        states[real] = states.get(real) or state(real, record=record)
        states[folder] = states[real]
    return {
        folder: {**{part: states[folder][part] for part in ("key", "whole")}, "leftovers": leftovers(folder)}
        for folder in folders(root)
    }


def main(root: str, words: list[str]) -> None:
    """Print the faults by folder; null for one that another host reads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--others-read", default="")
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args(words)
    shared = os.path.join(os.path.realpath(asked.others_read), "") if asked.others_read else None
    wrong: dict[str, Any] = {}
    for folder in sorted({os.path.realpath(folder) for folder in folders(root)}):
        if asked.only is not None and folder not in asked.only:
            continue
        marker = read_marker(folder)
        if not marker.get("key"):
            problem = "belongs to an unfinished build" if marker else "is gone, or cannot be read"
            wrong[folder] = [[os.path.join(folder, MARKER), problem]]
        elif shared and folder.startswith(shared):
            wrong[folder] = None
        else:
            wrong[folder] = state(folder, asked.deep)["wrong"]
    json.dump(wrong, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
