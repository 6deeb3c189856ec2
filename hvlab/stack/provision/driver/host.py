"""A host, the driver requested for it, how versions of the driver compare, and what NVSwitches need besides.

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
from dataclasses import dataclass
from typing import Any

from hvlab.stack.provision.packages import PackageSpec

SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-imex", "nvidia-dcgm")
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
    """A host: Ansible's facts without prefix; ``state`` is the report of module hvlab_driver."""

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
        return [f"{user['name']}[{user['pid']}]" for user in self.state.get("users", [])]


def upstream(version: str) -> str:
    """Return a package's version without epoch and revision."""
    return version.rpartition(":")[2].partition("-")[0]


def branch(version: str) -> str:
    """Return the driver branch of a version; empty if it is not a driver version."""
    match = re.match(r"(\d{3})(?:\.|$)", upstream(version))
    return match[1] if match else ""


def is_of_branch(version: str, requested: str) -> bool:
    """Whether a version is the requested one or of the requested branch: 550.54.14 is within 550."""
    return not requested or upstream(version) == requested or upstream(version).startswith(f"{requested}.")


def fits(version: str | None, requested: str | None) -> bool:
    """Whether a package's version, with or without its epoch, is the requested one; None means any."""
    if version is None:
        return False
    spellings = (version, version.partition(":")[2] or version)
    return any(PackageSpec("package", requested or None).is_met({"package": text}) for text in spellings)


def find_installed_version(host: DriverHost, kernel: str) -> str | None:
    """Return the installed driver version, loaded or not; None without one."""
    built = [entry["version"] for entry in host.state.get("dkms", []) if entry["kernel"] == kernel]
    packaged = [
        version
        for name, version in host.packages.items()
        if name.startswith("kmod-nvidia") and branch(version)
    ]
    candidates = [host.state.get("library"), *built, *map(upstream, packaged)]
    return next((str(version) for version in candidates if version), None)


MODULES = ("ib_umad", "mlx5_ib")


def wants_fabric_manager(host: DriverHost, request: DriverRequest) -> bool:
    """Whether the fabric manager belongs on a host: by default, if it has an NVSwitch.

    A running one has found NVSwitches: without any it ends. Stopping it would stop CUDA on unknown models.
    """
    if request.fabric_manager == "auto":
        runs = host.state.get("services", {}).get("nvidia-fabricmanager", {}).get("active", False)
        switches = request.fabric or int(host.fact("nvswitches", 0)) > 0
        return request.method != "none" and (switches or runs)
    return request.fabric_manager == "true"


def wants_subnet_manager(host: DriverHost, request: DriverRequest) -> bool:
    """Whether the fabric manager also needs the subnet manager."""
    return request.fabric and wants_fabric_manager(host, request)


def wants_imex(request: DriverRequest) -> bool:
    """Whether IMEX belongs on a host."""
    return request.imex and request.method != "none"


def fabric_packages(host: DriverHost, request: DriverRequest, version: str) -> list[Mapping[str, Any]]:
    """Return the packages a host needs besides a driver of that version, given as exactly as known.

    The fabric manager and IMEX have the driver's version, the subnet manager has versions of its own.
    """
    full = f"{version}*" if re.fullmatch(r"\d+\.\d+(\.\d+)?", version) else None
    packages: list[Mapping[str, Any]] = []
    if wants_fabric_manager(host, request):
        packages.append({"name": _spell(host, request.fabric_manager_package, full), "version": full})
    if wants_subnet_manager(host, request):
        packages += [{"name": name, "version": None} for name in request.subnet_manager_packages]
    if wants_imex(request):
        packages.append({"name": _spell(host, request.imex_package, full), "version": full})
    return packages


def _spell(host: DriverHost, name: str, version: str | None) -> str:
    """Return a package's name; with or without the branch if it is installed so in this version."""
    spelled = re.compile(re.escape(re.sub(r"-\d{3}$", "", name)) + r"(-\d{3})?")
    here = (each for each in host.packages if spelled.fullmatch(each) and fits(host.packages[each], version))
    return next(here, name) if version else name


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
