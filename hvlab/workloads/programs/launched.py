"""The place of this process among the ranks, by its launcher, and the CPUs of oneCCL's workers.

Needs Python 3.8+ and no package.
"""

from __future__ import annotations

import os
from typing import Mapping

# Rank, number of ranks, and rank on this host: of Open MPI, of horovodrun, torch's own names, and Slurm's,
# which are set for everything that runs inside an allocation too.
NAMES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


def place(environment: Mapping[str, str] = os.environ) -> tuple[int, int, int]:
    """Return (rank, number of ranks, rank on this host). Raises RuntimeError without a launcher."""
    for names in NAMES:
        if all(name in environment for name in names):
            rank, size, local_rank = (int(environment[name]) for name in names)
            return rank, size, local_rank
    known = ", ".join(names[0] for names in NAMES)
    raise RuntimeError("no launcher says which rank this is: none of {} is set".format(known))


def place_workers(ranks: int) -> None:
    """Name the CPUs of oneCCL's workers, one for each rank of this host.

    Its default is the machine's last CPUs, and it fails if this host has no access to them.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < (os.cpu_count() or 1):
        chosen = [str(cpus[-1 - rank % len(cpus)]) for rank in range(ranks)]
        os.environ.setdefault("CCL_WORKER_AFFINITY", ",".join(chosen))
