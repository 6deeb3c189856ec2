"""Words and columns of nccl-tests and the OSU benchmarks, with hvlab's own for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hvlab.base.yaml_files import read_shipped
from hvlab.workloads import sizes
from hvlab.workloads.operations import OPERATIONS

_KNOWN = read_shipped(Path(__file__).with_suffix(".yml"))
DTYPES: Mapping[str, str] = _KNOWN["dtypes"]
ITEM_BYTES = {**sizes.DTYPES, "uint32": 4, "uint64": 8, "f8e4m3": 1, "f8e5m2": 1}
OPS: Mapping[str, str] = _KNOWN["ops"]
# Words of the column redop.
REDOPS = (*OPS, "mulsum", "all", "none", "adasum")

PROGRAMS: Mapping[str, str] = {item.nccl_tests: item.name for item in OPERATIONS.values()}

# Words between "# OSU MPI" and "Test" (c/util/osu_util_mpi.c and the benchmarks' own headers) for which
# hvlab has its own; all other tests keep theirs, such as put-latency and non-blocking-allreduce.
OSU: Mapping[str, str] = {
    **{item.osu: item.name for item in OPERATIONS.values() if item.osu},
    "Latency": "latency",
    "Bandwidth": "bandwidth",
    "Bi-Directional Bandwidth": "bidirectional-bandwidth",
}
# Copies between two ranks, and the share of their bandwidth that goes one way.
COPIES: Mapping[str, float] = {"bandwidth": 1.0, "bidirectional-bandwidth": 0.5}
MPI_DTYPES: Mapping[str, str] = _KNOWN["mpi_dtypes"]
# Head of a column of OSU: its metric, and the factor to hvlab's unit.
OSU_COLUMNS: Mapping[str, tuple[str, float]] = {
    head: (name, by) for head, (name, by) in _KNOWN["osu"].items()
}
# OSU gives the size of one message between two ranks; nccl-tests and hvlab count the whole buffer.
OSU_BY_MESSAGE = tuple(item.name for item in OPERATIONS.values() if item.shared and not item.reduces)
REDUCING = tuple(item.name for item in OPERATIONS.values() if item.reduces)


def reverse(table: Mapping[str, str], name: str | None) -> str | None:
    """Return the tool's word for one of hvlab's; the name itself if the tool has none."""
    return next((theirs for theirs, ours in table.items() if ours == name), name)


@dataclass(frozen=True)
class LogColumn:
    """A column: its head, unit and width in the text, its key in the JSON, and hvlab's metric, if any."""

    head: str
    key: str
    width: int = 0
    unit: str = ""
    metric: str = ""


# A row's key; the figures of each half; the spread of iterations; figures without a metric of hvlab.
LEFT, HALF, ITERATIONS, OTHERS = (
    tuple(LogColumn(**column) for column in _KNOWN["columns"][name])
    for name in ("left", "half", "iterations", "others")
)
OLD_HEADS: Mapping[str, str] = _KNOWN["old_heads"]
# The keys of both halves in the JSON, and whether they are in place.
HALVES = {"out_of_place": False, "in_place": True}
# The key of figures that may be in place or not.
EITHER = "either"
