"""What stands in the way of a driver, each with what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from hvlab.provision.driver.host import PACKAGED, Host, Wish, fits, within
from hvlab.provision.driver.packages import (
    SIGNED_BY_VENDOR,
    builds_modules,
    driver_packages,
    needs_dkms,
    stays,
)

Finding = tuple[str, str]


def obstacles(host: Host, wish: Wish, *, installing: bool, touched: Iterable[str]) -> Iterator[Finding]:
    """Yield what was seen and the remedy of all that stands in the way.

    ``installing``: whether the driver is to be installed; ``touched``: packages that would change or go.
    """
    if wish.method not in wish.methods:
        system = f"{host.facts.get('distribution')} {host.facts.get('distribution_version')}"
        yield (
            f"there is no method {wish.method} for {system}",
            f"set lab_driver_method to one of {', '.join(wish.methods)}",
        )
        return
    if wish.method == "none":
        yield from _missing_driver(host, wish)
        return
    if host.own("container", False) and wish.load != "never":
        yield (
            "it is a container, which runs its host's kernel and driver; "
            f"method {wish.method} cannot work there",
            "install the driver on the machine below it and set lab_driver_method: none here, "
            "or nvidia_driver_load: never where an image is being made",
        )
        return
    if wish.method in ("runfile", "local_repo"):
        yield from _unchecked_download(wish, installing=installing)
    if wish.method in PACKAGED and not wish.packages:
        yield (
            "no package of the driver is named",
            "set nvidia_driver_version to a branch such as 550, or nvidia_driver_packages",
        )
    if builds_modules(host, wish):
        yield from _headers(host, wish)
    yield from _secure_boot(host, wish)
    if installing and not stays(host, wish):
        yield from _in_the_way(host, wish)
    held = sorted((set(touched) & set(host.own("held", []))) - set(host.own("held_own", [])))
    if held:
        release = "apt-mark unhold" if host.facts.get("os_family") == "Debian" else "dnf versionlock delete"
        yield f"held at their version: {', '.join(held)}", f"release them there: {release} {' '.join(held)}"


def _missing_driver(host: Host, wish: Wish) -> Iterator[Finding]:
    if wish.load == "never" or not host.own("gpus", []) or host.seen.get("loaded"):
        return
    inside = host.own("container", False)
    count = len(host.own("gpus", []))
    yield (
        f"it has {count} NVIDIA GPU{'s' if count > 1 else ''} and no driver is loaded, "
        "but lab_driver_method is none",
        "install the driver on the machine below the container"
        if inside
        else "set lab_driver_method, to repo for one",
    )


def _unchecked_download(wish: Wish, *, installing: bool) -> Iterator[Finding]:
    if installing and not wish.checksum:
        yield (
            f"nvidia_driver_{wish.method}_checksum is not set, so the download could not be checked",
            f"set it to the file's sha256, written sha256:..., and nvidia_driver_{wish.method}_url too",
        )
    if installing and wish.method == "runfile" and not re.fullmatch(r"\d+\.\d+(\.\d+)?", wish.version):
        yield (
            f"nvidia_driver_version is {wish.version!r}",
            "give the whole version for a runfile, such as 550.54.14",
        )


def _headers(host: Host, wish: Wish) -> Iterator[Finding]:
    there = host.seen.get("headers", [])
    if wish.kernel in there:
        return
    names = [package["name"] for package in wish.headers_packages]
    versions = host.seen.get("versions", {})
    if names and all(
        any(fits(version, package.get("version")) for version in versions.get(package["name"], []))
        for package in wish.headers_packages
    ):
        return
    if host.seen.get("unsure") and not any(versions.get(name) for name in names):
        return
    role = "it runs" if wish.kernel == host.running else "the driver is wanted for"
    newer = [kernel for kernel in host.seen.get("kernels", []) if kernel != wish.kernel]
    boot = next((kernel for kernel in reversed(newer) if kernel in there), newer[-1] if newer else "")
    exact = [f"{p['name']}-{p['version']}" if p.get("version") else p["name"] for p in wish.headers_packages]
    remedy = f"install {' '.join(exact) or 'its headers'}"
    remedy += f", or reboot into {boot}, which is installed" if boot and wish.kernel == host.running else ""
    yield (
        f"{role} kernel {wish.kernel}, whose headers are neither installed nor to be had; "
        f"headers there are for {', '.join(there) or 'no kernel'}" + _trouble(host),
        remedy,
    )


def _secure_boot(host: Host, wish: Wish) -> Iterator[Finding]:
    vendor = any(fnmatchcase(package["name"], SIGNED_BY_VENDOR) for package in wish.packages)
    running = host.seen.get("loaded") and within(str(host.seen["loaded"]), wish.version)
    if (
        not host.own("secure_boot", False)
        or wish.secure_boot == "allow"
        or wish.load == "never"
        or vendor
        or running
    ):
        return
    yield (
        "Secure Boot is on, and would keep the kernel from loading modules that are built here",
        "enroll the key they are signed with (mokutil --import, then reboot) and set "
        "nvidia_driver_secure_boot: allow, or turn Secure Boot off in the firmware",
    )


def _in_the_way(host: Host, wish: Wish) -> Iterator[Finding]:
    old = driver_packages(host, wish)
    if wish.method == "runfile" and old and not wish.remove_old:
        yield (
            f"a driver is installed from packages ({', '.join(old[:4])}{', ...' if old[4:] else ''}), "
            "and the runfile would write over it",
            "set nvidia_driver_remove_old: true, or lab_driver_method: repo",
        )
    if wish.method in PACKAGED and host.seen.get("uninstaller") and not wish.remove_old:
        yield (
            f"driver {host.seen.get('library') or ''} was installed by NVIDIA's runfile, "
            "and packages would write over it",
            "set nvidia_driver_remove_old: true, or run nvidia-uninstall there",
        )
    if wish.method == "runfile" and host.seen.get("loaded") and host.holders:
        yield (
            f"driver {host.seen['loaded']} is in use by {', '.join(host.holders)}; "
            "the runfile needs it unloaded",
            "end these processes, then run again",
        )


def without_dkms(host: Host, wish: Wish) -> Iterator[Finding]:
    """Yield that DKMS, which the driver's packages ask for, is not there and cannot be had."""
    found = host.seen.get("versions", {}).get("dkms") or host.seen.get("unsure")
    if needs_dkms(host, wish) and not found:
        yield (
            "the driver's modules are built by dkms, which is not installed, and no repository has it"
            + _trouble(host),
            _epel(host),
        )


