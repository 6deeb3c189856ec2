"""Processors: how many are online, and whether they may run at full speed."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, List, Mapping, Optional

from hvlab.checks.node.answers import files, text
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft

_CPU = "/sys/devices/system/cpu"
QUESTIONS: Dict[str, Dict[str, Any]] = {
    "cpu online": {"read": _CPU + "/online"},
    "cpu present": {"read": _CPU + "/present"},
    "cpu smt": {"read": _CPU + "/smt/control"},
    "cpu governors": {"read": _CPU + "/cpu[0-9]*/cpufreq/scaling_governor"},
    "cpu no_turbo": {"read": _CPU + "/intel_pstate/no_turbo"},
    "cpu boost": {"read": _CPU + "/cpufreq/boost"},
}
CHECKS = {"cpu count": "hard", "cpu governor": "soft", "cpu turbo": "soft"}
LEARNED = ("cpu_count", "cpu_governor")


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``cpu_count`` (online), ``cpu_offline``, ``cpu_governors`` (CPUs of each), ``cpu_turbo``."""
    values: Dict[str, Any] = {}
    online, present = _size(text(answers, "cpu online")), _size(text(answers, "cpu present"))
    if online is not None:
        values["cpu_count"] = online
        if present is not None and text(answers, "cpu smt") not in ("off", "forceoff"):
            values["cpu_offline"] = present - online
    governors = Counter(governor for governor in files(answers, "cpu governors").values() if governor)
    if governors:
        values["cpu_governors"] = dict(governors)
        values["cpu_governor"] = governors.most_common(1)[0][0]
    turbo = {"0": True, "1": False}.get(text(answers, "cpu no_turbo"))
    turbo = {"1": True, "0": False}.get(text(answers, "cpu boost")) if turbo is None else turbo
    if turbo is not None:
        values["cpu_turbo"] = turbo
    return values


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Judge the number of CPUs, their governors and turbo."""
    return [_count(values, expected), _governor(values, expected), _turbo(values)]


def _size(ranges: str) -> Optional[int]:
    if not re.fullmatch(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", ranges):
        return None
    ends = [part.split("-") for part in ranges.split(",")]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ends)


def _count(values: Mapping[str, Any], expected: Mapping[str, Any]) -> Finding:
    check, count, type_has = "cpu count", values.get("cpu_count"), expected.get("cpu_count")
    if count is None:
        return skipped(check, "the kernel does not say how many CPUs are online")
    if type_has is not None and count < type_has:
        remedy = "look in the kernel log and the BMC's for a processor or a socket that was switched off"
        return hard(check, f"{count} CPUs are online, this machine type should have {type_has}", remedy)
    if type_has is not None and count > type_has:
        remedy = "switch SMT as on the other nodes, or correct cpu_count in its machine type"
        return soft(check, f"{count} CPUs are online, this machine type should have {type_has}", remedy)
    if values.get("cpu_offline"):
        observed = f"{values['cpu_offline']} of {count + values['cpu_offline']} CPUs are offline"
        return soft(
            check, observed, f"write 1 to {_CPU}/cpu*/online, or find in the kernel log why they went"
        )
    return passed(check, f"{count} CPUs")


def _governor(values: Mapping[str, Any], expected: Mapping[str, Any]) -> Finding:
    check, governors = "cpu governor", values.get("cpu_governors")
    if not governors:
        return skipped(check, "this host shows no frequency governor")
    fast = expected.get("cpu_governor", "performance")
    others = {governor: count for governor, count in governors.items() if governor != fast}
    if not others:
        return passed(check, fast)
    counted = ", ".join(f"{governor} on {count} CPUs" for governor, count in sorted(others.items()))
    return soft(check, f"{counted} instead of {fast}", f"run `cpupower frequency-set -g {fast}`")


def _turbo(values: Mapping[str, Any]) -> Finding:
    check = "cpu turbo"
    if "cpu_turbo" not in values:
        return skipped(check, "this host does not show whether turbo is on")
    if values["cpu_turbo"]:
        return passed(check, "on")
    remedy = (
        f"write 0 to {_CPU}/intel_pstate/no_turbo or 1 to {_CPU}/cpufreq/boost; see the firmware's setting"
    )
    return soft(check, "turbo is switched off", remedy)
