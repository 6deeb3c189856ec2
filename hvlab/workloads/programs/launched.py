"""Which rank this process is, as its launcher says, and the CPUs of oneCCL's workers.

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
    """Return (rank, number of ranks, rank on this host). Raises RuntimeError where no launcher says it."""
    for names in NAMES:
        if all(name in environment for name in names):
            rank, size, local_rank = (int(environment[name]) for name in names)
            return rank, size, local_rank
    known = ", ".join(names[0] for names in NAMES)
    raise RuntimeError("no launcher says which rank this is: none of {} is set".format(known))


def place_workers(ranks: int) -> None:
    """Tell oneCCL on which CPUs its workers may run, one for each rank of this host.

    By itself it takes the machine's last CPUs, and fails where this host may not use them.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < (os.cpu_count() or 1):
        chosen = [str(cpus[-1 - rank % len(cpus)]) for rank in range(ranks)]
        os.environ.setdefault("CCL_WORKER_AFFINITY", ",".join(chosen))
