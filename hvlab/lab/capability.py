"""Which hosts cannot run a case, by their facts, before any rank starts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.lab.backends import BACKENDS, HOROVOD
from hvlab.lab.environment import recorded_by_role


@dataclass(frozen=True)
class Refusal:
    """Why hosts cannot run something, and what to do."""

    observed: str
    remedy: str


def refusal(case: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]) -> Refusal | None:
    """Return why these hosts cannot run a case.

    Of it count ``backend``, ``variant``, ``stack``, ``device`` and ``slots``.
    """
    observed = not_built(case["backend"], case["variant"], facts)
    if observed and case["stack"]:
        return Refusal(f"stack {case['stack']}: {observed}", "name an installed one, or leave out stack=")
    if observed:
        return Refusal(observed, "build it (`hvlab provision`)")
    # The ranks of DDP are started by Open MPI at most.
    by_mpi = (
        BACKENDS[case["backend"]].framework == HOROVOD and "mpirun" in BACKENDS[case["backend"]].launchers
    )
    mixed = differing_ucx(facts) if by_mpi else None
    if mixed:
        return mixed
    return without_gpu(case["backend"], case["slots"], facts) if case["device"] == "cuda" else None


def without_gpu(backend: str, slots: int, facts: Mapping[str, Mapping[str, Any]]) -> Refusal | None:
    """Return which hosts have too few GPUs for ``slots`` ranks each; None when all have enough.

    Each rank of NCCL needs a GPU of its own; ranks of MPI can share one.
    """
    needed = slots if BACKENDS[backend].gpu else 1
    checks = (_check_gpus(host, of_host.get("hvlab") or {}, needed) for host, of_host in facts.items())
    refusals = [refusal for refusal in checks if refusal]
    if not refusals:
        return None
    remedies = dict.fromkeys(refusal.remedy for refusal in refusals)
    return Refusal("; ".join(refusal.observed for refusal in refusals), "; ".join(remedies))


def differing_ucx(facts: Mapping[str, Mapping[str, Any]]) -> Refusal | None:
    """Return which hosts' Open MPI is without UCX while that of others has it: such ranks never connect."""
    with_ucx = {
        host: bool(recorded_by_role(of_host, "openmpi").get("ucx")) for host, of_host in facts.items()
    }
    without = [host for host, built in with_ucx.items() if not built]
    if not without or len(without) == len(facts):
        return None
    others = [host for host, built in with_ucx.items() if built]
    observed = f"Open MPI was built without UCX on {', '.join(without)} and with it on {', '.join(others)}"
    return Refusal(
        observed, "set openmpi_ucx to true or to false for all hosts and run `hvlab provision -t openmpi`"
    )


def _check_gpus(host: str, facts: Mapping[str, Any], needed: int) -> Refusal | None:
    usable = [gpu for gpu in facts.get("gpus") or [] if gpu.get("uuid")]
    driver_error = facts.get("driver_error")
    if len(usable) >= needed:
        return None
    if usable:
        observed = f"{host} has {len(usable)} usable GPUs for {needed} ranks"
        if driver_error:
            return Refusal(
                f"{observed} (nvidia-smi reports: {driver_error})", "repair the GPU, or reboot the host"
            )
        return Refusal(observed, f"ask for --slots {len(usable)} or fewer")
    if driver_error:
        remedy = "run `hvlab provision -t nvidia_driver`, which reloads the driver, or reboot the host"
        return Refusal(f"{host} has no usable GPU: nvidia-smi reports: {driver_error}", remedy)
    if facts.get("gpus"):
        observed = f"{host} has {len(facts['gpus'])} NVIDIA GPUs, but no driver for them"
        return Refusal(observed, "run `hvlab provision -t nvidia_driver`")
    observed = f"{host} is in the group gpu, but shows no NVIDIA GPU"
    return Refusal(observed, "look at `lspci -d 10de:` there, or take the host out of the group gpu")


def not_built(backend: str, variant: str, facts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return why these hosts cannot run ``backend``, from what the role recorded there; None if they can."""
    absent, without = [], []
    for host, of_host in facts.items():
        operations = built(of_host).get(variant)
        if operations is None:
            absent.append(host)
        elif BACKENDS[backend].framework == HOROVOD and backend not in operations:
            without.append(host)
    reasons = []
    if absent:
        reasons.append(f"Horovod's variant {variant} is not installed on {', '.join(absent)}")
    if without:
        reasons.append(f"Horovod's variant {variant} was built without {backend} on {', '.join(without)}")
    return "; ".join(reasons) or None


def built(facts: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the backends of each Horovod variant installed on a host, from its facts."""
    recorded = recorded_by_role(facts, "horovod")
    return {
        name: frozenset(map(str.lower, item.get("operations") or ()))
        for name, item in (recorded.get("variants") or {}).items()
    }
