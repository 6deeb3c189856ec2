"""Labs and cases made in memory, for the tests."""

from pathlib import Path
from typing import Any

from hvlab.inventory import Host, Lab
from hvlab.matrix import Case, Spec, expand


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


def spec(*backends: str, **changes: Any) -> Spec:
    """Return a small specification."""
    asked: dict[str, Any] = {"backends": backends, "hosts": (2,), "slots": (1,), "sizes": (1024, 4096)}
    return Spec(**(asked | changes))


def case(backend: str = "mpi", **changes: Any) -> Case:
    """Return one case on a lab of three hosts."""
    return expand(spec(backend, **changes), lab(gpu=("n1", "n2", "n3")))[0][0]
