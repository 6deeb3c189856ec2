"""Which packages a host should have for its driver, and which are removed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from hvlab.stack.provision.driver.host import (
    PACKAGED,
    DriverHost,
    DriverRequest,
    branch,
    fabric_kernel_packages,
    fabric_packages,
    find_installed_version,
    fits,
    is_of_branch,
    upstream,
)

NVIDIAS = ("repo", "local_repo")
EXACT = re.compile(r"\d{3}\.\d+(\.\d+)?(?=[-*~+]|$)")
# Packages that exist once for the open modules and once for the others.
MODULES = re.compile("dkms|kmod-|kernel-source")
# It holds apt's preferences for a branch, and has versions of its own: 580-5.
PINNING = "nvidia-driver-pinning-"
SIGNED_BY_VENDOR = "linux-modules-nvidia-*"
# Built for one kernel: Ubuntu's, those of NVIDIA's and Red Hat's streams, AlmaLinux's, RPM Fusion's.
_OF_ONE_KERNEL = re.compile(r"linux-modules-nvidia-|kmod-nvidia-(open-)?\d|kmod-nvidia-open$")
_HEADLESS = re.compile(r"nvidia-headless-(\d+-server(?:-open)?)")


def with_signed_modules(host: DriverHost, request: DriverRequest) -> DriverRequest:
    """Return the request with modules built and signed by Ubuntu if Secure Boot is on.

    Source: https://ubuntu.com/server/docs/nvidia-drivers-installation
    """
    if request.method != "distro" or not host.fact("secure_boot", False) or request.secure_boot == "allow":
        return request
    headers = [package["name"] for package in request.headers_following]
    packages: list[Mapping[str, Any]] = []
    for package in request.packages:
        match = _HEADLESS.fullmatch(package["name"])
        if match:
            kernels = [name.partition("-headers-")[2] for name in headers]
            names = [f"linux-modules-nvidia-{match[1]}-{kernel}" for kernel in kernels]
            packages += [
                {**package, "name": name} for name in (*names, f"nvidia-headless-no-dkms-{match[1]}")
            ]
        else:
            packages.append(package)
    return replace(request, packages=tuple(packages))


def stays(host: DriverHost, request: DriverRequest) -> bool:
    """Whether a driver stays: it has the requested version, from other packages.

    It must be complete: its library on disk, and its module loaded or known to DKMS.
    """
    present, requested = host.state.get("library"), exact_version(request) or request.version
    if request.method == "none" or not present or not requested or not is_of_branch(present, requested):
        return False
    # On a host with any driver of that version.
    shared = (PINNING, "nvidia-modprobe")
    own = [package["name"] for package in request.packages if not package["name"].startswith(shared)]
    modules = {host.state.get("loaded"), *(entry["version"] for entry in host.state.get("dkms", []))}
    return present in modules and not any(name in host.packages for name in own)


def builds_modules(host: DriverHost, request: DriverRequest) -> bool:
    """Whether the modules are compiled on the host."""
    if request.method in ("none", "elrepo"):
        return False
    if any(fnmatchcase(package["name"], SIGNED_BY_VENDOR) for package in request.packages):
        return False
    return not (stays(host, request) and _has_module(host, request))


def _has_module(host: DriverHost, request: DriverRequest) -> bool:
    built = [
        entry["version"]
        for entry in host.state.get("dkms", [])
        if (entry["kernel"], entry["state"]) == (request.kernel, "installed")
    ]
    running = [host.state.get("loaded")] if request.kernel == host.running else []
    return host.state.get("library") in (*built, *running)


def needs_dkms(host: DriverHost, request: DriverRequest) -> bool:
    """Whether the driver's packages require DKMS and neither the host nor its system has it.

    This concerns the RHEL family except Amazon Linux, for streams whose modules are built on the host.
    """
    if host.facts.get("os_family") != "RedHat" or host.facts.get("distribution") == "Amazon":
        return False
    if "dkms" in host.packages:
        return False
    built_here = not request.stream or request.stream.endswith(("-dkms", "-open"))
    return request.method in PACKAGED and built_here and builds_modules(host, request)


def kernels_gcc(host: DriverHost, request: DriverRequest) -> str:
    """Return the major of the gcc required to build the modules; empty for the host's own.

    Ubuntu builds the newer kernels of a release with a newer gcc, whose options the release's own does not
    know: 22.04 has gcc 11, its kernels from 5.19 on are built with gcc 12.
    Source: https://bugs.launchpad.net/ubuntu/+source/dkms/+bug/1991664
    """
    running = host.fact("kernel_gcc") if request.kernel == host.running else None
    used, own = host.state.get("compiler") or running, str(host.fact("gcc", "")).split(".")[0]
    return str(used) if used and str(used) != own and builds_modules(host, request) else ""


def compiler(host: DriverHost, request: DriverRequest) -> str:
    """Return the command of the gcc required to build the modules; empty for the host's own."""
    gcc = kernels_gcc(host, request)
    return request.compiler_package.format(gcc) if gcc else ""


