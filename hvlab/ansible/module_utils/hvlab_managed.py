# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The files that hvlab wrote on this host; root writes nothing where another person controls the path."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pwd
import re
import stat
from contextlib import contextmanager, suppress
from typing import Any, Callable, Iterator

BEGIN = "# BEGIN hvlab"
END = "# END hvlab"
SECRET_MODE = 0o600
RECORD = "/var/lib/hvlab-files.json"


def with_block(text: str, block: str, drop: str | None, above: str | None = None) -> str:
    """Return ``text`` with the managed block put in, at its old place or at the end.

    It stands above the first line that matches ``above``.

    Raises ValueError for a block that does not end: which of its lines are somebody else's is unknown.
    """
    before: list[str] = []
    after: list[str] = []
    lines, inside = before, False
    # Not splitlines(): other people's lines may have a form feed in them, or end with a CR.
    for line in (text[:-1] if text.endswith("\n") else text).split("\n"):
        marker = line.rstrip("\r")
        if marker == BEGIN:
            if inside:
                break
            lines, inside = after, True
        elif marker == END:
            inside = False
        elif not inside and not (drop and re.search(drop, line)):
            lines.append(line)
    if inside:
        raise ValueError("there is a line {!r}, but no line {!r} after it".format(BEGIN, END))
    if lines is before:
        while before and not before[-1]:
            before.pop()
    first = next((at for at, line in enumerate(before) if above and re.search(above, line)), len(before))
    before, after = before[:first], before[first:] + after
    return "\n".join([*before, BEGIN, *block.splitlines(), END, *after]) + "\n"


def record(path: str) -> dict[str, Any]:
    """Return hvlab_files' record: each path it was given, and whether the facts hold its text.

    None stands for a path at which it wants nothing: what comes there later is somebody else's.
    """
    try:
        with open(path) as file:
            paths = json.load(file)
    except (OSError, ValueError):
        return {}
    return paths if isinstance(paths, dict) else {}


def add_to_record(path: str, more: dict[str, Any]) -> None:
    """Add to a record, in one step."""
    known = record(path)
    merged = dict(known, **more)
    if merged == known:
        return
    write(path, json.dumps(merged, sort_keys=True), SECRET_MODE, os.geteuid(), os.getegid())


def write(path: str, text: str, mode: int, uid: int, gid: int) -> None:
    """Write a file in one step; it keeps its ACL and the label of SELinux."""

    def make(beside: str) -> None:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            os.fchown(file.fileno(), uid, gid)
            _copy_attributes(path, file.fileno())
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())

    replace(path, make)


def _copy_attributes(path: str, handle: int) -> None:
    with suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            with suppress(OSError):
                os.setxattr(handle, name, os.getxattr(path, name, follow_symlinks=False))


def replace(path: str, make: Callable[[str], None]) -> None:
    """Let ``make`` make a file or link beside ``path``, and put it there in one step."""
    folder, name = os.path.split(path)
    beside = "{}/.{}.{}".format(folder, name, os.urandom(4).hex())
    try:
        make(beside)
        os.replace(beside, path)
    except OSError as error:
        # A mount point, as /etc/hosts in a container, can only be written in place.
        if error.errno != errno.EBUSY or os.path.islink(beside) or not os.path.isfile(path):
            raise
        with open(beside, "rb") as new, open(path, "wb") as file:
            file.write(new.read())
            info = os.fstat(new.fileno())
            os.fchown(file.fileno(), info.st_uid, info.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(info.st_mode))
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)


def restore(path: str, state: dict[str, Any]) -> None:
    """Bring a path back to a state of ``current``."""
    if state["kind"] == "link":
        replace(path, lambda beside: os.symlink(state["text"], beside))
    elif state["kind"] == "file":
        write(path, state["text"], state["mode"], state["uid"], state["gid"])
    elif os.path.lexists(path):
        os.unlink(path)


# Why root cannot write, and what to do.
REMEDIES = {
    errno.EPERM: "`lsattr -d` on it and on its folder shows whether they are immutable",
    errno.EROFS: "mount that file system read-write",
    errno.ENOSPC: "free space on that file system",
    errno.EDQUOT: "free space on that file system",
}


def explain(path: str, error: OSError) -> str:
    """Return why a path cannot be written, and what to do."""
    remedy = REMEDIES.get(error.errno or 0, "")
    reason = "{}: cannot be written: {}".format(path, error.strerror or error)
    return "{}.\nWhat to do: {}, then run this again".format(reason, remedy) if remedy else reason


def check_writable(path: str) -> None:
    """Raise OSError for a path that not even root can write: read-only, or immutable."""
    nearest = os.path.dirname(path)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    for place in (nearest, path) if os.geteuid() == 0 else ():
        if (place == nearest or os.path.isfile(path)) and not os.access(place, os.W_OK):
            code = errno.EROFS if os.statvfs(place).f_flag & os.ST_RDONLY else errno.EPERM
            raise OSError(code, os.strerror(code))


ALTERNATIVES = "/etc/alternatives/"


def target(path: str) -> str:
    """Return the target of a link; with update-alternatives, the target of its choice."""
    first = os.readlink(path)
    return os.readlink(first) if alternative(path) and os.path.islink(first) else first


def alternative(path: str) -> str:
    """Return a link's name in update-alternatives; empty if it is not one of its links."""
    first = os.readlink(path) if os.path.islink(path) else ""
    return first[len(ALTERNATIVES) :] if first.startswith(ALTERNATIVES) else ""


def read_replaced(path: str) -> dict[str, Any]:
    """Return ``{kind, text, mode, uid, gid}`` of the files that hvlab_files replaced, by path."""
    return record(path + ".before")


def current(path: str) -> dict[str, Any]:
    """Return ``{kind, text, mode, uid, gid}`` of a path; a link's text is its target. Kind None: nothing."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return {"kind": None, "text": "", "mode": None, "uid": None, "gid": None}
    text, kind = "", "other"
    if stat.S_ISLNK(info.st_mode):
        kind, text = "link", target(path)
    elif stat.S_ISDIR(info.st_mode):
        kind = "directory"
    elif stat.S_ISREG(info.st_mode):
        kind = "file"
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    mode = stat.S_IMODE(info.st_mode)
    return {"kind": kind, "text": text, "mode": mode, "uid": info.st_uid, "gid": info.st_gid}


def file_state(path: str, with_text: bool) -> dict[str, Any]:
    """Return ``{kind, mode, owner, mtime}`` of a path, and ``sha256``, ``text`` or ``target``.

    Kind None: nothing is there. The owner is empty where the group is not that user's own.
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
