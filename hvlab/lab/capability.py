"""Why hosts cannot run a case, told from their facts before any rank starts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Refusal:
    """Why hosts cannot run something, and what to do."""

    seen: str
    remedy: str


def refusal(case: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]) -> Refusal | None:
    """Return why these hosts cannot run a case (``backend``, ``variant``, ``device``, ``slots``)."""
    seen = not_built(case["backend"], case["variant"], facts)
    if seen:
        return Refusal(seen, "build it (`hvlab provision`)")
    return without_gpu(case["backend"], case["slots"], facts) if case["device"] == "cuda" else None


def without_gpu(backend: str, slots: int, facts: Mapping[str, Mapping[str, Any]]) -> Refusal | None:
    """Return which hosts have too few GPUs for ``slots`` ranks each; None when all have enough.

    Each rank of NCCL needs a GPU of its own; ranks of MPI can share one.
    """
    needed = slots if backend == "nccl" else 1
    lacking = {host: _lacking(host, found.get("hvlab") or {}, needed) for host, found in facts.items()}
    told = [refused for refused in lacking.values() if refused]
    if not told:
        return None
    remedies = dict.fromkeys(refused.remedy for refused in told)
    return Refusal("; ".join(refused.seen for refused in told), "; ".join(remedies))


def _lacking(host: str, seen: Mapping[str, Any], needed: int) -> Refusal | None:
    usable = [gpu for gpu in seen.get("gpus") or [] if gpu.get("uuid")]
    complaint = seen.get("driver_error")
    if len(usable) >= needed:
        return None
    if usable:
        told = f"{host} has {len(usable)} usable GPUs for {needed} ranks"
        if complaint:
            return Refusal(f"{told} (nvidia-smi says: {complaint})", "mend the GPU, or reboot the host")
        return Refusal(told, f"ask for --slots {len(usable)} or fewer")
    if complaint:
        mend = "run `hvlab provision -t nvidia_driver`, which loads the driver anew, or reboot the host"
        return Refusal(f"{host} has no usable GPU: nvidia-smi says: {complaint}", mend)
    if seen.get("gpus"):
        told = f"{host} has {len(seen['gpus'])} NVIDIA GPUs, but no driver for them"
        return Refusal(told, "run `hvlab provision -t nvidia_driver`")
    told = f"{host} is in the group gpu, but shows no NVIDIA GPU"
    return Refusal(told, "look at `lspci -d 10de:` there, or take the host out of the group gpu")


def not_built(backend: str, variant: str, facts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return why these hosts cannot run ``backend``, from what the role recorded there; None if they can."""
    absent, lacking = [], []
    for host, found in facts.items():
        operations = built(found).get(variant)
        if operations is None:
            absent.append(host)
        elif backend != "serial" and backend not in operations:
            lacking.append(host)
    told = []
    if absent:
        told.append(f"Horovod's variant {variant} is not installed on {', '.join(absent)}")
    if lacking:
        told.append(f"Horovod's variant {variant} was built without {backend} on {', '.join(lacking)}")
    return "; ".join(told) or None


def built(facts: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the backends of each Horovod variant installed on a host, from its facts."""
    recorded = (facts.get("ansible_local") or {}).get("hvlab_horovod") or {}
    return {
        name: frozenset(map(str.lower, item.get("operations", ())))
        for name, item in (recorded.get("variants") or {}).items()
    }
