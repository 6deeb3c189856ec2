"""What a host can run: the table of backends, a lab's Horovod variants, and what facts say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hvlab.errors import UsageError, unknown
from hvlab.lab import environment
from hvlab.lab.inventory import Host, Lab

# As the role horovod has it.
DEFAULT_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"mpi": True, "gloo": True, "ccl": True, "gpu_operations": ""}
}


@dataclass(frozen=True)
class Backend:
    """A data plane: who may start its ranks (the first by default), and how the ranks are told to use it.

    ``env`` may hold ``{interface}``. ``proof`` is how the activities of Horovod's timeline begin that this
    backend, and no other, carries. ``parallel`` is False for one process alone, without Horovod.
    """

    name: str
    launchers: tuple[str, ...]
    proof: str
    gpu: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    parallel: bool = True


BACKENDS: Mapping[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            "mpi",
            ("mpirun",),
            proof="MPI_",
            env={"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "MPI"},
        ),
        Backend(
            "gloo",
            ("horovodrun",),
            proof="GLOO_",
            env={"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "GLOO"},
        ),
        Backend(
            "nccl",
            ("mpirun",),
            proof="NCCL_",
            gpu=True,
            env={"HOROVOD_CONTROLLER": "mpi", "NCCL_SOCKET_IFNAME": "{interface}"},
        ),
        Backend(
            "ccl",
            ("mpirun",),
            proof="CCL_",
            env={
                "HOROVOD_CONTROLLER": "mpi",
                "HOROVOD_CPU_OPERATIONS": "CCL",
                "CCL_ATL_TRANSPORT": "ofi",
                "FI_PROVIDER": "tcp",
                "FI_TCP_IFACE": "{interface}",
                "CCL_KVS_IFACE": "{interface}",
                "CCL_OFI_LIBRARY_PATH": "libfabric.so.1",
                "CCL_LOG_LEVEL": "error",
            },
        ),
        Backend("serial", ("local",), proof="", parallel=False),
    )
}
PARALLEL = tuple(backend.name for backend in BACKENDS.values() if backend.parallel)


@dataclass(frozen=True)
class Folders:
    """Where the roles put things on the hosts."""

    openmpi: str
    horovod: str
    workloads: str


def folders(lab: Lab) -> Folders:
    """Return the folders, the inventory's own where it names some."""
    return Folders(
        openmpi=lab.text("openmpi_prefix", "/opt/hvlab/openmpi") + "/current",
        horovod=lab.text("horovod_prefix", "/opt/hvlab/horovod"),
        workloads=lab.text("workloads_dir", "/opt/hvlab/workloads"),
    )


def variants(host: Host) -> dict[str, frozenset[str]]:
    """Return the Horovod variants the inventory asks for on this host, with the backends of each."""
    return {
        name: frozenset(
            backend
            for backend in PARALLEL
            if item.get(backend) is True
            # Its ranks are started, and find one another, by MPI.
            or (backend == "nccl" == _gpu_plane(item) and item.get("mpi") is not False)
        )
        for name, item in _asked(host).items()
    }


def device(
    backend: str, hosts: Sequence[Host], operation: str = "allreduce", framework: str = "torch"
) -> str:
    """Return where the ranks' tensors have to be for ``backend`` to carry ``operation``: cpu or cuda."""
    if BACKENDS[backend].gpu:
        return "cuda"
    variant = variant_for(backend, hosts, framework)
    return "cuda" if variant and _on_gpu(backend, variant, hosts, operation) else "cpu"


def carries(backend: str, operation: str, hosts: Iterable[Host], framework: str = "torch") -> bool:
    """Return whether ``backend`` itself carries a collective there; where it does not, MPI would.

    horovod 0.28.1, CreateOperationManager in common/operations.cc.
    """
    if backend == "ccl":
        return operation != "reducescatter"
    if backend != "nccl":
        return True
    hosts = list(hosts)
    variant = variant_for(backend, hosts, framework)
    return variant is not None and all(
        _gpu_plane(_asked(host)[variant], operation) == "nccl" for host in hosts
    )


def _asked(host: Host) -> Mapping[str, Mapping[str, Any]]:
    """Return the Horovod variants as the inventory has them."""
    found: Mapping[str, Mapping[str, Any]] = host.vars.get("horovod_variants", DEFAULT_VARIANTS)
    return found


def _frameworks(variant: Mapping[str, Any]) -> Sequence[str]:
    """Return the frameworks that a variant is built for."""
    found: Sequence[str] = variant.get("frameworks") or ("torch",)
    return found


def _on_gpu(backend: str, variant: str, hosts: Iterable[Host], operation: str = "allreduce") -> bool:
    """Return whether ``backend`` carries GPU memory there; a host cannot use GPUs that ``lab_gpus`` names."""
    for host in hosts:
        plane = _gpu_plane(_asked(host)[variant], operation)
        usable = host.gpu and not host.virtual and not host.vars.get("lab_gpus")
        if not usable or not (plane == backend or (plane and not BACKENDS[backend].parallel)):
            return False
    return True


