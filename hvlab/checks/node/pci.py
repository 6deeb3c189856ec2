"""NVIDIA's devices on the PCI bus, whether its driver knows them or not."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from hvlab.checks.node import smi
from hvlab.checks.node.answers import files

_NAME, _VIRTUAL = "gpu pci devices", "gpu virtual functions"
# A container sees the devices of its host, which are none of its own: systemd's, Docker's, Podman's, a pod's.
_CONTAINERS: Dict[str, Dict[str, Any]] = {
    "gpu container systemd": {"read": "/run/systemd/container"},
    "gpu container docker": {"read": "/.dockerenv"},
    "gpu container podman": {"read": "/run/.containerenv"},
    # containerd leaves no mark of its own.
    "gpu container kubernetes": {"read": "/var/run/secrets/kubernetes.io/serviceaccount/namespace"},
}
QUESTION: Dict[str, Dict[str, Any]] = {
    _NAME: {"read": "/sys/bus/pci/devices/*/uevent"},
    # A GPU shared among virtual machines has functions for them, which link to it.
    _VIRTUAL: {"stat": "/sys/bus/pci/devices/*/physfn"},
    **_CONTAINERS,
}

# Classes of https://pci-ids.ucw.cz/read/PD, as uevent writes them: VGA and 3D controllers; other bridges,
# which of NVIDIA's are NVSwitches.
GPU = ("30000", "30200")
NVSWITCH = ("68000",)


def is_in_container(answers: Mapping[str, Any]) -> bool:
    """Whether the answers come from a container."""
    return any(files(answers, name) for name in _CONTAINERS)


def addresses(
    answers: Mapping[str, Any], classes: Tuple[str, ...], drivers: Optional[Tuple[str, ...]] = None
) -> List[str]:
    """Return the addresses of NVIDIA's devices of some classes, but of those handed to a virtual machine.

    With ``drivers`` only of those that one of these has; "" is a device without a driver.
    """
    shown: List[str] = []
    if is_in_container(answers):
        return shown
    links = answers.get(_VIRTUAL)
    virtual = {path.rpartition("/")[0] for path in links} if isinstance(links, dict) else set()
    for path, text in files(answers, _NAME).items():
        if path.rpartition("/")[0] in virtual:
            continue
        values = dict(line.partition("=")[::2] for line in text.splitlines())
        nvidia, driver = values.get("PCI_ID", "").upper().startswith("10DE:"), values.get("DRIVER", "")
        usable = driver in drivers if drivers else driver != "vfio-pci"
        if nvidia and values.get("PCI_CLASS") in classes and usable:
            shown.append(smi.address(values.get("PCI_SLOT_NAME", "")))
    return sorted(shown)
