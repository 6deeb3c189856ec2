"""Weak GPUs or CPUs, found in two minutes of load: wrong bits, lower speed, lower clocks.

Asked for by name only: it loads every device, and needs them free. Products of matrices repeat bit by bit, so
any difference is a fault. Speeds are compared with the lab's other devices (:mod:`hvlab.checks.outliers`) and
with the machine type.
"""

from __future__ import annotations

import json
import pkgutil
from statistics import median
from typing import Any, Dict, List, Mapping

from hvlab.checks.node import smi
from hvlab.checks.node.answers import has_timed_out, is_not_installed, number
from hvlab.checks.node.finding import Finding, hard, judge, passed, skipped, soft
from hvlab.checks.node.gpu_state import slowdown
from hvlab.checks.node.limits import BANDWIDTH, CPU_HELD_BACK

_PROGRAM = (pkgutil.get_data(__package__ or "", "on_all_devices.py") or b"").decode()
_SECONDS, _LIMIT_S = 100, 300
QUESTIONS: Dict[str, Dict[str, Any]] = {
    "burn": {
        "run": ["python3", "-c", _PROGRAM, str(_SECONDS), "/opt/hvlab/*/bin/python"],
        "timeout": _LIMIT_S,
        "alone": True,
    }
}
CHECKS = {"burn ends": "hard", "burn results": "hard", "burn speed": "soft", "burn clocks": "soft"}
SHOWN = ("burn speed",)
UNITS = {
    **dict.fromkeys(("fp32", "tf32", "fp16", "bf16", "fp8"), "TFLOPS"),
    **dict.fromkeys(("memory", "host_to_device", "device_to_host"), "GB/s"),
}
_NAMES = {kind: f"burn_{kind}_{'tflops' if unit == 'TFLOPS' else 'gbyte_s'}" for kind, unit in UNITS.items()}
LEARNED = tuple(_NAMES.values())
MARGIN = dict.fromkeys(LEARNED, BANDWIDTH)

_MISSING = (
    "no Python with torch: role python_env installs one; without an inventory, name yours with --python"
)
_FREE = "see that nothing else runs on the node, then measure again"
_CORRUPT = (
    "take the node out of work: it corrupts data. Run `dcgmi diag -r 3` (GPU) or memtest86+ (CPU), replace it"
)
_SLOW = f"{_FREE}; compare clocks, temperature, power limit and memory modules with a good node's"


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the results as ``burn``, and the slowest device's median by kind; or ``burn_failed``."""
    answer = answers.get("burn")
    if not isinstance(answer, dict) or is_not_installed(answers, "burn"):
        return {}
    if has_timed_out(answers, "burn"):
        return {"burn_failed": f"it did not end within {_LIMIT_S} s"}
    try:
        burn = json.loads(str(answer.get("out", "")))
        devices = {str(name): dict(device) for name, device in burn["devices"].items()}
        speeds = {
            name: min(speed)
            for kind, name in _NAMES.items()
            if (speed := [median(own["rates"][kind]) for own in devices.values() if kind in own["rates"]])
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        words = [line.strip() for line in str(answer.get("err", "")).splitlines() if line.strip()]
        return {"burn_failed": words[-1][:300] if words else f"it ended with {answer.get('rc')}"}
    gpus = [gpu for text in burn.get("smi", []) for gpu in smi.parse(str(text)) or []]
    return {**speeds, "burn": {**burn, "devices": devices, "smi": gpus}}


def findings(readings: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Judge results, speeds and clocks.

    ``expected`` has the limits of the machine type, and of the lab ``burn_slow`` and ``burn_differs``.
    """
    if "burn_failed" in readings:
        remedy = f"{_FREE}. If it fails again, drain the node and run `dcgmi diag -r 3` on it"
        return [hard("burn ends", readings["burn_failed"], remedy)]
    if "burn" not in readings:
        return [skipped(check, _MISSING) for check in CHECKS]
    burn = readings["burn"]
    devices = burn["devices"]
    loaded = ", ".join(f"{name} ({own['model']})" for name, own in devices.items())
    return [
        passed("burn ends", loaded),
        _results(devices, expected.get("burn_differs", ())),
        _judge_speed(readings, expected),
        *_clocks(burn),
    ]


def _results(devices: Mapping[str, Any], differs: Any) -> Finding:
    check = "burn results"
    wrong = [
        f"{name}: {count} wrong values in {kind}"
        for name, own in devices.items()
        for kind, count in own["wrong"].items()
        if count
    ]
    wrong += [
        f"{name}: its {kind} product differs from that of {others} equal devices"
        for name, kind, others in differs
    ]
    if wrong:
        return hard(check, "; ".join(wrong), _CORRUPT)
    return passed(check, "every product and copy was the same, bit by bit")


def _judge_speed(readings: Mapping[str, Any], expected: Mapping[str, Any]) -> Finding:
    check = "burn speed"
    slow = [
        f"{name}: {kind} takes {ratio:.2f} times as long as the median of {others} equal devices"
        for name, kind, ratio, others in expected.get("burn_slow", ())
    ]
    for kind, name in _NAMES.items():
        least, speed = number(expected.get(name)), readings.get(name)
        if least is not None and speed is not None and speed < least:
            slow.append(f"{kind}: {speed:.3g} {UNITS[kind]}, this machine type should reach {least:g}")
    if slow:
        return soft(check, "; ".join(slow), _SLOW)
    reached = ", ".join(
        f"{kind} {readings[name]:.3g} {UNITS[kind]}" for kind, name in _NAMES.items() if name in readings
    )
    if "burn_compared" in expected or any(name in expected for name in LEARNED):
        return passed(check, reached)
    return skipped(check, f"{reached}; no equal device and no machine type to compare with")


def _clocks(burn: Mapping[str, Any]) -> List[Finding]:
    check = "burn clocks"
    if burn["smi"]:
        return judge(check, burn["smi"], slowdown)
    held = burn.get("cpu", {})
    reasons = []
    if held.get("quota", 0) > CPU_HELD_BACK:
        reasons.append(f"a CPU quota (cgroup) stopped it in {held['quota']:.0%} of the periods")
    if held.get("steal", 0) > CPU_HELD_BACK:
        reasons.append(f"the hypervisor took {held['steal']:.0%} of the CPU time")
    if held.get("thermal", 0) > 0:
        reasons.append(f"{held['thermal']:.0f} times a core was slowed down because of its temperature")
    if not reasons:
        return [passed(check, "nothing held the CPUs back")]
    remedy = "raise the quota (CPUQuota= of its unit), move the virtual machine, or look at the cooling"
    return [soft(check, "; ".join(reasons), remedy)]
