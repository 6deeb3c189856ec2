"""List hvlab's removable leftovers on this host: build folders, old packs, stacks, files of runs.

Takes a JSON object with ``builds`` (the folder in which packs are built), ``root`` (where packs lie),
``stacks``, ``user`` (who runs ranks), ``host`` (its name) and ``remove``: null, or paths by host. It
removes those that still may go, and prints them. Root alone sees all processes. Needs Python 3.8+
and no package.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pwd
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

DAY_S = 86400
MARKER = ".hvlab-pack.json"
# A build's folder ends with the key of its pack.
BUILD = re.compile(r".+-[0-9a-f]{16}")
# Leftovers of a killed command beside a pack, and of this program beside anything.
HALVES = ("new-*", "old-*", "pack-*", "removed")


def main() -> None:
    """Print the removable folders, or those that were removed on request."""
    request = json.loads(sys.argv[1])
    items = list_folders(request)
    mark_busy(items)
    if request["remove"] is not None:
        chosen = request["remove"].get(request["host"], [])
        items = [each for each in items if each["path"] in chosen and is_removable(each)]
        items = [each for each in items if remove_folder(each, request)]
    print(json.dumps(items))


def is_removable(each: dict[str, Any]) -> bool:
    """Whether nothing uses it, or may have begun to."""
    return bool(not each["busy"] and each["idle"] > DAY_S)


def remove_folder(each: dict[str, Any], request: dict[str, Any]) -> bool:
    """Remove a folder; return whether it is gone. Hosts may share a home: another may remove the same one."""
    in_home = each["path"].startswith(os.path.join(runs_of(request), ""))
    try:
        with rights_of(request["user"]) if in_home else contextlib.nullcontext():
            remove(each["path"])
    except FileNotFoundError:
        return False
    except OSError as error:
        sys.stderr.write("{}: {}\n".format(each["path"], error.strerror))
        return False
    return True


def runs_of(request: dict[str, Any]) -> str:
    """Return the folder of the files of runs."""
    return os.path.join(os.path.expanduser("~" + request["user"]), ".hvlab/runs")


@contextlib.contextmanager
def rights_of(user: str) -> Iterator[None]:
    """Have only the rights of a user, empty for the caller's own: in their home may be links to anywhere."""
    if not user or os.geteuid() != 0:
        yield
        return
    person, groups = pwd.getpwnam(user), os.getgroups()
    os.setgroups(os.getgrouplist(user, person.pw_gid))
    os.setegid(person.pw_gid)
    os.seteuid(person.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def remove(path: str) -> None:
    """Remove a folder, and a pack's manifest; half removed, it must not pass for whole."""
    parent, name = os.path.split(path)
    doomed = path
    if not name.startswith("."):
        doomed = os.path.join(parent, ".{}.removed".format(name))
        os.rename(path, doomed)
    shutil.rmtree(doomed)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(manifest(path))


def manifest(path: str) -> str:
    """Return the file that lies beside a pack since that was installed."""
    parent, name = os.path.split(path)
    return os.path.join(parent, ".{}.manifest".format(name))


def list_folders(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return ``{kind, path, size, idle, busy}`` of each: bytes, and seconds since it was last in use."""
    root, stacks, builds = (os.path.realpath(request[name]) for name in ("root", "stacks", "builds"))
    runs = runs_of(request)
    items = describe_present(
        "build folder", [path for path in folders(builds) if BUILD.fullmatch(os.path.basename(path))]
    )
    items += old_packs(root, stacks)
    items += describe_present("stacks", [path for path in [stacks] if os.path.isdir(path)])
    places = [builds, root, *folders(root)]
    items += describe_present("leftover", [path for place in places for path in find_unfinished(place)])
    if not os.path.isdir(runs):
        return items
    with rights_of(request["user"]):
        return (
            items
            + describe_present("run files", folders(runs))
            + describe_present("leftover", find_unfinished(runs))
        )


def describe_present(kind: str, paths: list[str]) -> list[dict[str, Any]]:
    """Describe the folders that still exist."""
    items = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            items.append(item(kind, path))
    return items


def old_packs(root: str, stacks: str) -> list[dict[str, Any]]:
    """Return the packs of versions that are not in use: beside the one that a link points to.

    Nothing points to them, and no other pack was built on them.
    """
    markers = {path: marker(path) for place in (root, stacks) for path in find_packs(place)}
    needed = {key for one in markers.values() for key in needs(one)}
    targets = find_targets(root, stacks)
    items = {}
    for link in filter(os.path.islink, [*glob.glob(os.path.join(root, "*/current")), "/usr/local/cuda"]):
        for place in {os.path.dirname(link), os.path.dirname(os.path.realpath(link))}:
            for path in folders(place) if os.path.dirname(place) == root else ():
                used = any(os.path.join(target, "").startswith(path + "/") for target in targets)
                if path in markers and not used and markers[path].get("key") not in needed:
                    # It was in use until the link was changed; its manifest says when it was installed.
                    since = [link, os.path.join(path, MARKER), manifest(path)]
                    times = [os.lstat(name).st_mtime for name in since if os.path.lexists(name)]
                    items[path] = item("old pack", path, max(times))
    return list(items.values())


def find_packs(place: str) -> list[str]:
    """Return the packs at most two folders below a folder."""
    paths = [path for depth in ("*", "*/*") for path in glob.glob(os.path.join(place, depth, MARKER))]
    return [os.path.dirname(path) for path in paths]


def marker(path: str) -> dict[str, Any]:
    """Return a pack's marker; an empty one where it cannot be read."""
    try:
        with open(os.path.join(path, MARKER)) as file:
            loaded = json.load(file)
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def needs(one: dict[str, Any]) -> list[str]:
    """Return the keys of the packs that a pack was built on: its programs have their paths."""
    inputs = one.get("inputs")
    return list(inputs.get("needs") or []) if isinstance(inputs, dict) else []


def find_targets(root: str, stacks: str) -> set[str]:
    """Return the targets of links to packs."""
    places = [root + "/*", root + "/*/*", stacks + "/*/*", "/usr/local/*", "/etc/alternatives/*"]
    return {os.path.realpath(path) for place in places for path in glob.glob(place) if os.path.islink(path)}


def find_unfinished(place: str) -> list[str]:
    """Return the folders that killed commands left in a folder."""
    paths = [path for end in HALVES for path in glob.glob(os.path.join(place, ".*." + end))]
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]


def folders(place: str) -> list[str]:
    """Return the folders in a folder, but hidden ones and links: what these point to belongs to others."""
    paths = sorted(glob.glob(os.path.join(place, "*")))
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]


