# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""A host's kernel, its modules, Secure Boot, and the PCI devices with their names.

``root`` is where the host's files begin, "" on the host itself.
"""

from __future__ import annotations

import glob
import os
import platform
import re
from typing import Any, Iterable

from ansible.module_utils.hvlab_probe import read

_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_CONTAINER_FILES = ("/run/systemd/container", "/.dockerenv", "/run/.containerenv")


def has_kernel_headers(root: str = "") -> bool:
    """Whether modules can be built for the running kernel."""
    return os.path.exists("{}/lib/modules/{}/build/Makefile".format(root, platform.release()))


def kernel_gcc(root: str = "") -> str | None:
    """Return the major version of the gcc that built the running kernel, None for another compiler."""
    # "(x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0, ...", older: "(gcc version 8.5.0 ...".
    match = re.search(r"gcc(?:-\d+)? (?:version |\([^()]*\) )(\d+)\.\d", read(root + "/proc/version") or "")
    return match.group(1) if match else None


def list_modules(root: str = "") -> set[str]:
    """Return the names of the loaded modules."""
    return {line.split()[0] for line in (read(root + "/proc/modules") or "").splitlines()}


def has_nouveau(root: str = "") -> bool:
    """Whether a driver that excludes NVIDIA's is loaded, or has a GPU."""
    return bool(rivals(root))


def rivals(root: str = "") -> list[str]:
    """Return the drivers of the kernel itself in the place of NVIDIA's: nouveau, or nova with a GPU.

    A loaded nova module without a GPU does no harm.
    """
    drivers = {"nouveau"} & list_modules(root)
    for path in glob.glob(root + "/sys/bus/pci/devices/*/driver"):
        vendor = (read(os.path.join(os.path.dirname(path), "vendor")) or "").strip()
        name = os.path.basename(os.path.realpath(path))
        # Its name is NovaCore in the first kernels that have it.
        if vendor == "0x10de" and re.match("nouveau|nova", name, re.IGNORECASE):
            drivers.add(name)
    return sorted(drivers)


def is_on_disk(name: str, root: str = "") -> bool:
    """Whether the running kernel has a module of that name to load."""
    pattern = re.escape(name).replace("_", "[_-]").replace("\\-", "[_-]")
    folder = "{}/lib/modules/{}".format(root, platform.release())
    return bool(re.search(r"(?m)(^|/){}\.ko(\.\w+)?:".format(pattern), read(folder + "/modules.dep") or ""))


def has_secure_boot(root: str = "") -> bool | None:
    """Whether the firmware lets only signed modules in; None without EFI.

    The variable is four bytes of attributes and one of value (UEFI specification, 8.2 and 32.3).
    """
    try:
        with open(root + _SECURE_BOOT, "rb") as file:
            content = file.read()
    except OSError:
        return None
    return content[4:5] == b"\x01"


def is_container(root: str = "") -> bool:
    """Whether this is a container, which shares its machine's kernel."""
    if any(os.path.exists(root + path) for path in _CONTAINER_FILES):
        return True
    if any(entry.startswith("container=") for entry in (read(root + "/proc/1/environ") or "").split("\0")):
        return True
    return bool(re.search(r"docker|kubepods|containerd|lxc", read(root + "/proc/1/cgroup") or ""))


def cgroup(root: str = "") -> int | None:
    """Return the version of the host's control groups with controllers; None without any.

    In /proc/1/cgroup the hierarchies of version 1 name their controllers; that of version 2 is ``0::``
    (cgroups(7)).
    """
    lines = (read(root + "/proc/1/cgroup") or "").splitlines()
    controllers = {name for line in lines for name in line.split(":")[1].split(",")}
    if controllers & {"cpuset", "memory", "devices", "freezer"}:
        return 1
    return 2 if any(line.startswith("0::") for line in lines) else None


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
