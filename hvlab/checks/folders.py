"""Temporary folders, disk space and shared memory, as the user of the ranks sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from hvlab.base.errors import Problem
from hvlab.checks.before import PreflightLab, preflight
from hvlab.checks.node import limits
from hvlab.checks.programs import source
from hvlab.checks.provisioned import Question, Role, RoleHost, run, stat
from hvlab.checks.site import HostFault, HostReplies, Site

_TMP = "/tmp"
_BOOT = "/boot"
_SHM = "/dev/shm"
# Where runs keep their files.
_OWN = "~/.hvlab"
_STATE = "folders"
_COLUMNS = 2
_NUMBER = re.compile(r"[0-9]{1,15}")


# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {
    "session-dir": "",
    "tmp-not-sticky": "",
    "tmp-noexec": "",
    "disk-full": "",
    "shm-too-small": "",
    "backing-file": "",
    "tmpdir-too-long": "",
}


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask in a login shell of the user."""
    return {_STATE: {"run": ["bash", "-lc", source("folders.sh")], "user": site.user, "timeout": 15}}


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Judge modes, free space and mount options."""
    for name, replies in every.items():
        table = replies.table(_STATE)
        if "mode" in table:
            yield from _modes(name, table, site.user)
            yield from _room(name, table)
            yield from _tmpdir(name, table, site.user)


def _modes(name: str, table: Mapping[str, str], user: str) -> Iterator[HostFault]:
    mode = table["mode"]
    if "writable" not in table:
        yield HostFault("session-dir", name, f"{user} cannot write to /tmp (mode {mode})")
    elif re.fullmatch(r"[0-9]{0,2}7", mode):
        yield HostFault("tmp-not-sticky", name, f"/tmp has mode {mode}, not {limits.TMP_MODE}")
    if "noexec" in table.get("options", "").split(","):
        yield HostFault("tmp-noexec", name, f"/tmp is mounted {table['options']}")


def _room(name: str, table: Mapping[str, str]) -> Iterator[HostFault]:
    shown = set()
    for folder in ("/", _TMP, _OWN):
        space, inodes = _pair(table, f"space{folder}"), _pair(table, f"inodes{folder}")
        if (space, inodes) in shown:
            continue
        shown.add((space, inodes))
        if space and space[1] < limits.DISK_FULL_MIB * 1024 <= space[0]:
            yield HostFault("disk-full", name, f"{folder} has {space[1] // 1024} MiB left")
        elif inodes and inodes[0] and not inodes[1]:
            yield HostFault("disk-full", name, f"{folder} has no inodes left")
    shm = _pair(table, f"space{_SHM}")
    if shm and shm[0] <= limits.SHM_LEAST_MIB * 1024:
        yield HostFault("shm-too-small", name, f"{_SHM} has {shm[0] // 1024} MiB in all")
    elif shm and shm[1] < limits.SHM_LEAST_MIB * 1024:
        observed = f"{_SHM} has {shm[1] // 1024} of {shm[0] // 1024} MiB left"
        yield HostFault("backing-file", name, observed)


def _pair(table: Mapping[str, str], key: str) -> tuple[int, int] | None:
    words = table.get(key, "").split()
    if len(words) != _COLUMNS or not all(_NUMBER.fullmatch(word) for word in words):
        return None
    return int(words[0]), int(words[1])


def _tmpdir(name: str, table: Mapping[str, str], user: str) -> Iterator[HostFault]:
    folder = table.get("tmpdir", _TMP)
    if folder == _TMP:
        return
    if "tmpdir_writable" not in table:
        yield HostFault("session-dir", name, f"TMPDIR is {folder}, which {user} cannot write to")
    elif len(folder) > limits.TMPDIR_LENGTH:
        yield HostFault("tmpdir-too-long", name, f"TMPDIR is {folder} ({len(folder)} characters)")


def asks(node: RoleHost) -> dict[str, Question]:
    options = ["findmnt", "--noheadings", "--output", "OPTIONS", "--target", _TMP]
    return {"tmp": stat(_TMP), "tmp options": run(options)}


PREFLIGHT = Role("preflight", asks)


@PREFLIGHT.check
def tmp_can_be_used(node: RoleHost) -> None:
    mode = node["tmp"]["/tmp"]["mode"]
    node.expect(mode == limits.TMP_MODE, f"/tmp has mode {mode}", "`chmod 1777 /tmp`")
    options = node["tmp options"]["out"].strip().split(",")
    node.expect(
        "noexec" not in options, "/tmp is mounted noexec", "`mount -o remount,exec /tmp`, and in /etc/fstab"
    )


@preflight
def check_tmp(lab: PreflightLab) -> Iterator[Problem]:
    """Yield hosts where ranks cannot write to /tmp or run programs from it."""
    for host in lab.hosts:
        tmp = host.own.get("tmp") or {"writable": False}
        if not tmp["writable"]:
            yield Problem(host.name, f"{_TMP} cannot be written", "check df /tmp and findmnt /tmp on it")
            continue
        if tmp["noexec"]:
            yield Problem(
                host.name, f"{_TMP} is mounted noexec", "mount -o remount,exec /tmp, and correct /etc/fstab"
            )
        if int(tmp["mode"], 8) & 0o1777 != 0o1777:
            yield Problem(host.name, f"{_TMP} has mode {tmp['mode']}", "chmod 1777 /tmp")


@preflight
def check_disk(lab: PreflightLab) -> Iterator[Problem]:
    """Yield file systems with too little space; a host that already has the software needs less."""
    for host in lab.hosts:
        measured = {path: free for path, free in host.own.get("disk_free_mb", {}).items() if free is not None}
        initramfs = host.own.get("initramfs_mb") or 0
        if host.gpu and not host.own.get("driver") and measured.get(_BOOT, initramfs) < initramfs:
            observed = f"{_BOOT} has {measured[_BOOT]} MiB free; {initramfs} are needed for a new initramfs"
            yield Problem(
                host.name,
                observed,
                "remove kernels that nobody boots: `apt-get autoremove`, or `dnf remove --oldinstallonly`",
            )
        own = lab.limits.disk_free_gpu_mb if host.gpu else {}
        for path, minimum in {**lab.limits.disk_free_mb, **own}.items():
            need = min(minimum, lab.limits.disk_spare_mb) if host.own.get("packs") else minimum
            here = PurePosixPath(path)
            nearest = next((str(p) for p in (here, *here.parents) if str(p) in measured), None)
            if nearest is not None and measured[nearest] < need:
                observed = f"{path} has {measured[nearest]} MiB free, {need} are needed"
                option = f"preflight_disk_free{'_gpu' if path in own else ''}_mb"
                yield Problem(host.name, observed, f"free disk space, or change {option}")
