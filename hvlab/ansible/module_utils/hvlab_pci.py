# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The PCI devices of a host, and their names. ``root`` is where its files begin, "" on the host itself."""

from __future__ import annotations

import glob
import os
from typing import Any, Iterable

from ansible.module_utils.hvlab_probe import read

NVIDIA = "10de"
DISPLAY = "03"
BRIDGE = "0680"
NAMES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
_ACS = 0x0D
_REDIRECT = 0x0C


def devices(root: str = "", vendor: str | None = None) -> list[dict[str, str]]:
    """Return address, vendor, device and class (hexadecimal, without 0x) of the PCI devices, in order."""
    rows = []
    for path in sorted(glob.glob(root + "/sys/bus/pci/devices/*")):
        row = {key: (read(os.path.join(path, key)) or "")[2:] for key in ("vendor", "device", "class")}
        if vendor in (None, row["vendor"]):
            rows.append(dict(row, address=os.path.basename(path)))
    return rows


def names(ids: Iterable[tuple[str, str]], root: str = "") -> dict[tuple[str, str], str]:
    """Return the names of vendor and device pairs found in the host's list of names."""
    pairs = set(ids)
    path = next((root + name for name in NAMES if os.path.exists(root + name)), None)
    return parse_names(read(path) or "", pairs) if path and pairs else {}


def parse_names(text: str, pairs: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Read pci.ids: a vendor's line, below it each device behind one tab, subsystems behind two."""
    vendors = {vendor for vendor, _ in pairs}
    known = {}
    vendor = ""
    for line in text.splitlines():
        if line[:1] not in ("", "#", "\t"):
            vendor = line[:4] if line[:4] in vendors else ""
        elif vendor and line[:1] == "\t" and line[1:2] != "\t" and (vendor, line[1:5]) in pairs:
            known[vendor, line[1:5]] = line[5:].strip()
    return known


def link(address: str, root: str = "") -> str | None:
    """Return the rate and width of a device's link (``16.0 x16``) that its slot allows; None if unknown.

    An idle GPU lowers the rate of its link, so this reads the highest that both ends support.
    """
    path = os.path.realpath("{}/sys/bus/pci/devices/{}".format(root, address))
    rates = [read(os.path.join(end, "max_link_speed")) for end in (path, os.path.dirname(path))]
    known = [float(rate.split()[0]) for rate in rates if rate and rate[:1].isdigit()]
    width = read(os.path.join(path, "current_link_width")) or ""
    return "{:.1f} x{}".format(min(known), width) if known and width.isdigit() else None


def redirects(config: bytes) -> bool | None:
    """Whether a bridge's Access Control Services send peer traffic up to the root; None unknown.

    ``config`` is the 4096 byte configuration space; only root reads more than its first 64 bytes. Extended
    capabilities begin at 0x100, each with its number, and the place of the next (PCI Express Base, 7.9.3).
    """
    if len(config) < 4096:
        return None
    place = 0x100
    while place:
        header = int.from_bytes(config[place : place + 4], "little")
        if header & 0xFFFF == _ACS:
            control = int.from_bytes(config[place + 6 : place + 8], "little")
            return bool(control & _REDIRECT)
        following = header >> 20
        place = following if following > place else 0
    return False


def redirecting(addresses: Iterable[str], root: str = "") -> list[str]:
    """Return the bridges above these devices that redirect peer traffic."""
    above: dict[str, Any] = {}
    for address in addresses:
        path = os.path.realpath("{}/sys/bus/pci/devices/{}".format(root, address))
        for part in path.split("/")[:-1]:
            if part.count(":") == 2:
                above[part] = None
    return [bridge for bridge in above if redirects(_config(bridge, root))]


def _config(address: str, root: str) -> bytes:
    try:
        with open("{}/sys/bus/pci/devices/{}/config".format(root, address), "rb") as file:
            return file.read(4096)
    except OSError:
        return b""
