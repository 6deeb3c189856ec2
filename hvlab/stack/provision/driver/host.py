"""A host, the driver requested for it, and how versions of the driver compare."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.stack.provision.packages import PackageSpec

SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-imex", "nvidia-dcgm")
SERVICE_PROCESSES = frozenset(
    {"nvidia-persiste", "nv-fabricmanage", "nvlsm", "nvidia-imex", "nv-hostengine", "nvidia-smi"}
)
PACKAGED = ("repo", "local_repo", "distro", "elrepo")


@dataclass(frozen=True)
class DriverRequest:
    """The driver that the role's variables and the operating system's data request.

    ``in_use``: what to do about processes that a change would end: refuse, allow, or drain (judge them after
    draining the host).
    ``reboot``: never, auto (unless it would end somebody's work), or always; ``drains``: whether the host is
    drained first.
    ``compiler_package``: the name of a gcc of a major, as a package and as a command, such as gcc-{}; empty
    if the system has only one.
    ``fabric``: the GPU model has NVSwitches that are invisible on the PCI bus;
    ``fabric_kernel_packages``: packages with modules that the system's kernels may lack.
    ``imex_nodes``: the addresses of the hosts of an NVLink domain.
    ``headers_following``: packages that pull in the headers of each kernel update.
    ``opened``: whether the kernel modules are the open ones; ``initramfs``: the command that rebuilds it.
    """

    method: str
    version: str = ""
    packages: tuple[Mapping[str, Any], ...] = ()
    headers_packages: tuple[Mapping[str, Any], ...] = ()
    headers_following: tuple[Mapping[str, Any], ...] = ()
    build_packages: tuple[str, ...] = ()
    compiler_package: str = ""
    kernel: str = ""
    load: str = "auto"
    reboot: str = "auto"
    drains: bool = False
    in_use: str = "refuse"
    secure_boot: str = "refuse"
    remove_old: bool = False
    fabric_manager: str = "auto"
    fabric_manager_package: str = ""
    fabric: bool = False
    subnet_manager_packages: tuple[str, ...] = ()
    fabric_kernel_packages: tuple[str, ...] = ()
    imex: bool = False
    imex_package: str = ""
    imex_nodes: tuple[str, ...] = ()
    methods: tuple[str, ...] = (*PACKAGED, "runfile", "none")
    old: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    checksum: str = ""
    stream: str = ""
    opened: bool = True
    initramfs: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverHost:
    """A host: Ansible's facts without prefix; ``state`` is what module hvlab_driver reports."""

    name: str
    facts: Mapping[str, Any]
    state: Mapping[str, Any]

    def fact(self, key: str, default: Any = None) -> Any:
        """Return one of hvlab's facts; the default if it is null or missing."""
        value = self.facts.get("hvlab", {}).get(key)
        return default if value is None else value

    @property
    def running(self) -> str:
        """The release of the running kernel."""
        return str(self.facts.get("kernel", ""))

    @property
    def packages(self) -> Mapping[str, str]:
        """The installed packages with their versions."""
        packages: Mapping[str, str] = self.fact("packages", {})
        return packages

    @property
    def holders(self) -> list[str]:
        """The processes that hold a GPU, except NVIDIA's own services."""
        users = [user for user in self.state.get("users", []) if user["name"] not in SERVICE_PROCESSES]
        return [f"{user['name']}[{user['pid']}]" for user in users]


def upstream(version: str) -> str:
    """Return a package's version without epoch and revision."""
    return version.rpartition(":")[2].partition("-")[0]


def branch(version: str) -> str:
    """Return the driver branch of a version; empty if it is not a driver version."""
    match = re.match(r"(\d{3})(?:\.|$)", upstream(version))
    return match[1] if match else ""


def within(version: str, requested: str) -> bool:
    """Return whether a version is the requested one or of the requested branch: 550.54.14 is within 550."""
    return not requested or upstream(version) == requested or upstream(version).startswith(f"{requested}.")


def fits(version: str | None, requested: str | None) -> bool:
    """Return whether a package's version, with or without its epoch, is the requested one; None means any."""
    if version is None:
        return False
    spellings = (version, version.partition(":")[2] or version)
    return any(PackageSpec("package", requested or None).is_met({"package": text}) for text in spellings)


def installed_version(host: DriverHost, kernel: str) -> str | None:
    """Return the installed driver version, loaded or not; None without one."""
    built = [entry["version"] for entry in host.state.get("dkms", []) if entry["kernel"] == kernel]
    packaged = [
        version
        for name, version in host.packages.items()
        if name.startswith("kmod-nvidia") and branch(version)
    ]
    candidates = [host.state.get("library"), *built, *map(upstream, packaged)]
    return next((str(version) for version in candidates if version), None)
