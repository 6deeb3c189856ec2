"""Which backends hosts can run: by the inventory's Horovod variants, and by their facts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.base.errors import UsageError, explain_unknown, some
from hvlab.lab.backends import BACKENDS, DDP, DDP_BACKENDS, HOROVOD, PARALLEL, SHIM, of_framework
from hvlab.lab.environment import read_role_record
from hvlab.lab.inventory import Host, Lab
from hvlab.lab.pin_variables import TORCH

_TORCH = "torch"
# What stands where Horovod's variants would, with ``lab_horovod: torch``.
_TORCH_ALONE: Mapping[str, Mapping[str, Any]] = {TORCH: {"frameworks": [_TORCH]}}
# As the role horovod has it.
DEFAULT_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"mpi": True, "gloo": True, "ccl": True, "gpu_operations": ""}
}


def variants(host: Host) -> dict[str, frozenset[str]]:
    """Return the Horovod variants the inventory asks for on this host, with the backends of each."""
    return {
        name: frozenset(
            backend
            for backend in PARALLEL
            if item.get(backend) is True
            # Its ranks are started, and find one another, by MPI.
            or (BACKENDS[backend].gpu and _gpu_plane(item) == backend and item.get("mpi") is not False)
        )
        for name, item in _read_requested(host).items()
    }


def device(
    backend: str, hosts: Sequence[Host], operation: str = "allreduce", framework: str = "torch"
) -> str:
    """Return the device of the ranks' tensors if ``backend`` carries ``operation``: cpu or cuda."""
    if BACKENDS[backend].gpu:
        return "cuda"
    variant = variant_for(backend, hosts, framework)
    return "cuda" if variant and _is_on_gpu(backend, variant, hosts, operation) else "cpu"


def carries(backend: str, operation: str, hosts: Iterable[Host], framework: str = "torch") -> bool:
    """Whether ``backend`` itself carries a collective there; otherwise MPI would.

    horovod 0.28.1, CreateOperationManager in common/operations.cc.
    """
    if operation in BACKENDS[backend].unsupported_operations:
        return False
    if not BACKENDS[backend].gpu or BACKENDS[backend].group:
        return True
    hosts = list(hosts)
    variant = variant_for(backend, hosts, framework)
    return variant is not None and all(
        _gpu_plane(_read_requested(host)[variant], operation) == backend for host in hosts
    )


def _read_requested(host: Host) -> Mapping[str, Mapping[str, Any]]:
    if is_without_horovod(host):
        return _TORCH_ALONE
    variants: Mapping[str, Mapping[str, Any]] = host.vars.get("horovod_variants", DEFAULT_VARIANTS)
    return variants


def is_without_horovod(host: Host) -> bool:
    """Whether the inventory asks for torch in Horovod's place, and so for no MPI either."""
    return host.vars.get("lab_horovod") == TORCH


def launchers(backend: str, hosts: Iterable[Host]) -> tuple[str, ...]:
    """Return the launchers that these hosts have for a backend, the usual one first."""
    own = BACKENDS[backend].launchers
    bare = any(map(is_without_horovod, hosts))
    return tuple(name for name in own if not (bare and name in ("horovodrun", "mpirun"))) or own


def computes_on_gpu(host: Host) -> bool:
    """Whether ranks there can use GPUs: on a host that only builds, ``lab_gpus`` names others'."""
    builds = host.vars.get("lab_gpus") and host.vars.get("lab_driver_method") == "none"
    return host.gpu and not host.virtual and not builds


def _is_on_gpu(backend: str, variant: str, hosts: Iterable[Host], operation: str = "allreduce") -> bool:
    for host in hosts:
        plane = _gpu_plane(_read_requested(host)[variant], operation)
        if not computes_on_gpu(host) or not (plane == backend or (plane and not BACKENDS[backend].parallel)):
            return False
    return True


def _gpu_plane(variant: Mapping[str, Any], operation: str = "allreduce") -> str:
    """Return the backend for tensors in GPU memory in an operation; an empty text if there is none."""
    operations = variant.get("gpu_operations") or ""
    return str(operations.get(operation, "") if isinstance(operations, Mapping) else operations)


def variant_for(backend: str, hosts: Iterable[Host], framework: str | None = "torch") -> str | None:
    """Return the variant that has ``backend`` on every one of ``hosts``; None without one.

    Where several have it: one with which ``backend`` carries GPU memory, else the first. One process alone,
    DDP and FSDP can use any, for torch is beside Horovod in it. The variant is one for ``framework``, unless
    that is None.
    """
    hosts = list(hosts)
    if BACKENDS[backend].gpu and not all(host.gpu for host in hosts):
        return None
    common = [variants(host) for host in hosts]
    by_horovod = BACKENDS[backend].framework == HOROVOD
    if BACKENDS[backend].group:
        if framework not in (None, _TORCH):
            return None
        framework = _TORCH
    candidates = [
        name
        for name in (common[0] if common else ())
        if all(name in on_host and (backend in on_host[name] or not by_horovod) for on_host in common)
        and all(
            framework in (None, *(_read_requested(host)[name].get("frameworks") or [_TORCH]))
            for host in hosts
        )
    ]
    on_gpu = (name for name in candidates if _is_on_gpu(backend, name, hosts))
    return next(on_gpu, candidates[0] if candidates else None)


def available(hosts: Sequence[Host]) -> list[str]:
    """Return the data planes that all of ``hosts`` can run, as the inventory has it.

    They are Horovod's, or hvlab_horovod's where torch is in Horovod's place.
    """
    return [name for name in (in_place(name, hosts) for name in PARALLEL) if variant_for(name, hosts, None)]


