"""Obstacles to installing a driver, each with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from hvlab.stack.provision.driver.host import (
    PACKAGED,
    DriverHost,
    DriverRequest,
    branch,
    fabric_obstacles,
    fits,
    is_of_branch,
    upstream,
)
from hvlab.stack.provision.driver.packages import (
    SIGNED_BY_VENDOR,
    builds_modules,
    compiler,
    driver_packages,
    needs_dkms,
    stays,
)
from hvlab.stack.provision.names import epel_package

Finding = tuple[str, str]


def obstacles(
    host: DriverHost, request: DriverRequest, *, installing: bool, touched: Iterable[str]
) -> Iterator[Finding]:
    """Yield each obstacle: what was seen, and the remedy.

    ``installing``: whether the driver will be installed; ``touched``: packages that would change or go.
    """
    if request.method not in request.methods:
        system = f"{host.facts.get('distribution')} {host.facts.get('distribution_version')}"
        yield (
            f"method {request.method} is not available on {system}",
            f"set lab_driver_method to one of {', '.join(request.methods)}",
        )
        return
    if request.method == "none":
        yield from _missing_driver(host, request)
        return
    if host.fact("container", False) and request.load != "never":
        yield explain_container(request.method)
        return
    if request.method == "elrepo" and "uek" in request.kernel and not stays(host, request):
        yield explain_uek(request.kernel)
    if request.method in ("runfile", "local_repo"):
        yield from _unchecked_download(request, installing=installing)
    if request.method in PACKAGED and not request.packages:
        yield (
            "no driver package is set",
            "set nvidia_driver_version to a branch such as 550, or nvidia_driver_packages",
        )
    if builds_modules(host, request):
        yield from _headers(host, request)
    yield from _secure_boot(host, request)
    yield from fabric_obstacles(host, request)
    if installing and not stays(host, request):
        yield from _check_old_packages(host, request)
    held = sorted((set(touched) & set(host.fact("held", []))) - set(host.fact("held_own", [])))
    if held:
        release = "apt-mark unhold" if host.facts.get("os_family") == "Debian" else "dnf versionlock delete"
        yield f"held at their version: {', '.join(held)}", f"release them there: {release} {' '.join(held)}"


def _missing_driver(host: DriverHost, request: DriverRequest) -> Iterator[Finding]:
    works = host.state.get("loaded") or host.fact("driver")
    if request.load == "never" or not host.fact("gpus", []) or works:
        return
    count = len(host.fact("gpus", []))
    below = "install the driver on the machine below the container"
    yield (
        f"it has {count} NVIDIA GPU{'s' if count > 1 else ''} and no driver is loaded, "
        "but lab_driver_method is none",
        below if host.fact("container", False) else "set lab_driver_method, to repo for one",
    )


def _unchecked_download(request: DriverRequest, *, installing: bool) -> Iterator[Finding]:
    if installing and not request.checksum:
        yield explain_unchecked(f"nvidia_driver_{request.method}")
    if installing and request.method == "runfile" and not re.fullmatch(r"\d+\.\d+(\.\d+)?", request.version):
        yield (
            f"nvidia_driver_version is {request.version!r}",
            "give the whole version for a runfile, such as 550.54.14",
        )


def _headers(host: DriverHost, request: DriverRequest) -> Iterator[Finding]:
    available = host.state.get("headers", [])
    if request.kernel in available:
        return
    names = [package["name"] for package in request.headers_packages]
    versions = host.state.get("versions", {})
    if names and all(
        any(fits(version, package.get("version")) for version in versions.get(package["name"], []))
        for package in request.headers_packages
    ):
        return
    if host.state.get("unsure") and not any(versions.get(name) for name in names):
        return
    use = "it runs" if request.kernel == host.running else "the driver is requested for"
    newer = [kernel for kernel in host.state.get("kernels", []) if kernel != request.kernel]
    boot = next((kernel for kernel in reversed(newer) if kernel in available), newer[-1] if newer else "")
    exact = ["-".join(filter(None, (p["name"], p.get("version")))) for p in request.headers_packages]
    remedy = f"install {' '.join(exact) or 'its headers'}"
    if boot and request.kernel == host.running:
        remedy += f", or reboot into {boot}, which is installed"
    yield (
        f"{use} kernel {request.kernel}, whose headers are neither installed nor available; "
        f"headers are installed for {', '.join(available) or 'no kernel'}" + _trouble(host),
        remedy,
    )


def _secure_boot(host: DriverHost, request: DriverRequest) -> Iterator[Finding]:
    vendor = any(fnmatchcase(package["name"], SIGNED_BY_VENDOR) for package in request.packages)
    running = host.state.get("loaded") and is_of_branch(str(host.state["loaded"]), request.version)
    allowed = request.secure_boot == "allow" or request.load == "never"
    if not host.fact("secure_boot", False) or allowed or vendor or running:
        return
    yield explain_secure_boot(str(host.facts.get("distribution")))


def explain_uek(kernel: str) -> Finding:
    """Return the obstacle of Oracle's own kernel for ELRepo's modules."""
    return (
        f"it runs kernel {kernel}, and ELRepo's modules are built for RHEL's",
        "set lab_driver_method: repo, or boot the kernel that is compatible with RHEL",
    )


def explain_unloaded(driver: str | None, guest: str | None) -> Finding:
    """Return the obstacle of a driver that is not loaded and, as it is not hvlab's, will not be."""
    why = f"it comes from outside ({guest})" if guest else "lab_driver_method is none"
    return (
        f"its driver {driver} is not loaded, and {why}",
        "load it there (modprobe nvidia; `dmesg` says why it cannot be), or reboot the host",
    )


