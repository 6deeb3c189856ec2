"""Plain values of each GPU from ``nvidia-smi -q -x``; made for drivers 418 to 595.

Elements were renamed over the years, so every value has all its places, newest first. What the driver does
not know (``N/A``) is absent. Names of processes can hold any character, so their blocks go first.
"""

from __future__ import annotations

import json
import pkgutil
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence
from xml.etree import ElementTree

Gpu = Dict[str, Any]

NAME = "gpu nvidia-smi"
# Without persistence mode each GPU is initialised first, which takes 25 to 30 s for eight A100.
# https://github.com/Azure/aks-gpu/pull/105, https://github.com/Azure/AgentBaker/pull/2829
TIMEOUT_S = 45
QUESTION: Dict[str, Dict[str, Any]] = {NAME: {"run": ["nvidia-smi", "-q", "-x"], "timeout": TIMEOUT_S}}

# Blocks that no check needs.
_UNUSED = re.compile(
    r"<(processes|accounted_processes|supported_clocks|mig_devices)\b[^>]*(?<!/)>.*?</\1>", re.DOTALL
)
_UNKNOWN = re.compile(
    r"^(|\[?N/A\]?|\[?Not Supported\]?|Insufficient Permissions|Requested functionality.*)$", re.IGNORECASE
)
# Texts instead of a value when the driver has lost its grip on the GPU.
_BROKEN = re.compile(r"^\[?(GPU is lost|GPU requires reset|Unknown Error|ERR!)\]?$", re.IGNORECASE)
_NUMBER = re.compile(r"^(-?\d+(?:\.\d+)?)(?:\s*(?:x|%|C|W|MHz|MiB|us|KB/s))?$")
_END = "</nvidia_smi_log>"
_DOMAIN = re.compile(r"^0000(?=[0-9a-f]{4}:)")


def _number(value: str) -> Optional[float]:
    match = _NUMBER.match(value)
    if not match:
        return None
    number = float(match.group(1))
    return int(number) if number == int(number) else number


def _flag(value: str) -> Optional[bool]:
    return {"yes": True, "no": False, "active": True, "not active": False, "true": True, "false": False}.get(
        value.lower()
    )


Reader = Callable[[str], Any]

_READERS: Dict[str, Reader] = {"text": str, "number": _number, "flag": _flag}
# Name of the value -> how it is read, its places.
_VALUES: Dict[str, List[str]] = json.loads(pkgutil.get_data(__package__ or "", "smi.json") or b"")

_SRAM = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
_REASONS = (
    "gpu_idle",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
)


def address(text: str) -> str:
    """Write a PCI address as the kernel does: ``00000000:3B:00.0`` is ``0000:3b:00.0``."""
    return _DOMAIN.sub("", text.strip().lower())


def _read_first(element: ElementTree.Element, places: Sequence[str], read: Reader) -> Any:
    for place in places:
        text = (element.findtext(place) or "").strip()
        if not _UNKNOWN.match(text) and not _BROKEN.match(text):
            return read(text)
    return None


def _read_uncorrected(element: ElementTree.Element, period: str) -> Dict[str, Any]:
    """Return uncorrected errors in SRAM and DRAM; drivers report them in two layouts."""
    counts = f"ecc_errors/{period}"
    sram = [_read_first(element, (f"{counts}/{name}",), _number) for name in _SRAM]
    dram = _read_first(
        element, (f"{counts}/dram_uncorrectable", f"{counts}/double_bit/device_memory"), _number
    )
    total = _read_first(element, (f"{counts}/double_bit/total",), _number)
    known = [count for count in sram if count is not None]
    values = {f"sram_uncorrected_{period}": sum(known) if known else None, f"dram_uncorrected_{period}": dram}
    if total is not None:
        values[f"sram_uncorrected_{period}"] = total - (dram or 0)
    return {name: value for name, value in values.items() if value is not None}


def _active(element: ElementTree.Element) -> List[str]:
    """Return the reasons for lower clocks which hold now (named "throttle" before driver 535)."""
    prefixes = (
        "clocks_event_reasons/clocks_event_reason_",
        "clocks_throttle_reasons/clocks_throttle_reason_",
    )
    return [
        reason
        for reason in _REASONS
        if _read_first(element, tuple(prefix + reason for prefix in prefixes), _flag)
    ]


def _gpu(index: int, element: ElementTree.Element) -> Gpu:
    gpu: Gpu = {"index": index, "address": address(element.get("id") or "")}
    for name, (reader, *places) in _VALUES.items():
        value = _read_first(element, places, _READERS[reader])
        if value is not None:
            gpu[name] = value
    # Here such a text is a value: what became of the registration that has ended.
    status = (element.findtext("fabric/status") or "").strip()
    if _BROKEN.match(status):
        gpu["fabric_status"] = status
    gpu.update(_read_uncorrected(element, "volatile"))
    gpu.update(_read_uncorrected(element, "aggregate"))
    gpu["clock_reasons"] = _active(element)
    matches = (_BROKEN.match(text.strip()) for text in element.itertext())
    gpu["broken"] = sorted({match.group(1) for match in matches if match})
    return gpu


def parse(text: str) -> Optional[List[Gpu]]:
    """Return the GPUs in the order of their index, or nothing where the text is no report of nvidia-smi.

    A report that declares entities is refused: nvidia-smi's never does, and they could expand without end.
    """
    start, end = text.find("<nvidia_smi_log"), text.rfind(_END)
    if start < 0 or end < start or "<!ENTITY" in text:
        return None
    try:
        root = ElementTree.fromstring(_UNUSED.sub("", text[start : end + len(_END)]))  # noqa: S314
    except (ElementTree.ParseError, ValueError, RecursionError):
        return None
    return [_gpu(index, element) for index, element in enumerate(root.findall("gpu"))]


def gpus(answers: Mapping[str, Any]) -> List[Gpu]:
    """Return the GPUs of the answer to ``QUESTION``; none if it cannot be read."""
    answer = answers.get(NAME)
    text = answer.get("out") if isinstance(answer, dict) else None
    return (parse(text) or []) if isinstance(text, str) else []


def shared(gpus: Sequence[Gpu], values: Mapping[str, str]) -> Dict[str, Any]:
    """Return the values that all GPUs have in common; ``values`` maps their names there to those of a GPU."""
    distinct = {name: {gpu.get(own) for gpu in gpus} for name, own in values.items()}
    return {name: each.pop() for name, each in distinct.items() if len(each) == 1 and None not in each}


def name(gpu: Mapping[str, Any]) -> str:
    """Name a GPU by all that a person may look for: index, PCI address, serial number or else UUID."""
    serial = f"serial {gpu['serial_number']}" if "serial_number" in gpu else gpu.get("uuid", "")
    return f"GPU {gpu['index']} ({', '.join(part for part in (gpu['address'], serial) if part)})"