def _epel(host: Host) -> str:
    manager, release = host.facts.get("pkg_mgr"), host.facts.get("distribution_major_version")
    names = {"RedHat": "epel-release of EPEL's own site", "OracleLinux": f"oracle-epel-release-el{release}"}
    name = names.get(str(host.facts.get("distribution")), "epel-release")
    return f"enable EPEL there, which has it: {manager} install {name}"


def unavailable(host: Host, wish: Wish, install: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the packages that cannot be had in the version wanted; headers are judged by `obstacles`."""
    headers = {package["name"] for package in wish.headers_packages}
    for package in install:
        name, wanted = package["name"], package.get("version")
        versions = host.seen.get("versions", {}).get(name, [])
        unsure = host.seen.get("unsure") and not versions
        if name in headers or unsure or any(fits(version, wanted) for version in versions):
            continue
        seen = f"package {name} {wanted or ''}".rstrip() + " cannot be had"
        offered = f"; there is {', '.join(versions[:5])}" if versions else "; no repository has it"
        remedy = "correct the version wanted, or add the repository that has it"
        if name == "dkms" and host.facts.get("os_family") == "RedHat":
            remedy = _epel(host)
        if name == wish.fabric_manager_package:
            remedy += "; the fabric manager has to be of the driver's version"
        yield seen + offered + _trouble(host), remedy


def _trouble(host: Host) -> str:
    trouble = str(host.seen.get("trouble", "")).strip()
    return f". The package lists could not be fetched: {trouble}" if trouble else ""
