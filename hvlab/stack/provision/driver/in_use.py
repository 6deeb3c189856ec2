"""Whether a change of the driver ends what runs on a host's GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hvlab.stack.provision.driver.fabric import fabric_packages
from hvlab.stack.provision.driver.host import DriverHost, DriverRequest, installed_version, upstream
from hvlab.stack.provision.driver.packages import target

ALLOW, DRAIN = "allow", "drain"


def interrupts(
    host: DriverHost, request: DriverRequest, *, install: Iterable[Mapping[str, Any]], removing: bool
) -> bool:
    """Return whether the loaded driver would be replaced, now or by what was installed before.

    ``removing``: whether a driver is removed, or written over by a runfile. Packages beside the driver, and
    further ones of the loaded version, leave it in place.
    """
    loaded = host.state.get("loaded")
    if not loaded or request.method == "none" or request.load == "never" or not host.own("gpus", []):
        return False
    beside = {package["name"] for package in fabric_packages(host, request, "")}
    names = [package["name"] for package in install if package["name"] not in beside]
    replaced = any(upstream(host.packages.get(name, str(loaded))) != loaded for name in names)
    pending = request.kernel == host.running and installed_version(host, request.kernel) not in (loaded, None)
    return removing or replaced or pending or (bool(names) and target(host, request) != loaded)


def in_use(host: DriverHost, request: DriverRequest) -> Iterator[tuple[str, str]]:
    """Yield the processes that a change would end, and what to do about them.

    Where the host is to be drained, they are judged after that. A runfile is never allowed to run under them:
    it needs the driver unloaded.
    """
    if not host.holders or request.in_use == DRAIN:
        return
    observed = f"driver {host.state['loaded']} is in use by {', '.join(host.holders)}"
    remedy = "end these processes, or name what drains the host in nvidia_driver_drain, then run again"
    if request.method == "runfile":
        yield f"{observed}; the runfile needs it unloaded", remedy
    elif request.in_use != ALLOW:
        forced = "nvidia_driver_in_use: allow replaces it all the same, and reboots"
        yield f"{observed}, and would be replaced", f"{remedy}; {forced}"
