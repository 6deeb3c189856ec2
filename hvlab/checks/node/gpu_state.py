"""The state of GPUs: memory errors and repairs; lost, slowed down, too hot, limited.

Severities: Azure's node health check fails on uncorrected errors in SRAM, on pending and on failed remapping,
and only warns of a GPU that is slowed down (https://github.com/Azure/azurehpc-health-checks, customTests:
azure_gpu_ecc.nhc, azure_gpu_clock_throttling.nhc). NVIDIA says of a pending remapping that work goes on
unharmed until the next reset, so it is soft here, as is a contained error in DRAM
(https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html). The power cap
and idling are how a GPU works, not faults.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Optional

from hvlab.checks.node.finding import Fault, Finding, judge
from hvlab.checks.node.limits import PAGES_RETIRED

_RESET = "stop the jobs on it and reset it: nvidia-smi --gpu-reset -i INDEX"
_REPLACE = "drain the node and have the GPU replaced (NVIDIA's field diagnostic first)"


def memory(gpus: List[Mapping[str, Any]]) -> List[Finding]:
    """Return the outcome of every check of the GPUs' memory."""
    errors = ["sram_uncorrected_volatile", "dram_uncorrected_volatile"]
    return [
        *judge("gpu ECC errors", gpus, _errors, errors),
        *judge("gpu row remapping", gpus, _remapping, ["row_remap_pending", "row_remap_failure"]),
        *judge("gpu retired pages", gpus, _pages, ["pages_single_bit", "pages_double_bit"]),
    ]


def _errors(gpu: Mapping[str, Any]) -> Optional[Fault]:
    sram, dram = gpu.get("sram_uncorrected_volatile", 0), gpu.get("dram_uncorrected_volatile", 0)
    if gpu.get("sram_threshold_exceeded") or gpu.get("unrepairable_memory"):
        return Fault("hard", "the GPU itself reports memory beyond repair", _REPLACE)
    if sram:
        return Fault(
            "hard",
            f"{sram} uncorrected ECC errors in SRAM since the driver was loaded",
            f"{_RESET}; if it comes again, {_REPLACE}",
        )
    if dram:
        # With row remapping the error was contained and the row is replaced; without, the page stays in use.
        severity = "soft" if "row_remap_failure" in gpu else "hard"
        return Fault(severity, f"{dram} uncorrected ECC errors in DRAM since the driver was loaded", _RESET)
    lifetime = gpu.get("sram_uncorrected_aggregate", 0)
    if lifetime:
        return Fault("soft", f"{lifetime} uncorrected ECC errors in SRAM in its life", "run: dcgmi diag -r 3")
    return None


def _remapping(gpu: Mapping[str, Any]) -> Optional[Fault]:
    if gpu.get("row_remap_failure"):
        return Fault("hard", "a row could not be remapped", _REPLACE)
    if gpu.get("row_remap_pending"):
        return Fault("soft", "a row is marked for remapping at the next reset", _RESET)
    if gpu.get("channel_repair_pending") or gpu.get("tpc_repair_pending"):
        return Fault("soft", "a repair is pending until the next reset", _RESET)
    return None


def _pages(gpu: Mapping[str, Any]) -> Optional[Fault]:
    retired = gpu.get("pages_single_bit", 0) + gpu.get("pages_double_bit", 0)
    if retired >= PAGES_RETIRED:
        return Fault("hard", f"{retired} pages retired: the table is full", _REPLACE)
    if gpu.get("pages_pending"):
        return Fault("soft", "a page is to be retired at the next reset", _RESET)
    return None


_RECOVERY = {
    "Reset": "stop the jobs on it and reset it: nvidia-smi --gpu-reset -i INDEX",
    "Reboot": "reboot the node",
    "Drain P2P": "stop all jobs that move data between GPUs, then look at gpu_recovery_action again",
    "Drain and Reset": "let the jobs on it end, then reset it: nvidia-smi --gpu-reset -i INDEX",
}
_COOLING = "look at fans, air flow and the GPU's heat sink"
_REASONS = (
    ("hw_thermal_slowdown", "the hardware slows it down because of its temperature", _COOLING),
    ("hw_power_brake_slowdown", "the power brake slows it down", "look at power supplies and power cables"),
    ("hw_slowdown", "the hardware slows it down", "look at temperature, power supplies and power cables"),
    ("sw_thermal_slowdown", "the driver slows it down because of its temperature", _COOLING),
)


