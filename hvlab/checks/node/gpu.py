"""GPUs: is each there, of the right kind and set up as it should be; and is none broken?"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from hvlab.checks.node import gpu_state, pci, smi, xid
from hvlab.checks.node.answers import has_timed_out, is_not_installed
from hvlab.checks.node.finding import Fault, Finding, hard, judge, passed, skipped, soft
from hvlab.checks.node.limits import GPU_MEMORY

QUESTIONS: Dict[str, Dict[str, Any]] = {**smi.QUESTION, **pci.QUESTION, **xid.LOG}
CHECKS = {
    "gpu driver": "hard",
    "gpu count": "hard",
    "gpu model": "hard",
    "gpu memory": "hard",
    "gpu persistence mode": "soft",
    "gpu compute mode": "hard",
    "gpu ECC mode": "hard",
    "gpu MIG mode": "hard",
    "gpu infoROM": "soft",
    "gpu ECC errors": "hard",
    "gpu row remapping": "hard",
    "gpu retired pages": "hard",
    "gpu recovery": "hard",
    "gpu slowdown": "soft",
    "gpu temperature": "soft",
    "gpu power limit": "soft",
    "gpu clocks": "soft",
}
LEARNED: Tuple[str, ...] = (
    "gpu_count",
    "gpu_model",
    "gpu_memory_mib",
    "gpu_power_limit_w",
    "gpu_clock_max_mhz",
    "gpu_ecc_mode",
    "gpu_mig_mode",
    "gpu_compute_mode",
)

_NO_PROGRAM = "nvidia-smi is not installed"
_REBOOT = "look for NVRM in the kernel log (journalctl -k), then reboot the node"
_REMEDIES = (
    ("version mismatch", "the driver was updated but not loaded: reboot, or load the nvidia modules again"),
    (
        "communicate with the NVIDIA driver",
        "modprobe nvidia; if this kernel has no such module, install the driver",
    ),
    ("libnvidia-ml.so", "install the libraries of the loaded driver, then run ldconfig"),
    ("insufficiently powered", "power the node off and look at the GPU's power cables"),
)
# With the index or without, with a blank or without, in capitals or not: drivers word it in many ways.
_HANDLE = re.compile(r"device handle for GPU ?(?:\d+: )?([0-9A-F]+:[0-9A-F:]+\.[0-9A-F])", re.IGNORECASE)
_INFOROM = re.compile(r"infoROM is corrupted at gpu ([0-9A-Fa-f:.]+)", re.IGNORECASE)
_RESET = "reset the GPU: nvidia-smi --gpu-reset"


def _driver_error(answers: Mapping[str, Any]) -> Optional[str]:
    answer = answers.get(smi.NAME)
    if not isinstance(answer, dict):
        return None
    text = str(answer.get("out", ""))
    if smi.parse(text) is not None:
        return None
    if is_not_installed(answers, smi.NAME):
        return _NO_PROGRAM
    if has_timed_out(answers, smi.NAME):
        return f"nvidia-smi gave no answer within {smi.TIMEOUT_S} s"
    if text.lstrip().startswith("<?xml"):
        return f"nvidia-smi ended with {answer.get('rc')}, and its report is cut off"
    lines = (text + "\n" + str(answer.get("err", ""))).strip().splitlines()
    return f"nvidia-smi: {lines[0].strip()}" if lines else "nvidia-smi printed nothing"


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``gpus``, ``gpu_bus``, what went wrong, and values that all GPUs share.

    ``gpu_bus_free`` are those on the bus that no other driver than NVIDIA's has, ``gpu_unsupported`` those
    that NVIDIA's does not support.
    """
    answer = answers.get(smi.NAME)
    gpus = smi.gpus(answers)
    text = f"{answer.get('out', '')}\n{answer.get('err', '')}" if isinstance(answer, dict) else ""
    values: Dict[str, Any] = {
        "gpus": gpus,
        "gpu_bus": pci.addresses(answers, pci.GPU),
        "gpu_bus_free": pci.addresses(answers, pci.GPU, drivers=("", "nvidia")),
        "gpu_unsupported": xid.find_unsupported(answers),
        "gpu_container": pci.is_in_container(answers),
        "gpu_no_handle": sorted(map(smi.address, _HANDLE.findall(text))),
        "gpu_inforom_corrupted": sorted(map(smi.address, _INFOROM.findall(text))),
    }
    error = _driver_error(answers)
    if error:
        values["gpu_driver_error"] = error
    if gpus:
        values["gpu_count"] = len(gpus)
    values.update(smi.shared(gpus, {name: name[len("gpu_") :] for name in LEARNED[1:]}))
    return values


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Return the outcome of every check of the GPUs."""
    gpus = values.get("gpus", [])
    driver = _driver(values, expected)
    if not gpus:
        return [driver]
    return [
        driver,
        _count(values, expected),
        *_kind(gpus, expected),
        *_modes(gpus, expected),
        _inforom(values),
        *gpu_state.memory(gpus),
        *gpu_state.running(gpus, expected),
    ]


def _driver(values: Mapping[str, Any], expected: Mapping[str, Any]) -> Finding:
    check, bus = "gpu driver", values.get("gpu_bus", [])
    error = values.get("gpu_driver_error", "")
    # An image for all nodes has the driver where there is no GPU. A container does not show its bus.
    none_here = not bus and not expected.get("gpu_count") and not values.get("gpu_container")
    shown = ", ".join(bus) or "no GPU"
    if values.get("gpu_no_handle"):
        lost = ", ".join(values["gpu_no_handle"])
        replace = f"{_REBOOT}; if it comes back, reseat or replace the GPU"
        return hard(check, f"the driver has lost {lost}", _driver_remedy(error, replace))
    if error == _NO_PROGRAM:
        return _no_driver(shown if bus else "", expected=bool(expected.get("gpu_count")))
    if none_here and not values.get("gpus"):
        return skipped(check, f"no NVIDIA GPU on the PCI bus{error and f'; {error}'}")
    if error:
        return hard(check, f"{error}; on the PCI bus: {shown}", _driver_remedy(error))
    if not values.get("gpus"):
        return hard(check, f"the driver shows no GPU; on the PCI bus: {shown}", _REBOOT)
    return passed(check, "answers")


def _no_driver(shown: str, *, expected: bool) -> Finding:
    check = "gpu driver"
    if shown:
        fault = hard if expected else soft
        return fault(check, f"{_NO_PROGRAM}, and on the PCI bus is {shown}", "install NVIDIA's driver")
    if expected:
        return hard(check, "no NVIDIA GPU on the PCI bus", "power the node off and on, then reseat the GPUs")
    return skipped(check, "no NVIDIA GPU on the PCI bus")


def _driver_remedy(error: str, otherwise: str = _REBOOT) -> str:
    return next((remedy for text, remedy in _REMEDIES if text in error), otherwise)


def _count(values: Mapping[str, Any], expected: Mapping[str, Any]) -> Finding:
    check, gpus = "gpu count", values["gpus"]
    addresses = [gpu["address"] for gpu in gpus]
    hidden = [address for address in values.get("gpu_bus_free", []) if address not in addresses]
    target = expected.get("gpu_count", len(gpus))
    # A card for a display, say, that this driver is too new for.
    unfit = set(hidden) <= set(values.get("gpu_unsupported", []))
    if hidden and len(gpus) >= target and (unfit or "gpu_count" in expected):
        observed = f"{len(gpus)} GPUs; on the PCI bus, and not driven: {', '.join(hidden)}"
        return soft(check, observed, "install a driver that supports it too, or take it out")
    if hidden:
        observed = f"{len(gpus)} GPUs; on the PCI bus, but not shown by the driver: {', '.join(hidden)}"
        return hard(check, observed, f"{_REBOOT}; if the GPU stays away, reseat or replace it")
    if len(gpus) < target:
        observed = f"{len(gpus)} GPUs instead of {target}: {', '.join(addresses)}"
        return hard(check, observed, "power the node off and on; if the GPU stays away, reseat or replace it")
    if len(gpus) > target:
        return soft(check, f"{len(gpus)} GPUs instead of {target}", "correct gpu_count of the machine type")
    return passed(check, str(len(gpus)))


def _kind(gpus: List[smi.Gpu], expected: Mapping[str, Any]) -> List[Finding]:
    def model(gpu: Mapping[str, Any]) -> Optional[Fault]:
        if gpu["model"] == expected.get("gpu_model", gpu["model"]):
            return None
        return Fault(
            "hard",
            f"{gpu['model']} instead of {expected['gpu_model']}",
            "replace the GPU, or correct gpu_model of the machine type",
        )

    def memory(gpu: Mapping[str, Any]) -> Optional[Fault]:
        size = expected.get("gpu_memory_mib")
        if size is None or gpu["memory_mib"] >= GPU_MEMORY * size:
            return None
        return Fault(
            "hard",
            f"{gpu['memory_mib']} MiB of memory instead of {size}",
            "look for Xid 168 and row remapping, reset the GPU; if it stays, have it replaced",
        )

    return [*judge("gpu model", gpus, model, ["model"]), *judge("gpu memory", gpus, memory, ["memory_mib"])]


def _modes(gpus: List[smi.Gpu], expected: Mapping[str, Any]) -> List[Finding]:
    def persistence(gpu: Mapping[str, Any]) -> Optional[Fault]:
        if gpu["persistence_mode"] != "Disabled":
            return None
        return Fault("soft", "persistence mode is off", "start nvidia-persistenced, or: nvidia-smi -pm 1")

    def compute(gpu: Mapping[str, Any]) -> Optional[Fault]:
        mode = gpu["compute_mode"]
        if mode == "Prohibited":
            return Fault("hard", "compute mode Prohibited: nothing may use it", "nvidia-smi -c DEFAULT")
        target = expected.get("gpu_compute_mode", mode)
        return (
            None
            if mode == target
            else Fault("soft", f"compute mode {mode}", f"set it to {target} (nvidia-smi -c)")
        )

    def switch(name: str, option: str, title: str) -> List[Finding]:
        def fault(gpu: Mapping[str, Any]) -> Optional[Fault]:
            mode, pending = gpu[name], gpu.get(f"{name}_pending", gpu[name])
            target = expected.get(f"gpu_{name}", mode)
            if mode != target:
                number = int(target == "Enabled")
                return Fault(
                    "hard", f"{title} mode is {mode}", f"nvidia-smi {option} {number}, then reset the GPU"
                )
            if mode != pending:
                return Fault(
                    "soft", f"{title} mode {pending} is pending", "reset the GPU: nvidia-smi --gpu-reset"
                )
            return None

        return judge(f"gpu {title} mode", gpus, fault, [name])

    return [
        *judge("gpu persistence mode", gpus, persistence, ["persistence_mode"]),
        *judge("gpu compute mode", gpus, compute, ["compute_mode"]),
        *switch("ecc_mode", "-e", "ECC"),
        *switch("mig_mode", "-mig", "MIG"),
    ]


def _inforom(values: Mapping[str, Any]) -> Finding:
    corrupted = set(values.get("gpu_inforom_corrupted", []))
    which = [smi.name(gpu) for gpu in values["gpus"] if gpu["address"] in corrupted]
    if corrupted:
        return soft(
            "gpu infoROM",
            f"corrupted: {', '.join(which) or ', '.join(sorted(corrupted))}",
            "reset the GPU; if it stays, have the GPU replaced",
        )
    return passed("gpu infoROM")