def list_needed(host: DriverHost, request: DriverRequest) -> list[Mapping[str, Any]]:
    """Return the packages that building modules needs: headers of this kernel and its updates, gcc, tools.

    The kernel's own modules come first if GPUs are linked through InfiniBand's.
    """
    packages = fabric_kernel_packages(host, request)
    if builds_modules(host, request):
        packages += request.headers_packages if request.kernel not in host.state.get("headers", []) else ()
        packages += headers_of_updates(host, request)
        tools = [*(request.build_packages if request.method == "runfile" else ()), compiler(host, request)]
        packages += [{"name": name, "version": None} for name in tools if name]
    return packages


def headers_of_updates(host: DriverHost, request: DriverRequest) -> list[Mapping[str, Any]]:
    """Return the available packages that pull in the headers of each kernel update.

    A kernel from Debian's backports takes them from there. An installed one keeps its version.
    """
    packages: list[Mapping[str, Any]] = []
    for package in request.headers_following:
        name, versions = package["name"], host.state.get("versions", {}).get(package["name"], [])
        if name in host.packages:
            packages.append({"name": name, "version": None})
        elif "bpo" in request.kernel:
            packages += [{"name": name, "version": text} for text in versions if "bpo" in text][:1]
        elif any(fits(text, package.get("version")) for text in versions):
            packages.append(package)
    return packages


def exact_version(request: DriverRequest) -> str:
    """Return the full driver version requested for the packages; empty if it is left open."""
    versions = (upstream(str(package.get("version") or "")) for package in request.packages)
    return next((match[0] for match in map(EXACT.match, versions) if match), "")


def list_requested(host: DriverHost, request: DriverRequest) -> list[Mapping[str, Any]]:
    """Return the packages of the driver a host should have.

    Packages without a version are taken from the requested branch if it has them.
    """
    if request.method not in PACKAGED or stays(host, request):
        packages: list[Mapping[str, Any]] = []
    elif request.method in NVIDIAS and branch(request.version):
        packages = [_pin_branch(host, package, branch(request.version)) for package in request.packages]
    else:
        packages = list(request.packages)
    links = [] if _links_run(host, request) else fabric_packages(host, request, target(host, request))
    return [*packages, *links]


def _links_run(host: DriverHost, request: DriverRequest) -> bool:
    """Whether a driver that stays has its fabric manager or IMEX: with another version they would end."""
    services = host.state.get("services", {})
    active = [services.get(name, {}).get("active") for name in ("nvidia-fabricmanager", "nvidia-imex")]
    return any(active) and stays(host, request) and host.state.get("loaded") == target(host, request)


