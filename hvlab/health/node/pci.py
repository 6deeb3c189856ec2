"""NVIDIA's devices on the PCI bus, whether its driver knows them or not."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from hvlab.health.node import smi
from hvlab.health.node.answers import files

_NAME, _CONTAINER = "gpu pci devices", "gpu container"
QUESTION: Dict[str, Dict[str, Any]] = {
    _NAME: {"read": "/sys/bus/pci/devices/*/uevent"},
    # A container sees the devices of its host, which are none of its own.
    _CONTAINER: {"read": "/run/systemd/container"},
}

# Classes of https://pci-ids.ucw.cz/read/PD, as uevent writes them: VGA and 3D controllers; other bridges,
# which of NVIDIA's are NVSwitches.
GPU = ("30000", "30200")
NVSWITCH = ("68000",)


def addresses(answers: Mapping[str, Any], classes: Tuple[str, ...]) -> List[str]:
    """Return the addresses of NVIDIA's devices of some classes, but of those handed to a virtual machine."""
    shown: List[str] = []
    if files(answers, _CONTAINER):
        return shown
    for text in files(answers, _NAME).values():
        values = dict(line.partition("=")[::2] for line in text.splitlines())
        nvidia = values.get("PCI_ID", "").upper().startswith("10DE:")
        if nvidia and values.get("PCI_CLASS") in classes and values.get("DRIVER") != "vfio-pci":
            shown.append(smi.address(values.get("PCI_SLOT_NAME", "")))
    return sorted(shown)
