"""The fabric of NVSwitch machines: is the fabric manager at work, and every GPU part of the fabric?

Without it CUDA fails with error 802, system not yet initialized. Only machines with NVSwitches have it:
those whose switches stand on the PCI bus (A100, H100) need the service; where the GPU says that it belongs to
a fabric (from Hopper on), its state decides, wherever the manager runs.
https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from hvlab.checks.node import pci, smi
from hvlab.checks.node.finding import Fault, Finding, hard, judge, passed, skipped

_SERVICE, _PROCESS = "fabric manager", "fabric manager process"
QUESTIONS: Dict[str, Dict[str, Any]] = {
    **smi.QUESTION,
    **pci.QUESTION,
    _SERVICE: {"run": ["systemctl", "is-active", "nvidia-fabricmanager"], "timeout": 10},
    # In a container it runs without the service. The kernel keeps 15 characters of a name.
    _PROCESS: {"run": ["pgrep", "-x", "nv-fabricmanage"], "timeout": 10},
}
CHECKS = {"fabric manager": "hard", "fabric state": "hard"}
LEARNED: Tuple[str, ...] = ("gpu_fabric_state",)

_START = (
    "systemctl enable --now nvidia-fabricmanager (of the driver's version; on HGX B200 and B300 it also "
    "needs nvlsm and the module ib_umad)"
)


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``gpus``, the state that all share, of the service, and how many NVSwitches the PCI bus has."""
    gpus = smi.gpus(answers)
    values = {"gpus": gpus, **smi.shared(gpus, {"gpu_fabric_state": "fabric_state"})}
    service, process = answers.get(_SERVICE), answers.get(_PROCESS)
    if isinstance(process, dict) and process.get("rc") == 0:
        values["fabric_manager"] = "active"
    elif isinstance(service, dict) and str(service.get("out", "")).strip():
        values["fabric_manager"] = str(service["out"]).split()[0]
    values["nvswitch_count"] = len(pci.addresses(answers, pci.NVSWITCH))
    return values


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Return the outcome of the checks of the fabric; without GPUs there is nothing to say."""
    gpus = values.get("gpus", [])
    if not gpus:
        return []
    belong = bool(expected.get("gpu_fabric_state"))
    return [_manager(values), *_states(gpus, values.get("fabric_manager"), all_belong=belong)]


def _manager(values: Mapping[str, Any]) -> Finding:
    check, state = "fabric manager", values.get("fabric_manager")
    switches = values.get("nvswitch_count", 0)
    if not switches:
        return skipped(check, "no NVSwitch on the PCI bus")
    if state is None:
        return skipped(check, "systemctl gave no answer")
    if state != "active":
        return hard(check, f"{switches} NVSwitches, and nvidia-fabricmanager is {state}", _START)
    return passed(check, f"{switches} NVSwitches")


def _states(gpus: List[smi.Gpu], manager: Optional[str], *, all_belong: bool) -> List[Finding]:
    models = {gpu.get("model") for gpu in gpus if all_belong or "fabric_state" in gpu}
    if not models:
        return [skipped("fabric state", "these GPUs belong to no fabric")]
    # A card for a display beside them belongs to none.
    members = [gpu for gpu in gpus if gpu.get("model") in {*models, None}]

    def fault(gpu: Mapping[str, Any]) -> Optional[Fault]:
        state, status = gpu.get("fabric_state", "not known"), gpu.get("fabric_status", "Success")
        if state != "Completed" or status != "Success":
            service = f", nvidia-fabricmanager is {manager}" if manager else ""
            return Fault(
                "hard", f"fabric {state}, status {status}{service}", f"{_START}; then reset the GPUs"
            )
        bad = gpu.get("fabric_configuration", "None")
        if gpu.get("fabric_health") == "Unhealthy" or gpu.get("fabric_route_unhealthy") or bad != "None":
            cause = f": {bad}" if bad != "None" else ""
            return Fault(
                "hard", f"fabric unhealthy{cause}", "look at the fabric manager's log, reset the GPUs"
            )
        if gpu.get("fabric_bandwidth") == "Degraded" or gpu.get("fabric_health") == "Limited Capacity":
            return Fault("soft", "the fabric's bandwidth is degraded", "look for NVLinks that are down")
        return None

    return judge("fabric state", members, fault)
