"""How the installed driver comes into use."""

from __future__ import annotations

from dataclasses import dataclass

from hvlab.base.errors import Problem
from hvlab.stack.provision.driver.host import DriverHost, DriverRequest, installed_version
from hvlab.stack.provision.driver.in_use import ALLOW, NEVER, reboot_in_the_way


@dataclass(frozen=True)
class LoadingStep:
    """What brings the installed driver into use. ``action`` is nothing, load, reload or reboot."""

    action: str
    loaded: bool
    reason: str = ""
    problem: Problem | None = None


def loading(host: DriverHost, request: DriverRequest, *, stuck: str = "", local: bool = False) -> LoadingStep:
    """Return the step that brings the installed driver into use.

    ``stuck`` says why modules could not be unloaded. The controller itself (``local``) is never rebooted.
    """
    loaded, version = host.state.get("loaded"), installed_version(host, request.kernel)
    left_alone = {
        "nvidia_driver_load is never": request.load == "never",
        "there is no NVIDIA GPU on the PCI bus": not host.fact("gpus", []),
    }
    for reason, applies in left_alone.items():
        if applies:
            return LoadingStep("nothing", bool(loaded), reason)
    if request.method == "none" or (loaded and version in (loaded, None)):
        return LoadingStep("nothing", bool(loaded))
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
    reason = (
        f"driver {version} is installed and "
        + (f"{loaded} is loaded" if loaded else "none is loaded")
        + f"; {blocked}"
    )
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
