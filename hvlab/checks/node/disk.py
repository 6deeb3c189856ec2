"""File systems: room, inodes, and whether they can be written and answer at all."""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from hvlab.checks.node import limits
from hvlab.checks.node.answers import files, has_timed_out, output, parse_whole, text
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft

PATHS = ("/", "/tmp", "/var/tmp", "/opt", "/home")
_COLUMNS = ("fstype", "size", "avail", "itotal", "iavail")
# One question each: where a file server does not answer, only its own does not come.
QUESTIONS: Dict[str, Dict[str, Any]] = {
    "disk mounts": {"read": "/proc/self/mounts"},
    "disk fstab": {"read": "/etc/fstab"},
    # There only where the system is an image of OSTree's, whose / is read-only.
    "disk ostree": {"read": "/run/ostree-booted"},
    **{
        f"disk {path}": {"run": ["df", "-k", "--output=target," + ",".join(_COLUMNS), path], "timeout": 5}
        for path in PATHS
    },
}
CHECKS = {"disk answers": "hard", "disk writable": "hard", "disk space": "hard", "disk inodes": "hard"}
LEARNED: Tuple[str, ...] = ()

_READ_ONLY_BY_NATURE = ("squashfs", "erofs", "iso9660", "composefs")
# Shared by many nodes: to drain one of them helps none.
_NETWORK = (
    *("nfs*", "lustre", "gpfs", "beegfs*", "ceph", "cifs", "smb3", "glusterfs"),
    *("fuse.*", "9p", "virtiofs"),
)
# What the kernel makes read-only itself when its disk fails.
_OF_DISKS = ("ext[234]", "xfs", "btrfs", "zfs", "f2fs")
# What df says of a mount that is broken on this node, in the words of glibc.
_BROKEN = ("Stale file handle", "Transport endpoint is not connected", "Input/output error")


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``disks`` by mount point, sizes in GiB.

    ``disks_silent`` are the paths that df waited for, ``disks_broken`` has df's words on those that failed.
    """
    mounts, fstab = (_mounts(text(answers, f"disk {name}")) for name in ("mounts", "fstab"))
    ostree = bool(files(answers, "disk ostree"))
    disks: Dict[str, Dict[str, Any]] = {}
    for path in PATHS:
        disk = _disk(output(answers, f"disk {path}"))
        if disk:
            target = disk.pop("target")
            disk["read_only"] = "ro" in mounts.get(target, [])
            disk["read_only_meant"] = "ro" in fstab.get(target, []) or (ostree and target == "/")
            disks.setdefault(target, {**disk, "paths": []})["paths"].append(path)
    values = {
        "disks": disks,
        "disks_silent": [path for path in PATHS if has_timed_out(answers, f"disk {path}")],
        "disks_broken": {
            path: words for path in PATHS for words in _broken_line(answers.get(f"disk {path}"))
        },
    }
    return {name: value for name, value in values.items() if value}


def _broken_line(answer: Any) -> List[str]:
    """Return df's last line if it reports a broken mount; a missing path is not one."""
    lines = str(answer.get("err", "")).strip().splitlines() if isinstance(answer, dict) else []
    return [line for line in lines if any(words in line for words in _BROKEN)][-1:]


def _mounts(table: str) -> Dict[str, List[str]]:
    """Return mount point -> options; of several on one point the last is in force."""
    rows = (line.split() for line in table.splitlines() if not line.lstrip().startswith("#"))
    return {re.sub(r"\\040", " ", row[1]): row[3].split(",") for row in rows if len(row) > len("abc")}


def _disk(table: str) -> Optional[Dict[str, Any]]:
    cells = (table.strip().splitlines() or [""])[-1].rsplit(None, len(_COLUMNS))
    if len(cells) != len(_COLUMNS) + 1:
        return None
    row = dict(zip(("target", *_COLUMNS), cells))
    size, free = parse_whole(row["size"]), parse_whole(row["avail"])
    if not size or free is None:
        return None
    disk: Dict[str, Any] = {"target": row["target"].strip(), "type": row["fstype"]}
    disk.update(gib=size / 2**20, free_gib=free / 2**20)
    # btrfs and some servers count no inodes.
    if parse_whole(row["itotal"]) and parse_whole(row["iavail"]) is not None:
        disk["free_inodes"] = parse_whole(row["iavail"])
    return disk


def findings(values: Mapping[str, Any], _expected: Mapping[str, Any]) -> List[Finding]:
    """Judge every file system that the paths of :data:`PATHS` lie on."""
    silent = [
        soft(
            f"disk answers {path}",
            f"df {path} does not answer within 5 s",
            "look at its file server and the network to it, then `umount -f -l` and mount it again",
        )
        for path in values.get("disks_silent", ())
    ]
    broken = [
        hard(
            f"disk answers {path}",
            words,
            f"`umount -l {path}` and mount it again; of a local disk, look at the kernel log first",
        )
        for path, words in values.get("disks_broken", {}).items()
    ]
    disks = values.get("disks", {})
    if not disks and not silent and not broken:
        return [skipped("disk space", "df failed for every path")]
    judged = [finding for target, disk in disks.items() for finding in _judge(target, disk)]
    return silent + broken + judged


def _judge(target: str, disk: Mapping[str, Any]) -> Sequence[Finding]:
    if disk["type"] in _READ_ONLY_BY_NATURE:
        return [passed(f"disk writable {target}", f"{disk['type']} is read-only by nature")]
    return [
        _writable(f"disk writable {target}", target, disk),
        _space(f"disk space {target}", disk),
        _inodes(f"disk inodes {target}", disk),
    ]


def _is(disk: Mapping[str, Any], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(disk["type"], pattern) for pattern in patterns)


def _writable(check: str, target: str, disk: Mapping[str, Any]) -> Finding:
    if not disk["read_only"]:
        return passed(check)
    if disk["read_only_meant"]:
        return passed(check, "read-only, as this node is configured")
    return (hard if _is(disk, _OF_DISKS) else soft)(
        check,
        f"{target} ({disk['type']}) is mounted read-only",
        "look for errors of its device in the kernel log, run fsck, and mount it again; "
        "if it is meant so, write `ro` in /etc/fstab",
    )


def _space(check: str, disk: Mapping[str, Any]) -> Finding:
    observed = f"{disk['free_gib']:.1f} of {disk['gib']:.1f} GiB are free"
    remedy = f"find what fills it: `du -xh --max-depth=2 {disk['paths'][0]} | sort -h | tail`"
    least, little = (min(share * disk["gib"], gib) for share, gib in (limits.DISK_LEAST, limits.DISK_LITTLE))
    if disk["free_gib"] < least and not _is(disk, _NETWORK):
        return hard(check, observed, remedy)
    return soft(check, observed, remedy) if disk["free_gib"] < little else passed(check, observed)


def _inodes(check: str, disk: Mapping[str, Any]) -> Finding:
    free = disk.get("free_inodes")
    if free is None:
        return skipped(check, f"{disk['type']} counts no inodes")
    remedy = f"find the folder with too many files: `du --inodes -x {disk['paths'][0]} | sort -n | tail`"
    if free < limits.INODES_LEAST and not _is(disk, _NETWORK):
        return hard(check, f"{free} inodes are free", remedy)
    return (
        soft(check, f"{free} inodes are free", remedy)
        if free < limits.INODES_FEW
        else passed(check, f"{free} are free")
    )
