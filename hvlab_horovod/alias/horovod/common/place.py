"""Which rank this process is, and where the ranks meet, as their launcher says. Needs no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

# Rank, size, and both on this host, which may be missing: of hvlab-run and horovodrun, Open MPI, torchrun,
# MVAPICH, MPICH and Intel MPI (which start their own processes by srun), Slurm's srun.
NAMES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
)
FIRST_PORT, PORTS = 20000, 10000


@dataclass(frozen=True)
class Place:
    """``local_rank`` is -1 and ``local_size`` 0 if unknown; ``port`` 0 leaves the choice to the system."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    address: str = "127.0.0.1"
    port: int = 0


def find(environment: Mapping[str, str] = os.environ) -> Place:
    """Return this process' place, alone without a launcher. Raises RuntimeError without a meeting place."""
    for names in NAMES:
        # Slurm's are set in a batch script, too, which srun has not started.
        if all(name in environment for name in names[:2]) and not (
            names[0] == "SLURM_PROCID" and environment.get("SLURM_STEP_ID") is None
        ):
            rank, size = (int(environment[name]) for name in names[:2])
            local_rank, local_size = int(environment.get(names[2], -1)), int(environment.get(names[3], 0))
            if size == 1:
                return Place()
            return Place(
                rank, size, local_rank, local_size, *find_meeting_place(environment, local_size == size)
            )
    return Place()


def find_meeting_place(environment: Mapping[str, str], one_host: bool) -> tuple[str, int]:
    """Return the address and port at which rank 0 waits for the others."""
    port = int(environment.get("MASTER_PORT") or 0)
    if "MASTER_ADDR" in environment and port:
        return environment["MASTER_ADDR"], port
    if "SLURM_STEP_NODELIST" in environment:
        job = int(environment["SLURM_JOB_ID"]) * 31 + int(environment["SLURM_STEP_ID"])
        return first_node(environment["SLURM_STEP_NODELIST"]), FIRST_PORT + job % PORTS
    job_name = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid")
    if one_host and job_name:
        return "127.0.0.1", FIRST_PORT + sum(
            job_name.encode()[i] * 31**i for i in range(len(job_name))
        ) % PORTS
    raise RuntimeError(
        "nothing says where the ranks meet; what to do: mpirun -x MASTER_ADDR=<address of rank 0's host> "
        "-x MASTER_PORT=29500 (-genv NAME value for MPICH and Intel MPI), or start them by hvlab-run"
    )


def first_node(nodes: str) -> str:
    """Return the first host of a list in Slurm's notation, such as ``gpu[03-07,9],b``."""
    parts = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?([^\[,]*)", nodes)
    return "".join(filter(None, parts.groups())) if parts else nodes