def item(kind: str, path: str, used: float = 0) -> dict[str, Any]:
    """Describe a folder; a file in it that was written or read counts as ``used``."""
    size, newest = 0, max(used, os.lstat(path).st_mtime)
    for folder, below, files in os.walk(path):
        for name in below + files:
            with contextlib.suppress(OSError):
                info = os.lstat(os.path.join(folder, name))
                # Looking for packs reads folders, markers and manifests.
                read = stat.S_ISREG(info.st_mode) and name != MARKER and not name.endswith(".manifest")
                newest = max(newest, info.st_mtime, info.st_atime if read else 0)
                size += info.st_blocks * 512
    return {"kind": kind, "path": path, "size": size, "idle": max(0.0, time.time() - newest), "busy": False}


def mark_busy(items: list[dict[str, Any]]) -> None:
    """Mark what a process works in, runs, has loaded or open, or names; a case's processes name their run."""
    own = ancestors()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) in own:
            continue
        text = process(pid)
        for each in items:
            words = [each["path"]]
            if each["kind"] == "run files":
                words.append("HVLAB_CASE=" + os.path.basename(each["path"]))
            if any(word.encode() in text for word in words):
                each["busy"] = True


def process(pid: str) -> bytes:
    """Return everything that shows which files a process uses."""
    parts = []
    for name in ("cmdline", "environ", "maps"):
        with contextlib.suppress(OSError), open("/proc/{}/{}".format(pid, name), "rb") as file:
            parts.append(file.read())
    links = ["/proc/{}/{}".format(pid, name) for name in ("exe", "cwd")]
    for link in links + glob.glob("/proc/{}/fd/*".format(pid)):
        with contextlib.suppress(OSError):
            parts.append(os.fsencode(os.readlink(link)))
    return b"\0".join(parts)


def ancestors() -> set[int]:
    """Return this process and those above it, whose command lines name the doomed folders."""
    pids, pid = set(), os.getpid()
    while pid:
        pids.add(pid)
        try:
            with open("/proc/{}/stat".format(pid)) as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
    return pids


if __name__ == "__main__":
    main()
