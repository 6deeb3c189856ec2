"""Which rank this process is, as its launcher says. Needs Python 3.8+ and no package."""

from __future__ import annotations

import os
from typing import Mapping

# Rank, number of ranks, and rank on this host: of Open MPI, of horovodrun, and torch's own names.
NAMES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
)


def place(environment: Mapping[str, str] = os.environ) -> tuple[int, int, int]:
    """Return (rank, number of ranks, rank on this host). Raises RuntimeError where no launcher says it."""
    for names in NAMES:
        if all(name in environment for name in names):
            rank, size, local_rank = (int(environment[name]) for name in names)
            return rank, size, local_rank
    known = ", ".join(names[0] for names in NAMES)
    raise RuntimeError("no launcher says which rank this is: none of {} is set".format(known))
