"""The table of collectives: everything that differs between them.

The size of a measurement is the whole buffer: if each rank has a share, everything sent to or from one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvlab.workloads.metrics import TABLES
from hvlab.workloads.parameters import Parameter, from_table


@dataclass(frozen=True)
class Operation:
    """A collective that hvlab runs, or that a tool runs whose output it reads.

    ``nccl_tests`` and ``osu`` are its names in nccl-tests and in the titles of the OSU benchmarks
    (c/util/osu_util_mpi.c). ``busbw`` returns busbw/algbw for a number of ranks (nccl-tests,
    doc/PERFORMANCE.md). ``shared``: each rank has a share of the buffer. ``reduces``: it combines the ranks'
    elements. ``shown`` are the ends of its names in the profiles of Horovod 0.28.1 (common/common.h) and
    torch 2.13 (torch/csrc/distributed/c10d). ``mpi`` is each framework's MPI call for it (mpi_operations.cc,
    ProcessGroupMPI.cpp), ``settings`` its own parameters.
    """

    name: str
    nccl_tests: str
    osu: str | None = None
    busbw: Callable[[int], float] = lambda _: 1.0
    shared: bool = False
    reduces: bool = False
    shown: tuple[str, ...] = ()
    mpi: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[Parameter, ...] = ()


_BUSBW: Mapping[str, Callable[[int], float]] = {
    "whole": lambda _: 1.0,
    "but_own": lambda ranks: (ranks - 1) / ranks,
    "there_and_back": lambda ranks: 2 * (ranks - 1) / ranks,
}


def _operation(name: str, row: Mapping[str, Any]) -> Operation:
    read = {
        "busbw": _BUSBW[row.get("busbw", "whole")],
        "settings": from_table(row.get("settings", ())),
        "shown": tuple(row.get("shown", ())),
    }
    return Operation(**{**row, "name": name, **read})


OPERATIONS: Mapping[str, Operation] = {
    name: _operation(name, row) for name, row in TABLES["operations"].items()
}
COLLECTIVES = tuple(name for name, operation in OPERATIONS.items() if operation.mpi)
