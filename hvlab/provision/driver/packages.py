"""Which packages a host should have for its driver, and which have to go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from hvlab.provision.driver.host import (
    PACKAGED,
    Host,
    Wish,
    branch,
    fits,
    installed_version,
    upstream,
    within,
)

NVIDIAS = ("repo", "local_repo")
EXACT = re.compile(r"\d{3}\.\d+(\.\d+)?(?=[-*~+]|$)")
MODULES = re.compile("dkms|kernel|kmod")
SIGNED_BY_VENDOR = "linux-modules-nvidia-*"


def wants_fabric_manager(host: Host, wish: Wish) -> bool:
    """Say whether the fabric manager belongs on a host: by default where there is an NVSwitch."""
    if wish.fabric_manager == "auto":
        return wish.method != "none" and (wish.fabric or int(host.own("nvswitches", 0)) > 0)
    return wish.fabric_manager == "true"


def stays(host: Host, wish: Wish) -> bool:
    """Say whether a driver is left as it is: it is of the version wished for, and came by other packages.

    There has to be all of it: its library on disk, and its module loaded or known to DKMS.
    """
    there, wished = host.seen.get("library"), exact_version(wish) or wish.version
    if wish.method == "none" or not there or not wished or not within(there, wished):
        return False
    # NVIDIA's package that pins a branch is on a host whatever driver of that branch is.
    own = [package["name"] for package in wish.packages if "pinning" not in package["name"]]
    modules = {host.seen.get("loaded"), *(entry["version"] for entry in host.seen.get("dkms", []))}
    return there in modules and not any(name in host.packages for name in own)


def builds_modules(host: Host, wish: Wish) -> bool:
    """Say whether the modules are compiled on the host."""
    if wish.method in ("none", "elrepo"):
        return False
    if any(fnmatchcase(package["name"], SIGNED_BY_VENDOR) for package in wish.packages):
        return False
    return not (stays(host, wish) and _has_module(host, wish))


def _has_module(host: Host, wish: Wish) -> bool:
    built = [
        entry["version"]
        for entry in host.seen.get("dkms", [])
        if (entry["kernel"], entry["state"]) == (wish.kernel, "installed")
    ]
    running = [host.seen.get("loaded")] if wish.kernel == host.running else []
    return host.seen.get("library") in (*built, *running)


def needs_dkms(host: Host, wish: Wish) -> bool:
    """Say whether the driver's packages ask for DKMS, which is not there and which the system does not have.

    That is so on the RHEL family but for Amazon Linux, for streams whose modules are built on the host.
    """
    if host.facts.get("os_family") != "RedHat" or host.facts.get("distribution") == "Amazon":
        return False
    if "dkms" in host.packages:
        return False
    built_here = not wish.stream or wish.stream.endswith(("-dkms", "-open"))
    return wish.method in PACKAGED and built_here and builds_modules(host, wish)


def needed_packages(host: Host, wish: Wish) -> list[Mapping[str, Any]]:
    """Return the packages the modules are built with: tools, and headers where the kernel's are not there."""
    found: list[Mapping[str, Any]] = []
    if builds_modules(host, wish):
        found += wish.headers_packages if wish.kernel not in host.seen.get("headers", []) else ()
        found += [{"name": name, "version": None} for name in wish.build_packages if wish.method == "runfile"]
    return found


def exact_version(wish: Wish) -> str:
    """Return the whole driver version that the packages are asked for in, empty where it is left open."""
    asked = (upstream(str(package.get("version") or "")) for package in wish.packages)
    return next((match[0] for match in map(EXACT.match, asked) if match), "")


