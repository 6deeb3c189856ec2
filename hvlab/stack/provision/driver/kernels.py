"""A host's other kernels: which get modules too, and which would boot without a driver."""

from __future__ import annotations

import re

from hvlab.base.errors import Problem
from hvlab.stack.provision.driver.host import DriverHost, DriverRequest, installed_version

_ARCHITECTURE = re.compile(r"[.](x86_64|aarch64)([+].*)?$")


def newer_kernels(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the installed kernels newer than the driver's: the next boot uses one."""
    kernels = [kernel for kernel in host.state.get("kernels", []) if _key(kernel) > _key(request.kernel)]
    return sorted(kernels, key=_key)


def kernels_to_build(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the kernels to build modules for: the requested one, and newer ones with headers."""
    headers = host.state.get("headers", [])
    return [request.kernel, *(kernel for kernel in newer_kernels(host, request) if kernel in headers)]


def bare_kernels(host: DriverHost, request: DriverRequest) -> list[Problem]:
    """Return a problem for each newer kernel without a module of the installed driver."""
    if request.method == "none" or installed_version(host, request.kernel) is None:
        return []
    built = host.state.get("module_kernels", [])
    return [
        Problem(
            host.name,
            f"kernel {kernel} is installed and has no module of the driver: booted, it has no GPU",
            f"{_remedy(host, request, kernel)}, or remove that kernel before the next reboot",
        )
        for kernel in newer_kernels(host, request)
        if kernel not in built
    ]


def _remedy(host: DriverHost, request: DriverRequest, kernel: str) -> str:
    if kernel in host.state.get("headers", []):
        return "see make.log below /var/lib/dkms there for why DKMS could not build it"
    requested, other = (_ARCHITECTURE.sub("", release) for release in (request.kernel, kernel))
    names = [package["name"].replace(requested, other) for package in request.headers_packages]
    return f"install {' '.join(names)} there and run this again"


def _key(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))