def in_place(backend: str, hosts: Sequence[Host]) -> str:
    """Return a backend of Horovod, or hvlab_horovod's like it where torch is in Horovod's place."""
    bare = any(map(is_without_horovod, hosts)) and backend in PARALLEL
    return of_framework(backend, SHIM) or backend if bare else backend


def side_by_side(libraries: Sequence[str], lab: Lab) -> tuple[str, ...]:
    """Return the backends of ``libraries`` that carry the same: those of GPUs where the hosts have some.

    Horovod's are those that DDP has, too. Raises UsageError if the hosts can run none of torch's.
    """
    usable = available(lab.hosts)
    on_gpu = [name for name in usable if BACKENDS[name].gpu]
    shared = [name for name in on_gpu or usable if of_framework(name, DDP)]
    pairs = [of_framework(name, library) for library in libraries for name in shared]
    others = dict.fromkeys(in_place(name, lab.hosts) for name in pairs if name)
    chosen = [name for name in others if BACKENDS[name].wheel and variant_for(name, lab.hosts, None)]
    if not any(BACKENDS[name].group for name in chosen):
        raise UsageError(
            "these hosts can run no backend of DDP",
            remedy=_add("it needs torch: look at the frameworks of horovod_variants in the inventory", lab),
        )
    return tuple(chosen)


def unavailable(backend: str, hosts: Sequence[Host], framework: str | None = None) -> str | None:
    """Return the obstacle to ``backend`` on these hosts, by the inventory; None if there is none.

    With ``framework`` the backend has to be built for it, else for any.
    """
    if variant_for(backend, hosts, framework):
        return None
    without = [host.name for host in hosts if BACKENDS[backend].gpu and not host.gpu]
    if without:
        return f"backend {backend} needs an NVIDIA GPU, and these hosts have none: {some(without)}"
    bare = [host.name for host in hosts if not variant_for(backend, [host], framework)]
    prepared = hosts[0].prepared
    if not BACKENDS[backend].group and any(map(is_without_horovod, hosts)):
        asked = " (lab_horovod: torch)" * prepared
        return f"it is Horovod's, and torch is alone on {some(bare)}{asked}"
    built = f"{backend} for {framework}" if framework else backend
    if BACKENDS[backend].group and framework not in (None, _TORCH):
        return f"{backend} is torch's own, and has nothing for {framework}"
    whose = " variant of the inventory" * prepared
    return f"no Horovod{whose} has {built} on {some(bare) or 'all hosts alike'}"


def choose(requested: Sequence[str], lab: Lab) -> list[str]:
    """Return the backends to measure: those requested, or all data planes that the hosts can run.

    Raises UsageError for an unknown backend and for one that some host cannot run.
    """
    usable = available(lab.hosts)
    for name in requested:
        if name not in BACKENDS:
            raise explain_unknown("backend", name, BACKENDS)
        obstacle = unavailable(name, lab.hosts)
        if obstacle is None:
            continue
        remedy = "or add it to horovod_variants and run `hvlab provision`"
        if any(map(is_without_horovod, lab.hosts)):
            obstacle = f"backend {name}: {obstacle}"
            remedy = "or take lab_horovod: torch out of the inventory and run `hvlab provision`"
        if BACKENDS[name].gpu and not all(host.gpu for host in lab.hosts):
            remedy = "hosts that do have GPUs belong in the inventory's group gpu"
        if not lab.prepared:
            own = (one for one, backend in BACKENDS.items() if backend.group and backend.wheel)
            usable = list(dict.fromkeys([*usable, *(one for one in own if variant_for(one, lab.hosts))]))
        raise UsageError(
            obstacle, remedy=f"these would work here: {', '.join(usable) or 'none'}; {_add(remedy, lab)}"
        )
    if not usable and not requested:
        raise UsageError(
            "these hosts can run no backend of Horovod",
            remedy=f"{_add('look at horovod_variants in the inventory', lab)}; where there is torch alone, "
            f"name a backend of DDP: --backend {' or '.join(DDP_BACKENDS)}",
        )
    return list(dict.fromkeys(requested)) or usable


def _add(remedy: str, lab: Lab) -> str:
    """Return how a lab gets what it lacks: the ``remedy`` where hvlab's roles install it."""
    return remedy if lab.prepared else "name a Python that has it: --python"


@dataclass(frozen=True)
class Refusal:
    """Why hosts cannot run something, and what to do."""

    observed: str
    remedy: str


def refusal(case: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]) -> Refusal | None:
    """Return the refusal of a case, by its ``backend``, ``variant``, ``stack``, ``device`` and ``slots``."""
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
    """Return the hosts with too few GPUs for ``slots`` ranks each; None when all have enough.

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
    """Return the hosts whose Open MPI lacks UCX while others' has it: such ranks never connect."""
    with_ucx = {
        host: bool(read_role_record(of_host, "openmpi").get("ucx")) for host, of_host in facts.items()
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
    """Return the obstacle to ``backend`` on these hosts, by the role's records; None if there is none."""
    absent, without = [], []
    for host, of_host in facts.items():
        operations = read_built(of_host).get(variant)
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


def read_built(facts: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the backends of each Horovod variant installed on a host, from its facts."""
    recorded = read_role_record(facts, "horovod")
    return {
        name: frozenset(map(str.lower, item.get("operations") or ()))
        for name, item in (recorded.get("variants") or {}).items()
    }