def wanted_packages(host: Host, wish: Wish) -> list[Mapping[str, Any]]:
    """Return the packages of the driver a host should have.

    Those left open are taken from the branch wished for, where there is one of it; the fabric manager is of
    the driver's version.
    """
    if wish.method not in PACKAGED or stays(host, wish):
        found: list[Mapping[str, Any]] = []
    elif wish.method in NVIDIAS and branch(wish.version):
        found = [_of_branch(host, package, branch(wish.version)) for package in wish.packages]
    else:
        found = list(wish.packages)
    if wants_fabric_manager(host, wish):
        version = target(host, wish)
        full = re.fullmatch(r"\d+\.\d+(\.\d+)?", version)
        found.append({"name": wish.fabric_manager_package, "version": f"{version}*" if full else None})
    return found


def following(host: Host, wish: Wish) -> list[Mapping[str, Any]]:
    """Return the packages of another version that there are in the one wanted: they go along.

    Those with the modules are left to what needs them, for there is a choice between two kinds.
    """
    exact = exact_version(wish)
    if wish.method not in PACKAGED or not (exact or wish.remove_old) or stays(host, wish):
        return []
    version = f"{exact}-*" if exact else f"{branch(target(host, wish))}.*"
    versions, own = host.seen.get("versions", {}), {package["name"] for package in wish.packages}
    return [
        {"name": name, "version": version}
        for name in old_packages(host, wish)
        if name not in own
        and not MODULES.search(name)
        and any(fits(text, version) for text in versions.get(name, []))
    ]


def _of_branch(host: Host, package: Mapping[str, Any], wanted: str) -> Mapping[str, Any]:
    name, versions = package["name"], host.seen.get("versions", {}).get(package["name"], [])
    known = [*versions, host.packages.get(name, "")]
    if package.get("version") or not any(branch(version) == wanted for version in known):
        return package
    return {"name": name, "version": f"{wanted}.*"}


def target(host: Host, wish: Wish) -> str:
    """Return the driver version that is to be there, as exactly as is known; empty when nothing is."""
    if stays(host, wish):
        return str(host.seen["library"])
    if wish.method not in PACKAGED:
        return wish.version
    goal = branch(wish.version)
    for package in wish.packages:
        name, asked = package["name"], package.get("version")
        known = [host.packages.get(name, ""), *host.seen.get("versions", {}).get(name, [])]
        for version in (text for text in known if fits(text, asked)):
            exact = EXACT.match(upstream(version))
            if exact and goal in ("", branch(version)):
                return exact[0]
    return exact_version(wish) or wish.version


def old_packages(host: Host, wish: Wish) -> list[str]:
    """Return the installed packages of a driver that is not the one wanted; for a runfile, of any."""
    goal, exact = branch(target(host, wish)), exact_version(wish)
    current = installed_version(host, wish.kernel)
    replaced = {current} if exact and current != exact else set()
    for package in wish.packages if exact else ():
        version = host.packages.get(package["name"], "")
        if branch(version) and not fits(version, package.get("version")):
            replaced.add(upstream(version))
    return [
        name
        for name in driver_packages(host, wish)
        if wish.method == "runfile"
        or (goal and branch(host.packages[name]) != goal)
        or upstream(host.packages[name]) in replaced
    ]


def removals(host: Host, wish: Wish) -> list[str]:
    """Return the old packages that there are not in the version wanted, so that they have to go."""
    if wish.method == "runfile":
        return old_packages(host, wish)
    goal, exact = f"{branch(target(host, wish))}.*", exact_version(wish)
    versions, own = host.seen.get("versions", {}), {package["name"] for package in wish.packages}
    wanted = f"{exact}-*" if exact else goal
    return [
        name
        for name in old_packages(host, wish)
        if name not in own and not any(fits(text, wanted) for text in versions.get(name, []))
    ]


def driver_packages(host: Host, wish: Wish) -> list[str]:
    """Return the installed packages that are part of a driver."""
    kinds = [name for name in host.packages if any(fnmatchcase(name, old) for old in wish.old)]
    return sorted(
        n for n in kinds if branch(host.packages[n]) and not any(fnmatchcase(n, k) for k in wish.keep)
    )


def there(host: Host, package: Mapping[str, Any]) -> bool:
    """Say whether a package is installed in the version wanted."""
    return fits(host.packages.get(package["name"]), package.get("version"))
