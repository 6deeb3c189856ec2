"""What ``nvidia-smi -q -x`` says of each GPU, as plain values; made for drivers 418 to 595.

Elements were renamed over the years, so every value has all its places, newest first. What the driver does
not know (``N/A``) is absent. Names of processes can hold any character, so their blocks go first.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple
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
    r"^(|\[?N/A\]?|\[?Not Supported\]?|Insufficient Permissions|Requested functionality.*)$",
    re.IGNORECASE,
)
# Texts instead of a value when the driver has lost its grip on the GPU.
_BROKEN = re.compile(r"^\[?(GPU is lost|GPU requires reset|Unknown Error|ERR!)\]?$", re.IGNORECASE)
_NUMBER = re.compile(r"^(-?\d+(?:\.\d+)?)(?:\s*(?:x|%|C|W|MHz|MiB|us|KB/s))?$")
_END = "</nvidia_smi_log>"
_DOMAIN = re.compile(r"^0000(?=[0-9a-f]{4}:)")


def _text(value: str) -> str:
    return value


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

# Name of the value, how it is read, its places.
_VALUES: Tuple[Tuple[str, Reader, Tuple[str, ...]], ...] = (
    ("model", _text, ("product_name",)),
    ("serial_number", _text, ("./serial",)),
    ("uuid", _text, ("uuid",)),
    ("persistence_mode", _text, ("persistence_mode",)),
    ("compute_mode", _text, ("compute_mode",)),
    ("mig_mode", _text, ("mig_mode/current_mig",)),
    ("mig_mode_pending", _text, ("mig_mode/pending_mig",)),
    ("ecc_mode", _text, ("ecc_mode/current_ecc",)),
    ("ecc_mode_pending", _text, ("ecc_mode/pending_ecc",)),
    ("memory_mib", _number, ("fb_memory_usage/total",)),
    ("recovery_action", _text, ("gpu_recovery_action",)),
    ("reset_required", _flag, ("gpu_reset_status/reset_required",)),
    ("drain_recommended", _flag, ("gpu_reset_status/drain_and_reset_recommended",)),
    ("pcie_width", _number, ("pci/pci_gpu_link_info/link_widths/current_link_width",)),
    ("pcie_width_max", _number, ("pci/pci_gpu_link_info/link_widths/max_link_width",)),
    ("pcie_generation", _number, ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",)),
    ("pcie_generation_max", _number, ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",)),
    ("performance_state", _text, ("performance_state",)),
    (
        "power_limit_w",
        _number,
        (
            "gpu_power_readings/current_power_limit",
            "gpu_power_readings/power_limit",
            "power_readings/power_limit",
        ),
    ),
    (
        "power_limit_default_w",
        _number,
        ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
    ),
    ("clock_max_mhz", _number, ("max_clocks/sm_clock",)),
    ("clock_application_mhz", _number, ("applications_clocks/graphics_clock",)),
    ("clock_application_default_mhz", _number, ("default_applications_clocks/graphics_clock",)),
    ("temperature_c", _number, ("temperature/gpu_temp",)),
    ("temperature_slowdown_c", _number, ("temperature/gpu_temp_slow_threshold",)),
    ("margin_c", _number, ("temperature/gpu_temp_tlimit",)),
    ("margin_slowdown_c", _number, ("temperature/gpu_temp_slow_tlimit_threshold",)),
    ("row_remap_pending", _flag, ("remapped_rows/remapped_row_pending",)),
    ("row_remap_failure", _flag, ("remapped_rows/remapped_row_failure",)),
    ("rows_remapped", _number, ("remapped_rows/remapped_row_unc",)),
    ("pages_single_bit", _number, ("retired_pages/multiple_single_bit_retirement/retired_count",)),
    ("pages_double_bit", _number, ("retired_pages/double_bit_retirement/retired_count",)),
    ("pages_pending", _flag, ("retired_pages/pending_retirement", "retired_pages/pending_blacklist")),
    ("sram_threshold_exceeded", _flag, ("ecc_errors/aggregate/sram_threshold_exceeded",)),
    ("unrepairable_memory", _flag, ("ecc_errors/unrepairable_memory",)),
    ("channel_repair_pending", _flag, ("ecc_errors/channel_repair_pending",)),
    ("tpc_repair_pending", _flag, ("ecc_errors/tpc_repair_pending",)),
    ("fabric_state", _text, ("fabric/state",)),
    ("fabric_status", _text, ("fabric/status",)),
    ("fabric_health", _text, ("fabric/health/summary",)),
    ("fabric_bandwidth", _text, ("fabric/health/bandwidth",)),
    ("fabric_route_unhealthy", _flag, ("fabric/health/route_unhealthy",)),
    ("fabric_configuration", _text, ("fabric/health/incorrect_configuration",)),
)

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


def _first(element: ElementTree.Element, places: Tuple[str, ...], read: Reader) -> Any:
    for place in places:
        text = (element.findtext(place) or "").strip()
        if not _UNKNOWN.match(text) and not _BROKEN.match(text):
            return read(text)
    return None


def _uncorrected(element: ElementTree.Element, period: str) -> Dict[str, Any]:
    """Return uncorrected errors in SRAM and DRAM; drivers say them in two layouts."""
    counts = f"ecc_errors/{period}"
    sram = [_first(element, (f"{counts}/{name}",), _number) for name in _SRAM]
    dram = _first(element, (f"{counts}/dram_uncorrectable", f"{counts}/double_bit/device_memory"), _number)
    total = _first(element, (f"{counts}/double_bit/total",), _number)
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
        reason for reason in _REASONS if _first(element, tuple(prefix + reason for prefix in prefixes), _flag)
    ]


def _gpu(index: int, element: ElementTree.Element) -> Gpu:
    gpu: Gpu = {"index": index, "address": address(element.get("id") or "")}
    for name, read, places in _VALUES:
        value = _first(element, places, read)
        if value is not None:
            gpu[name] = value
    # Here such a text is a value: what became of the registration that has ended.
    status = (element.findtext("fabric/status") or "").strip()
    if _BROKEN.match(status):
        gpu["fabric_status"] = status
    gpu.update(_uncorrected(element, "volatile"))
    gpu.update(_uncorrected(element, "aggregate"))
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
    """Return the GPUs of the answer to ``QUESTION``; none where there is none to read."""
    answer = answers.get(NAME)
    text = answer.get("out") if isinstance(answer, dict) else None
    return (parse(text) or []) if isinstance(text, str) else []


def name(gpu: Mapping[str, Any]) -> str:
    """Name a GPU by all that a person may look for: index, PCI address, serial number or else UUID."""
    serial = f"serial {gpu['serial_number']}" if "serial_number" in gpu else gpu.get("uuid", "")
    return f"GPU {gpu['index']} ({', '.join(part for part in (gpu['address'], serial) if part)})"