def following(host: DriverHost, request: DriverRequest) -> list[Mapping[str, Any]]:
    """Return installed packages of another version that the requested one also has: they change with it.

    Those with kernel modules change only if they are of the requested kind, open or not.
    """
    exact = exact_version(request)
    if request.method not in PACKAGED or not (exact or request.remove_old) or stays(host, request):
        return []
    version = f"{exact}-*" if exact else f"{branch(target(host, request))}.*"
    versions, own = host.state.get("versions", {}), {package["name"] for package in request.packages}
    opened = any("open" in name for name in own)
    return [
        {"name": name, "version": version}
        for name in list_old(host, request)
        if name not in own
        and (("open" in name) == opened or not MODULES.search(name))
        and any(fits(text, version) for text in versions.get(name, []))
    ]


def _pin_branch(host: DriverHost, package: Mapping[str, Any], requested: str) -> Mapping[str, Any]:
    name, versions = package["name"], host.state.get("versions", {}).get(package["name"], [])
    known = [*versions, host.packages.get(name, "")]
    offered = any(branch(version) == requested for version in known)
    if package.get("version") or name.startswith(PINNING) or not offered:
        return package
    return {"name": name, "version": f"{requested}.*"}


def target(host: DriverHost, request: DriverRequest) -> str:
    """Return the driver version that will be installed, as exactly as known; empty for none."""
    if stays(host, request):
        return str(host.state["library"])
    if request.method not in PACKAGED:
        return request.version
    goal = branch(request.version)
    for package in request.packages:
        name, requested = package["name"], package.get("version")
        known = [host.packages.get(name, ""), *host.state.get("versions", {}).get(name, [])]
        for version in (text for text in known if fits(text, requested)):
            exact = EXACT.match(upstream(version))
            if exact and goal in ("", branch(version)):
                return exact[0]
    return exact_version(request) or request.version


def list_old(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the installed packages of a driver other than the requested one; for a runfile, of any."""
    goal, exact = branch(target(host, request)), exact_version(request)
    current = find_installed_version(host, request.kernel)
    replaced = {current} if exact and current != exact else set()
    for package in request.packages if exact else ():
        version = host.packages.get(package["name"], "")
        if branch(version) and not fits(version, package.get("version")):
            replaced.add(upstream(version))
    return [
        name
        for name in driver_packages(host, request)
        if request.method == "runfile"
        or (goal and branch(host.packages[name]) != goal)
        or upstream(host.packages[name]) in replaced
    ]


def removals(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the old packages that must be removed because the requested version lacks them."""
    if request.method == "runfile":
        return [*list_old(host, request), *list_other_pinning(host, request)]
    goal, exact = f"{branch(target(host, request))}.*", exact_version(request)
    versions, own = host.state.get("versions", {}), {package["name"] for package in request.packages}
    version = f"{exact}-*" if exact else goal
    return [
        name
        for name in list_old(host, request)
        if name not in own and not any(fits(text, version) for text in versions.get(name, []))
    ]


def driver_packages(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the installed packages that are part of a driver."""
    kinds = [name for name in host.packages if any(fnmatchcase(name, old) for old in request.old)]
    kept = (*request.keep, f"{PINNING}*")
    return sorted(n for n in kinds if branch(host.packages[n]) and not any(fnmatchcase(n, k) for k in kept))


def packages_to_hold(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the driver's installed packages, to be held at their version.

    None if the distribution builds the modules for each of its kernels: then the driver follows them.
    """
    return [] if follows_kernels(host) else driver_packages(host, request)


def follows_kernels(host: DriverHost) -> bool:
    """Whether packages with the driver's modules are built for each kernel."""
    return any(map(_OF_ONE_KERNEL.match, host.packages))


def list_other_pinning(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the installed packages that pin another branch than the requested one, or any for a runfile."""
    own = {package["name"] for package in request.packages} if request.method in PACKAGED else set()
    return sorted(name for name in host.packages if name.startswith(PINNING) and name not in own)


def is_installed(host: DriverHost, package: Mapping[str, Any]) -> bool:
    """Whether a package is installed in the requested version."""
    return fits(host.packages.get(package["name"]), package.get("version"))
