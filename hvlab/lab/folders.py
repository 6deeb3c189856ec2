"""Where the roles put things on the hosts."""

from __future__ import annotations

from dataclasses import dataclass

from hvlab.lab.inventory import Lab

ROOT = "/opt/hvlab"
STACKS = f"{ROOT}/stacks"
# Where packs are built.
BUILDS = "/var/cache/hvlab/build"


@dataclass(frozen=True)
class Folders:
    """Open MPI, the folder of Horovod's variants, and that of the benchmark programs."""

    openmpi: str
    horovod: str
    workloads: str


def parameters_file(stack: str) -> str:
    """Return the file of Open MPI's parameters of a stack beside the lab's own."""
    return f"{STACKS}/{stack}/openmpi-mca-params.conf"


def folders(lab: Lab, stack: str = "") -> Folders:
    """Return the folders, the inventory's own where it names some; those of ``stack``, if it is named."""
    own = (lab.text("openmpi_prefix", "/opt/hvlab/openmpi"), lab.text("horovod_prefix", "/opt/hvlab/horovod"))
    openmpi, horovod = (f"{STACKS}/{stack}/openmpi", f"{STACKS}/{stack}/horovod") if stack else own
    return Folders(f"{openmpi}/current", horovod, lab.text("workloads_dir", "/opt/hvlab/workloads"))