def _gpu_plane(variant: Mapping[str, Any], operation: str = "allreduce") -> str:
    """Return what carries tensors in GPU memory in an operation; an empty text for nothing."""
    operations = variant.get("gpu_operations") or ""
    return str(operations.get(operation, "") if isinstance(operations, Mapping) else operations)


def variant_for(backend: str, hosts: Iterable[Host], framework: str | None = "torch") -> str | None:
    """Return the variant that has ``backend`` on every one of ``hosts``; None where there is none.

    Where several have it: one with which ``backend`` carries GPU memory, else the first. One process alone
    can use any. The variant is one for ``framework``, unless that is None.
    """
    hosts = list(hosts)
    if BACKENDS[backend].gpu and not all(host.gpu for host in hosts):
        return None
    common = [variants(host) for host in hosts]
    parallel = BACKENDS[backend].parallel
    having = [
        name
        for name in (common[0] if common else ())
        if all(name in found and (backend in found[name] or not parallel) for found in common)
        and all(framework in (None, *_frameworks(_asked(host)[name])) for host in hosts)
    ]
    return next((name for name in having if _on_gpu(backend, name, hosts)), having[0] if having else None)


def available(hosts: Sequence[Host]) -> list[str]:
    """Return the data planes that all of ``hosts`` can run, as the inventory has it."""
    return [name for name in PARALLEL if variant_for(name, hosts, None)]


def lacking(backend: str, hosts: Sequence[Host], framework: str | None = None) -> str | None:
    """Return why these hosts cannot run ``backend``, as the inventory has it; None where they can.

    With ``framework`` the backend has to be built for it, else for any.
    """
    if variant_for(backend, hosts, framework):
        return None
    without = [host.name for host in hosts if BACKENDS[backend].gpu and not host.gpu]
    if without:
        return f"backend {backend} needs an NVIDIA GPU, and these hosts have none: {', '.join(without)}"
    bare = [host.name for host in hosts if not variant_for(backend, [host], framework)]
    built = f"{backend} for {framework}" if framework else backend
    return f"no Horovod variant of the inventory has {built} on {', '.join(bare) or 'all hosts alike'}"


def choose(wanted: Sequence[str], lab: Lab) -> list[str]:
    """Return the backends to measure: those wanted, or all data planes that the hosts can run.

    Raises UsageError for an unknown backend and for one that some host cannot run.
    """
    usable = available(lab.hosts)
    works = f"these would work here: {', '.join(usable) or 'none'}"
    for name in wanted:
        if name not in BACKENDS:
            raise unknown("backend", name, BACKENDS)
        seen = lacking(name, lab.hosts)
        if seen is None:
            continue
        remedy = "or add it to horovod_variants and run `hvlab provision`"
        if BACKENDS[name].gpu and not all(host.gpu for host in lab.hosts):
            remedy = "hosts that do have GPUs belong in the inventory's group gpu"
        raise UsageError(seen, remedy=f"{works}; {remedy}")
    if not usable:
        raise UsageError("these hosts can run no backend", remedy="look at horovod_variants in the inventory")
    return list(dict.fromkeys(wanted)) or usable


def summary(facts: Mapping[str, Mapping[str, Any]], variant: str) -> dict[str, Any]:
    """Return the stack that a record keeps: versions that are the same everywhere, by host where not."""
    rows = {host: _versions(found, variant) for host, found in facts.items()}
    keys = dict.fromkeys(key for row in rows.values() for key in row)
    told: dict[str, Any] = {}
    for key in keys:
        values = {host: row.get(key) for host, row in rows.items()}
        distinct = set(values.values())
        told[key] = distinct.pop() if len(distinct) == 1 else values
    return told


def _versions(facts: Mapping[str, Any], variant: str) -> dict[str, Any]:
    local = facts.get("ansible_local") or {}
    horovod = ((local.get("hvlab_horovod") or {}).get("variants") or {}).get(variant) or {}
    packages = (facts.get("hvlab") or {}).get("packages") or {}
    environments = (local.get("hvlab_python_env") or {}).get("environments") or {}
    found = {
        "os": f"{facts.get('distribution')} {facts.get('distribution_version')}",
        "kernel": facts.get("kernel"),
        "architecture": facts.get("architecture"),
        "cpus": facts.get("processor_vcpus"),
        "gcc": (facts.get("hvlab") or {}).get("gcc"),
        "openmpi": (local.get("hvlab_openmpi") or {}).get("version"),
        "horovod": horovod.get("version") or (local.get("hvlab_horovod") or {}).get("version"),
        **{item["framework"]: item["version"] for item in environments.values()},
        "libfabric": packages.get("libfabric1"),
        **environment.hardware(facts),
    }
    return {key: value for key, value in found.items() if value is not None}
