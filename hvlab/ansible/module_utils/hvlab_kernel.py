# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""A host's kernel, its modules and Secure Boot. ``root`` is where its files begin, "" on the host."""

from __future__ import annotations

import glob
import os
import platform
import re

from ansible.module_utils.hvlab_probe import read

_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_CONTAINER_FILES = ("/run/systemd/container", "/.dockerenv", "/run/.containerenv")


def kernel_headers(root: str = "") -> bool:
    """Whether modules can be built for the running kernel."""
    return os.path.exists("{}/lib/modules/{}/build/Makefile".format(root, platform.release()))


def kernel_gcc(root: str = "") -> str | None:
    """Return the major version of the gcc that built the running kernel, None for another compiler."""
    # "(x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0, ...", older: "(gcc version 8.5.0 ...".
    match = re.search(r"gcc(?:-\d+)? (?:version |\([^()]*\) )(\d+)\.\d", read(root + "/proc/version") or "")
    return match.group(1) if match else None


def loaded(root: str = "") -> set[str]:
    """Return the names of the loaded modules."""
    return {line.split()[0] for line in (read(root + "/proc/modules") or "").splitlines()}


def nouveau(root: str = "") -> bool:
    """Whether a driver that excludes NVIDIA's is loaded, or has a GPU."""
    return bool(rivals(root))


def rivals(root: str = "") -> list[str]:
    """Return the drivers of the kernel itself in the place of NVIDIA's: nouveau, or nova with a GPU.

    A loaded nova module without a GPU does no harm.
    """
    drivers = {"nouveau"} & loaded(root)
    for path in glob.glob(root + "/sys/bus/pci/devices/*/driver"):
        vendor = (read(os.path.join(os.path.dirname(path), "vendor")) or "").strip()
        name = os.path.basename(os.path.realpath(path))
        # Its name is NovaCore in the first kernels that have it.
        if vendor == "0x10de" and re.match("nouveau|nova", name, re.IGNORECASE):
            drivers.add(name)
    return sorted(drivers)


def on_disk(name: str, root: str = "") -> bool:
    """Whether the running kernel has a module of that name to load."""
    pattern = re.escape(name).replace("_", "[_-]").replace("\\-", "[_-]")
    folder = "{}/lib/modules/{}".format(root, platform.release())
    return bool(re.search(r"(?m)(^|/){}\.ko(\.\w+)?:".format(pattern), read(folder + "/modules.dep") or ""))


def secure_boot(root: str = "") -> bool | None:
    """Whether the firmware lets only signed modules in; None without EFI.

    The variable is four bytes of attributes and one of value (UEFI specification, 8.2 and 32.3).
    """
    try:
        with open(root + _SECURE_BOOT, "rb") as file:
            content = file.read()
    except OSError:
        return None
    return content[4:5] == b"\x01"


def container(root: str = "") -> bool:
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
