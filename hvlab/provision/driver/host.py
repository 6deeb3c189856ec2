"""A host and what is wished for on it, and how versions of the driver compare."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.provision.packages import Package

SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm")
SERVICE_PROCESSES = frozenset({"nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-smi"})
PACKAGED = ("repo", "local_repo", "distro", "elrepo")


@dataclass(frozen=True)
class Wish:
    """What the role's variables and the operating system's data ask for.

    ``fabric``: the GPUs are of a model with NVSwitches that do not show on the PCI bus.
    """

    method: str
    version: str = ""
    packages: tuple[Mapping[str, Any], ...] = ()
    headers_packages: tuple[Mapping[str, Any], ...] = ()
    build_packages: tuple[str, ...] = ()
    kernel: str = ""
    load: str = "auto"
    reboot: str = "auto"
    secure_boot: str = "refuse"
    remove_old: bool = False
    fabric_manager: str = "auto"
    fabric_manager_package: str = ""
    fabric: bool = False
    methods: tuple[str, ...] = (*PACKAGED, "runfile", "none")
    old: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    checksum: str = ""
    stream: str = ""


@dataclass(frozen=True)
class Host:
    """A host: Ansible's facts without prefix, and what the module hvlab_driver saw."""

    name: str
    facts: Mapping[str, Any]
    seen: Mapping[str, Any]

    def own(self, key: str, default: Any = None) -> Any:
        """Return one of hvlab's facts; the default where it is null or not there."""
        value = self.facts.get("hvlab", {}).get(key)
        return default if value is None else value

    @property
    def running(self) -> str:
        """The release of the running kernel."""
        return str(self.facts.get("kernel", ""))

    @property
    def packages(self) -> Mapping[str, str]:
        """The installed packages with their versions."""
        found: Mapping[str, str] = self.own("packages", {})
        return found

    @property
    def holders(self) -> list[str]:
        """The processes that hold a GPU, but for NVIDIA's own services."""
        users = [user for user in self.seen.get("users", []) if user["name"] not in SERVICE_PROCESSES]
        return [f"{user['name']}[{user['pid']}]" for user in users]


def upstream(version: str) -> str:
    """Return a package's version without epoch and revision."""
    return version.rpartition(":")[2].partition("-")[0]


def branch(version: str) -> str:
    """Return the driver branch of a version, empty where it is no driver's."""
    match = re.match(r"(\d{3})(?:\.|$)", upstream(version))
    return match[1] if match else ""


def within(version: str, wanted: str) -> bool:
    """Say whether a version is the wanted one or of the wanted branch: 550.54.14 is within 550."""
    return not wanted or upstream(version) == wanted or upstream(version).startswith(f"{wanted}.")


def fits(version: str | None, wanted: str | None) -> bool:
    """Say whether a package's version, with or without its epoch, is the one wanted; None is any."""
    if version is None:
        return False
    spellings = (version, version.partition(":")[2] or version)
    return any(Package("it", wanted or None).is_met({"it": text}) for text in spellings)


def installed_version(host: Host, kernel: str) -> str | None:
    """Return the driver version that is installed, whether or not it is loaded; None without one."""
    built = [entry["version"] for entry in host.seen.get("dkms", []) if entry["kernel"] == kernel]
    packaged = [
        version
        for name, version in host.packages.items()
        if name.startswith("kmod-nvidia") and branch(version)
    ]
    found = [host.seen.get("library"), *built, *map(upstream, packaged)]
    return next((str(version) for version in found if version), None)
