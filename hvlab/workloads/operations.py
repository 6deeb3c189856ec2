"""The table of collectives: everything that differs between them.

The size of a measurement is the whole buffer. Where each rank has a share of it, that is what all ranks send
to one, or one sends to all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvlab.workloads.metrics import TABLES
from hvlab.workloads.parameters import Parameter, from_table


def _whole(_: int) -> float:
    return 1.0


def _but_own(ranks: int) -> float:
    return (ranks - 1) / ranks


def _there_and_back(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True)
class Operation:
    """A collective that hvlab runs, or that a tool runs whose output it reads.

    ``nccl_tests`` and ``osu`` are its names in nccl-tests and in the titles of the OSU benchmarks
    (c/util/osu_util_mpi.c). ``busbw`` returns busbw/algbw for a number of ranks (nccl-tests,
    doc/PERFORMANCE.md). ``shared``: each rank has a share of the buffer. ``reduces``: it combines the ranks'
    elements. ``shown`` are the ends of its names in the profiles of Horovod 0.28.1 (common/common.h) and
    torch 2.13 (torch/csrc/distributed/c10d). ``mpi`` is the MPI call that each framework makes for it
    (mpi_operations.cc, ProcessGroupMPI.cpp), ``settings`` what can be set of it beside what all have.
    """

    name: str
    nccl_tests: str
    osu: str | None = None
    busbw: Callable[[int], float] = _whole
    shared: bool = False
    reduces: bool = False
    shown: tuple[str, ...] = ()
    mpi: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[Parameter, ...] = ()


_BUSBW = {"but_own": _but_own, "there_and_back": _there_and_back}


def _operation(name: str, row: Mapping[str, Any]) -> Operation:
    busbw = _BUSBW[row["busbw"]] if "busbw" in row else _whole
    settings = from_table(row.get("settings", ()))
    return Operation(
        **{**row, "name": name, "busbw": busbw, "settings": settings, "shown": tuple(row.get("shown", ()))}
    )


OPERATIONS: Mapping[str, Operation] = {
    name: _operation(name, row) for name, row in TABLES["operations"].items()
}
COLLECTIVES = tuple(name for name, operation in OPERATIONS.items() if operation.mpi)
