"""Memory: its size, errors, huge pages, and the shared memory that NCCL and MPI exchange data through."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any, Dict, List, Mapping, Optional

from hvlab.checks.node import limits
from hvlab.checks.node.answers import files, number, output, parse_whole, text
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft

_EDAC = "/sys/devices/system/edac/mc/mc*/"
_SHM = "/dev/shm"
QUESTIONS: Dict[str, Dict[str, Any]] = {
    "memory info": {"read": "/proc/meminfo"},
    "memory uptime": {"read": "/proc/uptime"},
    "memory corrected": {"read": _EDAC + "ce_count"},
    "memory uncorrected": {"read": _EDAC + "ue_count"},
    "memory shm": {"run": ["df", "-k", "--output=fstype,size,avail", _SHM], "timeout": 5},
}
CHECKS = {
    "memory size": "hard",
    "memory uncorrected errors": "hard",
    "memory corrected errors": "soft",
    "memory huge pages": "soft",
    "memory /dev/shm": "hard",
}
LEARNED = ("memory_gib", "hugepages_gib")

_DAY_S = 86_400


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``memory_gib``, ``hugepages_gib``, the errors counted since boot, and ``shm`` (MiB).

    ``memory_corrected`` and ``memory_uncorrected`` are of all controllers together, with ``uptime_s``.
    """
    values: Dict[str, Any] = {}
    table = re.findall(r"^(\w+): +(\d{1,15})(?: kB)?$", text(answers, "memory info"), re.M | re.A)
    info = {name: int(count) for name, count in table}
    if "MemTotal" in info:
        values["memory_gib"] = round(info["MemTotal"] / 2**20, 1)
    # Hugetlb counts the pages of all sizes; kernels before 4.20 have only those of the usual size.
    huge = info.get("HugePages_Total", 0) * info.get("Hugepagesize", 0)
    if "HugePages_Total" in info:
        values["hugepages_gib"] = round(info.get("Hugetlb", huge) / 2**20, 1)
    uptime = number((text(answers, "memory uptime").split() or [""])[0])
    if uptime is not None:
        values["uptime_s"] = uptime
    for kind in ("corrected", "uncorrected"):
        counts = {path: parse_whole(count) for path, count in files(answers, f"memory {kind}").items()}
        if counts and None not in counts.values():
            values[f"memory_{kind}"] = {PurePath(path).parent.name: count for path, count in counts.items()}
    shm = _shm(output(answers, "memory shm"))
    return {**values, "shm": shm} if shm else values


def _shm(table: str) -> Optional[Dict[str, Any]]:
    cells = (table.strip().splitlines() or [""])[-1].split()
    if len(cells) != len(("fstype", "size", "avail")):
        return None
    size, free = parse_whole(cells[1]), parse_whole(cells[2])
    return (
        None
        if size is None or free is None
        else {"type": cells[0], "mib": size // 1024, "free_mib": free // 1024}
    )


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Judge size, errors, huge pages and shared memory."""
    return [
        _size(values, expected),
        _judge_uncorrected(values),
        _judge_corrected(values),
        _hugepages(values, expected),
        _judge_shared(values.get("shm")),
    ]


def _size(values: Mapping[str, Any], expected: Mapping[str, Any]) -> Finding:
    check, gib, type_has = "memory size", values.get("memory_gib"), expected.get("memory_gib")
    if gib is None:
        return skipped(check, "/proc/meminfo does not say it")
    missing = max(limits.MEMORY_MISSING * (type_has or 0), limits.MEMORY_MISSING_GIB)
    if type_has is not None and gib < type_has - missing:
        remedy = "compare `dmidecode -t memory` with another node's: a module is missing or was switched off"
        return hard(check, f"{gib} GiB, this machine type should have {type_has}", remedy)
    return passed(check, f"{gib} GiB")


def _judge_uncorrected(values: Mapping[str, Any]) -> Finding:
    check, counts = "memory uncorrected errors", values.get("memory_uncorrected")
    if counts is None:
        return skipped(check, "no EDAC driver counts errors here")
    bad = {controller: count for controller, count in counts.items() if count}
    if not bad:
        return passed(check, "none since boot")
    counted = ", ".join(f"{count} of {controller}" for controller, count in sorted(bad.items()))
    remedy = "find the module with `ras-mc-ctl --errors` or in the BMC's log, and replace it"
    return hard(check, f"uncorrected errors since boot: {counted}", remedy)


def _judge_corrected(values: Mapping[str, Any]) -> Finding:
    check, counts = "memory corrected errors", values.get("memory_corrected")
    if counts is None:
        return skipped(check, "no EDAC driver counts errors here")
    days = max(values.get("uptime_s", 0.0) / _DAY_S, 1.0)
    many = {name: count for name, count in counts.items() if count / days > limits.CORRECTED_A_DAY}
    if not many:
        return passed(check, f"{sum(counts.values())} since boot")
    counted = ", ".join(f"{count} of {controller}" for controller, count in sorted(many.items()))
    observed = f"corrected errors in {days:.1f} days: {counted}; more than {limits.CORRECTED_A_DAY} a day"
    return soft(check, observed, "find the module with `ras-mc-ctl --errors`, and plan to replace it")


def _hugepages(values: Mapping[str, Any], expected: Mapping[str, Any]) -> Finding:
    check, gib, type_has = "memory huge pages", values.get("hugepages_gib"), expected.get("hugepages_gib")
    if gib is None:
        return skipped(check, "this kernel does not say how much memory they hold")
    if type_has is not None and gib < type_has:
        observed = f"{gib} GiB, this machine type should have {type_has}"
        return soft(check, observed, "set vm.nr_hugepages, and reboot if few are free")
    return passed(check, f"{gib} GiB")


def _judge_shared(shm: Optional[Mapping[str, Any]]) -> Finding:
    check = "memory /dev/shm"
    if shm is None:
        return skipped(check, "df does not answer for /dev/shm")
    observed = f"{shm['free_mib']} of {shm['mib']} MiB are free ({shm['type']})"
    if shm["mib"] < limits.SHM_LEAST_MIB:
        return hard(check, observed, "give it more room: `mount -o remount,size=50% /dev/shm`")
    if shm["free_mib"] < limits.SHM_LEAST_MIB:
        # A job may still use them.
        return soft(check, observed, "remove what ended jobs left in it: nccl-*, vader_*")
    if shm["type"] != "tmpfs" or shm["mib"] < limits.SHM_MIB:
        return soft(
            check, observed, f"mount a tmpfs of at least {limits.SHM_MIB} MiB there, as NCCL's guide asks for"
        )
    return passed(check, observed)