def running(gpus: List[Mapping[str, Any]], expected: Mapping[str, Any]) -> List[Finding]:
    """Return the outcome of every check of how the GPUs run."""
    return [
        *judge("gpu recovery", gpus, _recovery),
        *judge("gpu slowdown", gpus, slowdown),
        *judge("gpu temperature", gpus, _temperature, ["temperature_slowdown_c", "margin_slowdown_c"]),
        *judge("gpu power limit", gpus, lambda gpu: _power(gpu, expected), ["power_limit_w"]),
        *judge("gpu clocks", gpus, lambda gpu: _clocks(gpu, expected), ["clock_max_mhz"]),
    ]


def _recovery(gpu: Mapping[str, Any]) -> Optional[Fault]:
    for text in gpu["broken"]:
        if text in ("GPU is lost", "GPU requires reset"):
            remedy = "reboot the node" if text == "GPU is lost" else _RECOVERY["Reset"]
            return Fault(
                "hard", f"the driver says: {text}", f"{remedy}; if it comes back, have the GPU replaced"
            )
    action = gpu.get("recovery_action", "None")
    if gpu.get("reset_required"):
        action = "Reset"
    elif gpu.get("drain_recommended"):
        action = "Drain and Reset"
    if action != "None":
        return Fault("hard", f"the driver asks for: {action}", _RECOVERY.get(action, "do what it says"))
    if gpu["broken"]:
        whole = "uuid" in gpu or "memory_mib" in gpu
        return Fault(
            "soft" if whole else "hard",
            f"{'some' if whole else 'its'} values cannot be read: {', '.join(gpu['broken'])}",
            "look for NVRM in the kernel log (journalctl -k), and reset the GPU",
        )
    return None


def slowdown(gpu: Mapping[str, Any]) -> Optional[Fault]:
    for reason, text, remedy in _REASONS:
        if reason in gpu["clock_reasons"]:
            return Fault("soft", text, remedy)
    return None


def _temperature(gpu: Mapping[str, Any]) -> Optional[Fault]:
    """Compare with the GPU's own limit: a temperature, or the margin that newer GPUs count down."""
    now, limit = gpu.get("temperature_c"), gpu.get("temperature_slowdown_c")
    if now is not None and limit is not None and now >= limit:
        return Fault("soft", f"{now} C, and it slows down from {limit} C on", _COOLING)
    margin, end = gpu.get("margin_c"), gpu.get("margin_slowdown_c")
    if margin is not None and end is not None and margin <= end:
        return Fault("soft", f"its margin is {margin} C, and it slows down from {end} C on", _COOLING)
    return None


def _power(gpu: Mapping[str, Any], expected: Mapping[str, Any]) -> Optional[Fault]:
    limit = gpu["power_limit_w"]
    target = expected.get("gpu_power_limit_w", gpu.get("power_limit_default_w", limit))
    if limit >= target:
        return None
    return Fault("soft", f"limited to {limit} W instead of {target} W", f"nvidia-smi -pl {target}")


def _clocks(gpu: Mapping[str, Any], expected: Mapping[str, Any]) -> Optional[Fault]:
    application, default = gpu.get("clock_application_mhz"), gpu.get("clock_application_default_mhz")
    if application is not None and default is not None and application < default:
        return Fault("soft", f"application clock {application} MHz instead of {default}", "nvidia-smi -rac")
    target = expected.get("gpu_clock_max_mhz", gpu["clock_max_mhz"])
    if gpu["clock_max_mhz"] < target:
        return Fault("soft", f"at most {gpu['clock_max_mhz']} MHz instead of {target}", "nvidia-smi -rgc")
    return None
