"""Which settings of the package's spaces act on what is measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hvlab.bench.matrix import Block
from hvlab.lab.backends import BACKENDS, DDP, HOROVOD
from hvlab.searches.tune.space_file import FOLDER, SpaceParameter, load
from hvlab.workloads import WORKLOADS
from hvlab.workloads.launchers import mpirun
from hvlab.workloads.operations import OPERATIONS

# Open MPI's rules for this one go by the bytes of each rank, not of all.
_ALLGATHERV = 1


def of_block(block: Block, launcher: str) -> tuple[SpaceParameter, ...]:
    """Return what can be set of a block of one configuration, which ``launcher`` starts.

    That is what acts on its collective; a training sends by allreduce.
    """
    backend = BACKENDS[block.backends[0]]
    collective = WORKLOADS[block.workload].collective
    own = backend.counterpart if backend.framework == DDP else backend.name
    files = ["ranks"] + ["horovod"] * (backend.framework == HOROVOD)
    files += ["hierarchical"] * (bool(backend.hierarchical) and collective == "allreduce")
    files += ["mpirun"] * (launcher == mpirun.NAME)
    if backend.mpi:
        call = OPERATIONS[collective].mpi[backend.framework]
        # Adasum sends from rank to rank, by none of MPI's collectives.
        files += [f"mpi_{call}"] * ("adasum" not in block.axes.get("op", ()))
        files += ["mpi_tcp"] * (block.hosts[0] != 1) + ["mpi_shared"] * (block.slots[0] > 1)
    else:
        files += [file for file in (own, f"{own}_{collective}") if (FOLDER / f"{file}.yml").is_file()]
    parameters = [item for file in files for item in load(FOLDER / f"{file}.yml")]
    return tuple(item for item in parameters if _acts(item, parameters, block))


def _acts(item: SpaceParameter, parameters: Sequence[SpaceParameter], block: Block) -> bool:
    """Return whether one of the block's sizes is among those that a rule is for.

    Of a few bytes are also the messages by which Horovod's ranks agree on what to send.
    """
    [sizes] = block.axes.get("sizes", ((),))
    if item.collective is None or not item.from_bytes or not isinstance(sizes, tuple) or not sizes:
        return True
    parts = 1
    if item.collective == _ALLGATHERV:
        parts = block.slots[0] * int(block.hosts[0])
    later = [other.from_bytes for other in parameters if other.collective == item.collective]
    end = min((start for start in later if start > item.from_bytes), default=math.inf)
    return any(item.from_bytes <= size // parts < end for size in sizes)
