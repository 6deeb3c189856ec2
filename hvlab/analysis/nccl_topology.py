"""What NCCL's own topology file (NCCL_TOPO_DUMP_FILE) says of a host's GPUs, links and network cards. Pure.

Source of the format: NCCL, src/graph/xml.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

from hvlab.base.errors import UsageError

# A transport over sockets names its interface, one over verbs its device.
_INTERFACE = re.compile("(bond|en|eth|ib|vlan)")
_SPEED = re.compile(r"([\d.]+) GT/s")
_SWITCH = "0x0680"
# Bus address, element and PCIe link of a GPU.
_Gpu = tuple[str, ElementTree.Element, str]


def facts(text: str) -> dict[str, Any]:
    """Return the facts of a host, as module hvlab_facts gathers them. Raises UsageError."""
    root = ElementTree.Element("none")
    if "<!ENTITY" not in text:
        with suppress(ElementTree.ParseError, ValueError, RecursionError):
            root = ElementTree.fromstring(text)  # noqa: S314 - without entities it cannot expand
    gpus = list(_gpus(root, "")) if root.tag == "system" else []
    if not gpus:
        raise UsageError(
            "the topology file names no GPU",
            remedy="write one with NCCL_TOPO_DUMP_FILE=FILE in a run of NCCL",
        )
    nets = {str(net.get("name")): int(net.get("speed") or 0) for net in root.iter("net")}
    cards = {name: speed for name, speed in nets.items() if speed > 0}
    return {
        "gpus": [{"name": f"SM {gpu.get('sm')}"} | ({"pcie": pcie} if pcie else {}) for _, gpu, pcie in gpus],
        "topology": _topology(gpus),
        "nics": [
            {"name": name, "speed_mbit": speed} for name, speed in cards.items() if _INTERFACE.match(name)
        ],
        "rdma": {
            "devices": [
                {"name": name, "rate": f"{speed / 1000:g} Gb/sec"}
                for name, speed in cards.items()
                if not _INTERFACE.match(name)
            ]
        },
    }


def _topology(gpus: Sequence[_Gpu]) -> dict[str, Any]:
    """Return the number of NVLinks per GPU if they join all GPUs."""
    counts = {sum(int(link.get("count") or 0) for link in gpu.iter("nvlink")) for _, gpu, _ in gpus}
    if counts == {0}:
        return {"link": "PCIe"}
    joined = {gpus[0][0]}
    for _ in gpus:
        for place, gpu, _ in gpus:
            links = list(gpu.iter("nvlink"))
            if any((link.get("tclass") or "").startswith(_SWITCH) for link in links):
                joined.add(place)
            ends = {place, *(str(link.get("target")) for link in links)}
            joined |= ends if ends & joined else set()
    whole = len(counts) == 1 and joined.issuperset(place for place, _, _ in gpus)
    return {"nvlinks": counts.pop()} if whole else {"link": "NVLink and PCIe"}


def _gpus(element: ElementTree.Element, link: str) -> Iterator[_Gpu]:
    for child in element:
        if child.tag == "gpu":
            yield str(element.get("busid")), child, link
        speed, width = _SPEED.match(child.get("link_speed") or ""), int(child.get("link_width") or 0)
        yield from _gpus(child, f"{float(speed[1]):.1f} x{width}" if speed and width else "")
