"""The PCIe links of GPUs: width and generation.

The width is what the board and the slot trained to, whatever the load. The generation drops when a GPU idles,
to save power, so only the highest one that the link can reach is compared, and the present one under load.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from hvlab.checks.node import smi
from hvlab.checks.node.finding import Fault, Finding, judge

QUESTIONS: Dict[str, Dict[str, Any]] = smi.QUESTION
CHECKS = {"pcie width": "soft", "pcie generation": "soft"}
LEARNED: Tuple[str, ...] = ("pcie_width", "pcie_generation")

_RESEAT = "reseat the GPU and its riser; look for AER errors of the link in the kernel log"
_SLOT = "if the slot has no more lanes, give pcie_width in the machine type"


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``gpus``, and the width and highest generation that all GPUs share."""
    gpus = smi.gpus(answers)
    own = {"pcie_width": "pcie_width", "pcie_generation": "pcie_generation_max"}
    return {"gpus": gpus, **smi.shared(gpus, own)}


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Return the outcome of the checks of every GPU's link; without GPUs there is nothing to say."""
    gpus = values.get("gpus", [])
    if not gpus:
        return []
    return [
        *judge("pcie width", gpus, lambda gpu: _width(gpu, expected.get("pcie_width")), ["pcie_width"]),
        *judge(
            "pcie generation",
            gpus,
            lambda gpu: _generation(gpu, expected.get("pcie_generation")),
            ["pcie_generation_max"],
        ),
    ]


def _width(gpu: Mapping[str, Any], expected: Optional[int]) -> Optional[Fault]:
    width, able = gpu["pcie_width"], gpu.get("pcie_width_max", gpu["pcie_width"])
    if width >= (able if expected is None else expected):
        return None
    if expected is None:
        return Fault("soft", f"x{width}, and the GPU can have x{able}", f"{_RESEAT}; {_SLOT}")
    return Fault("soft", f"x{width} instead of x{expected}", _RESEAT)


def _generation(gpu: Mapping[str, Any], expected: Optional[int]) -> Optional[Fault]:
    able, now = gpu["pcie_generation_max"], gpu.get("pcie_generation", gpu["pcie_generation_max"])
    if expected is not None and able < expected:
        return Fault(
            "soft", f"generation {able} at most, instead of {expected}", f"{_RESEAT}; look at the BIOS"
        )
    if now < able and gpu.get("performance_state") == "P0" and "gpu_idle" not in gpu["clock_reasons"]:
        return Fault("soft", f"generation {now} under load, instead of {able}", _RESEAT)
    return None
