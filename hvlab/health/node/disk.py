"""File systems: room, inodes, and whether they can be written and answer at all."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from hvlab.health.node.answers import output, text, too_long, whole
from hvlab.health.node.finding import Finding, hard, passed, skipped, soft

PATHS = ("/", "/tmp", "/var/tmp", "/opt", "/home")  # noqa: S108 - looked at, not written to
_COLUMNS = ("fstype", "size", "avail", "itotal", "iavail")
# One question each: where a file server does not answer, only its own does not come.
QUESTIONS: Dict[str, Dict[str, Any]] = {
    "disk mounts": {"read": "/proc/self/mounts"},
    **{
        f"disk {path}": {"run": ["df", "-k", "--output=target," + ",".join(_COLUMNS), path], "timeout": 5}
        for path in PATHS
    },
}
LEARNED: Tuple[str, ...] = ()

# As sites publish them for LBNL's node health check: 1 % of /tmp and 5 % of /; 100 and 1000 inodes
# (https://curc.readthedocs.io, nhc.conf). One percent of a file server is much, so each has a bound in GiB.
_LEAST, _LITTLE = (0.01, 10), (0.05, 50)
_LEAST_INODES, _FEW_INODES = 100, 1000
_READ_ONLY_BY_NATURE = ("squashfs", "erofs", "iso9660", "composefs")


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``disks`` by mount point, sizes in GiB, and ``disks_silent``, the paths that df waited for."""
    mounts = _mounts(text(answers, "disk mounts"))
    disks: Dict[str, Dict[str, Any]] = {}
    for path in PATHS:
        disk = _disk(output(answers, f"disk {path}"))
        if disk:
            target = disk.pop("target")
            options = mounts.get(target, [])
            disks.setdefault(target, {**disk, "read_only": "ro" in options, "paths": []})["paths"].append(
                path
            )
    silent = [path for path in PATHS if too_long(answers, f"disk {path}")]
    return {**({"disks": disks} if disks else {}), **({"disks_silent": silent} if silent else {})}


def _mounts(table: str) -> Dict[str, List[str]]:
    """Return mount point -> options; of several on one point the last is the one in force."""
    rows = (line.split() for line in table.splitlines())
    return {re.sub(r"\\040", " ", row[1]): row[3].split(",") for row in rows if len(row) > len("abc")}


def _disk(table: str) -> Optional[Dict[str, Any]]:
    cells = (table.strip().splitlines() or [""])[-1].rsplit(None, len(_COLUMNS))
    if len(cells) != len(_COLUMNS) + 1:
        return None
    row = dict(zip(("target", *_COLUMNS), cells))
    size, free = whole(row["size"]), whole(row["avail"])
    if not size or free is None:
        return None
    disk: Dict[str, Any] = {"target": row["target"].strip(), "type": row["fstype"]}
    disk.update(gib=size / 2**20, free_gib=free / 2**20)
    # btrfs and some servers count no inodes.
    if whole(row["itotal"]) and whole(row["iavail"]) is not None:
        disk["free_inodes"] = whole(row["iavail"])
    return disk


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:  # noqa: ARG001
    """Judge every file system that the paths of :data:`PATHS` lie on."""
    silent = [
        hard(
            f"disk answers {path}",
            f"df {path} does not answer within 5 s",
            "look at its file server and the network to it, then `umount -f -l` and mount it again",
        )
        for path in values.get("disks_silent", ())
    ]
    disks = values.get("disks", {})
    if not disks and not silent:
        return [skipped("disk space", "df answers for no path")]
    judged = [finding for target, disk in disks.items() for finding in _judge(target, disk)]
    return silent + judged


def _judge(target: str, disk: Mapping[str, Any]) -> Sequence[Finding]:
    written = hard(
        f"disk writable {target}",
        f"{target} ({disk['type']}) is mounted read-only",
        "look for errors of its device in the kernel log, run fsck, and mount it again",
    )
    sealed = disk["type"] in _READ_ONLY_BY_NATURE
    if sealed:
        return [passed(f"disk writable {target}", f"{disk['type']} is read-only by nature")]
    return [
        written if disk["read_only"] else passed(f"disk writable {target}"),
        _space(f"disk space {target}", disk),
        _inodes(f"disk inodes {target}", disk),
    ]


def _space(check: str, disk: Mapping[str, Any]) -> Finding:
    seen = f"{disk['free_gib']:.1f} of {disk['gib']:.1f} GiB are free"
    remedy = f"find what fills it: `du -xh --max-depth=2 {disk['paths'][0]} | sort -h | tail`"
    least, little = (min(share * disk["gib"], gib) for share, gib in (_LEAST, _LITTLE))
    if disk["free_gib"] < least:
        return hard(check, seen, remedy)
    return soft(check, seen, remedy) if disk["free_gib"] < little else passed(check, seen)


def _inodes(check: str, disk: Mapping[str, Any]) -> Finding:
    free = disk.get("free_inodes")
    if free is None:
        return skipped(check, f"{disk['type']} counts no inodes")
    remedy = f"find the folder with too many files: `du --inodes -x {disk['paths'][0]} | sort -n | tail`"
    if free < _LEAST_INODES:
        return hard(check, f"{free} inodes are free", remedy)
    return (
        soft(check, f"{free} inodes are free", remedy)
        if free < _FEW_INODES
        else passed(check, f"{free} are free")
    )
