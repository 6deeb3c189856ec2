"""Labs and cases made in memory, for the tests."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from hvlab.bench.matrix import Block, Case, Spec, expand
from hvlab.lab.inventory import Host, Lab


def lab(
    count: int = 3, *, slots: int = 2, gpu: tuple[str, ...] = (), virtual: bool = False, **variables: Any
) -> Lab:
    """Return a lab n1..nN."""
    hosts = tuple(
        Host(
            name=f"n{i}",
            address=f"10.0.0.{i}",
            port=22,
            user="root",
            slots=slots,
            groups=frozenset(["all", *["gpu"] * (f"n{i}" in gpu), *["virtual"] * virtual]),
            vars=variables,
        )
        for i in range(1, count + 1)
    )
    return Lab("t", Path("/nowhere"), "10.0.0.0/24", "eth0", hosts, variables)


def block(*backends: str, workload: str = "allreduce", **changes: Any) -> Block:
    """Return a small block; what is no axis of places is a parameter, one value or several."""
    asked: dict[str, Any] = {"hosts": (2,), "slots": (1,)}
    places = {name: changes.pop(name, default) for name, default in asked.items()}
    if "sizes" in changes or workload in ("allreduce", "broadcast", "allgather", "alltoall", "reducescatter"):
        changes["sizes"] = (changes.pop("sizes", (1024, 4096)),)
    axes = {name: value if isinstance(value, tuple) else (value,) for name, value in changes.items()}
    return Block(workload, backends, axes=axes, **places)


def spec(*backends: str, **changes: Any) -> Spec:
    """Return a small specification of one block."""
    own = {field.name: changes.pop(field.name) for field in fields(Spec) if field.name in changes}
    return Spec(**{"blocks": (block(*backends, **changes),), "asked": True, **own})


def case(backend: str = "mpi", **changes: Any) -> Case:
    """Return one case on a lab of three hosts."""
    return expand(spec(backend, **changes), lab(gpu=("n1", "n2", "n3"), horovod_variants=VARIANTS))[0][0]


VARIANTS = {
    "cpu": {"mpi": True, "gloo": True, "ccl": True, "gpu_operations": ""},
    "nccl": {"mpi": True, "gpu_operations": "nccl"},
}
