"""How an installed driver comes into use, and whether that ends work on the host or on its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.base.errors import Problem
from hvlab.stack.provision.driver.host import (
    DriverHost,
    DriverRequest,
    fabric_packages,
    find_installed_version,
    upstream,
)
from hvlab.stack.provision.driver.packages import target

ALLOW, DRAIN = "allow", "drain"
NEVER, AUTO = "never", "auto"
_MANY = 12


def interrupts(
    host: DriverHost, request: DriverRequest, *, install: Iterable[Mapping[str, Any]], removing: bool
) -> bool:
    """Whether the loaded driver would be replaced, now or by something installed earlier.

    ``removing``: whether a driver is removed, or overwritten by a runfile. Other packages, and further ones
    of the loaded version, leave it in place.
    """
    loaded = host.state.get("loaded")
    if not loaded or request.method == "none" or request.load == "never" or not host.fact("gpus", []):
        return False
    beside = {package["name"] for package in fabric_packages(host, request, "")}
    names = [package["name"] for package in install if package["name"] not in beside]
    replaced = any(upstream(host.packages.get(name, str(loaded))) != loaded for name in names)
    pending = request.kernel == host.running and find_installed_version(host, request.kernel) not in (
        loaded,
        None,
    )
    return removing or replaced or pending or (bool(names) and target(host, request) != loaded)


def in_use(host: DriverHost, request: DriverRequest) -> Iterator[tuple[str, str]]:
    """Yield the processes that a change would end, with the remedy.

    If the host will be drained, they are judged after that. A runfile is never allowed while they run: it
    needs the driver unloaded.
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


def needs_reboot(host: DriverHost, request: DriverRequest, *, installing: bool, interrupted: bool) -> bool:
    """Whether only a reboot can bring the driver into use, and is allowed."""
    loadable = request.load != "never" and host.fact("gpus", []) and request.kernel == host.running
    if request.method == "none" or request.reboot == NEVER or not loadable:
        return False
    if host.state.get("nouveau") and not host.state.get("loaded"):
        return installing or find_installed_version(host, request.kernel) is not None
    return interrupted and bool(host.holders) and request.in_use == ALLOW


def list_ended_by_reboot(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the work on a host that a reboot would end.

    Processes that hold a GPU are judged separately. If the host will be drained, Slurm's jobs are judged
    after that.
    """
    work, holders = host.state.get("work", {}), host.holders
    daemons = [name for name in work.get("daemons", []) if not (request.drains and name == "slurmd")]
    jobs = [] if request.in_use == DRAIN else [f"{job} of Slurm" for job in work.get("jobs", [])]
    processes = [words for words in work.get("processes", []) if words.partition(" ")[0] not in holders]
    named = [work.get(kind, []) for kind in ("sessions", "containers", "machines")]
    return [words for kind in (*named, jobs, daemons, processes) for words in kind]


def reboot_in_the_way(host: DriverHost, request: DriverRequest) -> Iterator[tuple[str, str]]:
    """Yield the work that a reboot would end, with the remedy; nothing if ending it is allowed."""
    ended = list_ended_by_reboot(host, request) if request.reboot == AUTO else []
    if ended:
        more = f" and {len(ended) - _MANY} more" if len(ended) > _MANY else ""
        yield (
            f"the driver comes into use by a reboot, which would end {', '.join(ended[:_MANY])}{more}",
            "wait for these or end them, then run again; nvidia_driver_reboot: always reboots all the same",
        )


@dataclass(frozen=True)
class LoadingStep:
    """The step that brings the installed driver into use; ``action``: nothing, load, reload or reboot."""

    action: str
    loaded: bool
    reason: str = ""
    problem: Problem | None = None


def loading(host: DriverHost, request: DriverRequest, *, stuck: str = "", local: bool = False) -> LoadingStep:
    """Return the step that brings the installed driver into use.

    ``stuck`` says why modules could not be unloaded. The controller itself (``local``) is never rebooted.
    """
    loaded, version = host.state.get("loaded"), find_installed_version(host, request.kernel)
    left_alone = {
        "nvidia_driver_load is never": request.load == "never",
        "there is no NVIDIA GPU on the PCI bus": not host.fact("gpus", []),
    }
    for reason, applies in left_alone.items():
        if applies:
            return LoadingStep("nothing", bool(loaded), reason)
    if request.method == "none" or (loaded and version in (loaded, None)):
        return LoadingStep("nothing", bool(loaded), "" if loaded else "its driver comes from outside")
    if request.kernel != host.running:
        return LoadingStep(
            "nothing", False, f"it is built for kernel {request.kernel}, and {host.running} runs"
        )
    blocked = stuck
    if loaded and not blocked and host.holders:
        blocked = f"{', '.join(host.holders)} use it"
    if not loaded and host.state.get("nouveau"):
        blocked = f"{' and '.join(host.state.get('rivals') or ['nouveau'])} is loaded"
    if not blocked:
        return LoadingStep("reload" if loaded else "load", False)
    reason = f"driver {version} is installed and {loaded or 'none'} is loaded; {blocked}"
    allowed = request.reboot != NEVER and not local
    remedy = "reboot it" if local or allowed else "reboot it, or set nvidia_driver_reboot: auto"
    observed = reason
    if host.holders:
        remedy = f"end these processes and run again, or {remedy}"
    if allowed and (not host.holders or request.in_use == ALLOW):
        work = next(reboot_in_the_way(host, request), None)
        if not work:
            return LoadingStep("reboot", False, reason)
        observed, remedy = f"{reason}; {work[0]}", work[1]
    return LoadingStep("nothing", False, reason, Problem(host.name, observed, remedy))
