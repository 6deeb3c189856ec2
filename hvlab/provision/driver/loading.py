"""How the installed driver comes into use."""

from __future__ import annotations

from dataclasses import dataclass

from hvlab.errors import Problem
from hvlab.provision.driver.host import Host, Wish, installed_version


@dataclass(frozen=True)
class Step:
    """What brings the installed driver into use. ``action`` is nothing, load, reload or reboot."""

    action: str
    loaded: bool
    reason: str = ""
    problem: Problem | None = None


def loading(host: Host, wish: Wish, *, stuck: str = "", local: bool = False) -> Step:
    """Return what is to be done so that the installed driver is the one in use.

    ``stuck`` is why modules could not be unloaded. A host that is the controller itself (``local``) is
    never rebooted.
    """
    running, wanted = host.seen.get("loaded"), installed_version(host, wish.kernel)
    kept = {
        "nvidia_driver_load is never": wish.load == "never",
        "there is no NVIDIA GPU on the PCI bus": not host.own("gpus", []),
    }
    for reason, applies in kept.items():
        if applies:
            return Step("nothing", bool(running), reason)
    if wish.method == "none" or (running and wanted in (running, None)):
        return Step("nothing", bool(running))
    if wish.kernel != host.running:
        return Step("nothing", False, f"it is built for kernel {wish.kernel}, and {host.running} runs")
    blocked = stuck
    if running and not blocked and host.holders:
        blocked = f"{', '.join(host.holders)} use it"
    if not running and host.seen.get("nouveau"):
        blocked = "nouveau is loaded"
    if not blocked:
        return Step("reload" if running else "load", False)
    seen = (
        f"driver {wanted} is installed and "
        + (f"{running} is loaded" if running else "none is loaded")
        + f"; {blocked}"
    )
    if wish.reboot == "auto" and not local:
        return Step("reboot", False, seen)
    remedy = "reboot it" if local else "reboot it, or set nvidia_driver_reboot: auto"
    if host.holders:
        remedy = f"end these processes and run again, or {remedy}"
    return Step("nothing", False, seen, Problem(host.name, seen, remedy))
