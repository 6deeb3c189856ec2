"""The memory of GPUs: uncorrected errors, rows remapped, pages retired.

Severities: Azure's node health check fails on uncorrected errors in SRAM, on pending and on failed remapping
(https://github.com/Azure/azurehpc-health-checks, customTests/azure_gpu_ecc.nhc). NVIDIA says of a pending one
that work goes on unharmed until the next reset, so here it is soft, as a contained error in DRAM is
(https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html).
"""

from __future__ import annotations

from typing import Any, List, Mapping, Optional

from hvlab.checks.node.finding import Finding
from hvlab.checks.node.limits import PAGES_RETIRED
from hvlab.checks.node.per_gpu import Fault, judge

_RESET = "stop the jobs on it and reset it: nvidia-smi --gpu-reset -i INDEX"
_REPLACE = "drain the node and have the GPU replaced (NVIDIA's field diagnostic first)"


def findings(gpus: List[Mapping[str, Any]]) -> List[Finding]:
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
        return Fault(
            "soft",
            f"{lifetime} uncorrected ECC errors in SRAM in its life",
            "run: dcgmi diag -r 3",
        )
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
