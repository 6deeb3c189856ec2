"""What GPUs linked by NVSwitches need besides their driver.

NVSwitches of the fourth generation (HGX B200 and B300) are reached through InfiniBand's kernel modules, and a
subnet manager works beside the fabric manager: without them CUDA stops with error 802. On GB200 NVL the
switches are managed elsewhere, and IMEX shares memory between the hosts of an NVLink domain.
Sources: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide (systems using fourth generation
NVSwitches), https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide,
https://github.com/NVIDIA/gpu-operator/issues/2781 (both modules, error 802).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.stack.provision.driver.host import DriverHost, DriverRequest

MODULES = ("ib_umad", "mlx5_ib")


def wants_fabric_manager(host: DriverHost, request: DriverRequest) -> bool:
    """Return whether the fabric manager belongs on a host: by default, if it has an NVSwitch.

    A running one has found NVSwitches: without any it ends. Stopping it would stop CUDA on unknown models.
    """
    if request.fabric_manager == "auto":
        runs = host.state.get("services", {}).get("nvidia-fabricmanager", {}).get("active", False)
        switches = request.fabric or int(host.fact("nvswitches", 0)) > 0
        return request.method != "none" and (switches or runs)
    return request.fabric_manager == "true"


def wants_subnet_manager(host: DriverHost, request: DriverRequest) -> bool:
    """Return whether the fabric manager also needs the subnet manager."""
    return request.fabric and wants_fabric_manager(host, request)


def wants_imex(request: DriverRequest) -> bool:
    """Return whether IMEX belongs on a host."""
    return request.imex and request.method != "none"


def fabric_packages(host: DriverHost, request: DriverRequest, version: str) -> list[Mapping[str, Any]]:
    """Return the packages a host needs besides a driver of that version, given as exactly as known.

    The fabric manager and IMEX have the driver's version, the subnet manager has versions of its own.
    """
    full = f"{version}*" if re.fullmatch(r"\d+\.\d+(\.\d+)?", version) else None
    packages: list[Mapping[str, Any]] = []
    if wants_fabric_manager(host, request):
        packages.append({"name": request.fabric_manager_package, "version": full})
    if wants_subnet_manager(host, request):
        packages += [{"name": name, "version": None} for name in request.subnet_manager_packages]
    if wants_imex(request):
        packages.append({"name": request.imex_package, "version": full})
    return packages


def fabric_kernel_packages(host: DriverHost, request: DriverRequest) -> list[Mapping[str, Any]]:
    """Return the packages, and those with modules that the kernel lacks."""
    names = request.fabric_kernel_packages if _without_modules(host, request) else ()
    return [{"name": name, "version": None} for name in names]


def fabric_obstacles(host: DriverHost, request: DriverRequest) -> Iterator[tuple[str, str]]:
    """Yield each obstacle to linking the GPUs: what was seen, and the remedy."""
    missing = _without_modules(host, request)
    if missing and not request.fabric_kernel_packages:
        modules = " and ".join(missing)
        yield (
            f"kernel {request.kernel} has no module {modules}, which NVLink's subnet manager needs",
            "install the package of that kernel with its InfiniBand modules, or DOCA-OFED",
        )
    if wants_imex(request) and not request.imex_nodes:
        yield (
            "nvidia_driver_imex_nodes is empty",
            "set it to the addresses of all hosts of its NVLink domain, the same on each of them",
        )


def _without_modules(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the modules that the kernel lacks; none if not needed or not known."""
    present = host.state.get("kernel_modules")
    if present is None or not wants_subnet_manager(host, request):
        return []
    return [name for name in MODULES if name not in present]
