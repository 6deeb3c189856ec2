"""Where the roles put things on the hosts."""

from __future__ import annotations

from dataclasses import dataclass

from hvlab.lab.inventory import Lab


@dataclass(frozen=True)
class Folders:
    """Open MPI, the folder of Horovod's variants, and that of the benchmark programs."""

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