def explain_unchecked(name: str) -> Finding:
    """Return the obstacle of a download without a checksum, by the beginning of its variables' names."""
    file, written = (name, "") if name == "cuda_runfile" else (f"{name}_url", ", written sha256:...")
    return (
        f"{name}_checksum is not set, so the download could not be checked",
        f"set it to the file's sha256{written}, and {file} too",
    )


def explain_container(method: str) -> Finding:
    """Return the obstacle of a container for a method that installs a driver."""
    return (
        f"it is a container, which runs its host's kernel and driver; method {method} cannot work there",
        "install the driver on the machine below it and set lab_driver_method: none here, "
        "or nvidia_driver_load: never where an image is being made",
    )


_SIGNED = {
    "Ubuntu": "set lab_driver_method: distro, which takes modules that Ubuntu has signed",
    # https://wiki.almalinux.org/documentation/nvidia.html
    "AlmaLinux": "from AlmaLinux 9 on, install its own signed driver there, which then stays "
    "(dnf install almalinux-release-nvidia-driver, then nvidia-open-kmod nvidia-driver nvidia-driver-cuda)",
}


def explain_secure_boot(distribution: str) -> Finding:
    """Return the obstacle of Secure Boot for modules that no key in the firmware signs."""
    signed = f"{_SIGNED[distribution]}; or " if distribution in _SIGNED else ""
    return (
        "Secure Boot is on, and would keep the kernel from loading modules that are built here",
        f"{signed}enroll the key they are signed with (mokutil --import, "
        "then reboot) and set nvidia_driver_secure_boot: allow, or turn Secure Boot off in the firmware",
    )


def _check_old_packages(host: DriverHost, request: DriverRequest) -> Iterator[Finding]:
    old = driver_packages(host, request)
    if request.method == "runfile" and old and not request.remove_old:
        packages = f"{', '.join(old[:4])}{', ...' if old[4:] else ''}"
        yield (
            f"a driver is installed from packages ({packages}), and the runfile would write over it",
            "set nvidia_driver_remove_old: true, or lab_driver_method: repo",
        )
    if request.method in PACKAGED and host.state.get("uninstaller") and not request.remove_old:
        yield (
            f"driver {host.state.get('library') or ''} was installed by NVIDIA's runfile, "
            "and packages would write over it",
            "set nvidia_driver_remove_old: true, or run nvidia-uninstall there",
        )


def transitional(host: DriverHost, request: DriverRequest) -> Iterator[Finding]:
    """Yield the distribution's packages that would install another branch than they are named after."""
    asked = branch(request.version)
    for package in request.packages if request.method == "distro" and asked else ():
        offered = host.state.get("versions", {}).get(package["name"], [])
        come = branch(offered[0]) if offered and f"-{asked}" in package["name"] else ""
        if come and come != asked:
            yield (
                f"package {package['name']} would bring driver {upstream(offered[0])}, not branch {asked}",
                f'set lab_driver to "{come}", or lab_driver_method: repo',
            )


def without_dkms(host: DriverHost, request: DriverRequest) -> Iterator[Finding]:
    """Yield the obstacle if DKMS, which the driver's packages require, is neither installed nor available."""
    available = host.state.get("versions", {}).get("dkms") or host.state.get("unsure")
    if needs_dkms(host, request) and not available:
        yield (
            "the driver's modules are built by dkms, which is not installed, and no repository has it"
            + _trouble(host),
            _epel(host),
        )


def _epel(host: DriverHost) -> str:
    command = f"{host.facts.get('pkg_mgr')} install {epel_package(host.facts)}"
    return f"enable EPEL there, which has it: {command}"


def unavailable(
    host: DriverHost, request: DriverRequest, install: Iterable[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Yield the packages unavailable in the requested version; `obstacles` judges the headers."""
    headers = {package["name"] for package in (*request.headers_packages, *request.headers_following)}
    for package in install:
        name, requested = package["name"], package.get("version")
        versions = host.state.get("versions", {}).get(name, [])
        unsure = host.state.get("unsure") and not versions
        if name in headers or unsure or any(fits(version, requested) for version in versions):
            continue
        missing = f"package {name} {requested or ''}".rstrip() + " is not available"
        has = f"the repositories have {', '.join(versions[:5])}" if versions else "no repository has it"
        remedy = "correct the requested version, or add the repository that has it"
        if versions and package in request.packages:
            remedy = "set lab_driver to one of these versions, or add the repository that has it"
        if name == compiler(host, request):
            remedy = "boot one of the system's own kernels, or add the repository that has it"
        if name == "dkms" and host.facts.get("os_family") == "RedHat":
            remedy = _epel(host)
        if name in (request.fabric_manager_package, request.imex_package):
            service = "IMEX" if name == request.imex_package else "the fabric manager"
            remedy += f"; {service} must have the driver's version"
        yield f"{missing}; {has}{_trouble(host)}", remedy


def _trouble(host: DriverHost) -> str:
    trouble = str(host.state.get("trouble", "")).strip()
    return f". The package lists could not be fetched: {trouble}" if trouble else ""
