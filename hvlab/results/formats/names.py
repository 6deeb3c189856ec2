"""What nccl-tests and the OSU benchmarks call things, and what hvlab calls them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hvlab.workloads import sizes
from hvlab.workloads.operations import OPERATIONS

# As nccl-tests writes them today (src/common.cu), and what older versions wrote.
DTYPES: Mapping[str, str] = {
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "uint32": "uint32",
    "int64": "int64",
    "uint64": "uint64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
    "f8e4m3": "f8e4m3",
    "f8e5m2": "f8e5m2",
    "fp8_e4m3": "f8e4m3",
    "fp8_e5m2": "f8e5m2",
    "char": "int8",
    "int": "int32",
}
ITEM_BYTES = {**sizes.DTYPES, "uint32": 4, "uint64": 8, "f8e4m3": 1, "f8e5m2": 1}
OPS: Mapping[str, str] = {"sum": "sum", "avg": "average", "prod": "prod", "max": "max", "min": "min"}
# Words that stand in the column redop.
REDOPS = (*OPS, "mulsum", "all", "none", "adasum")

PROGRAMS: Mapping[str, str] = {item.nccl_tests: item.name for item in OPERATIONS.values()}

# What stands between "# OSU MPI" and "Test" (c/util/osu_util_mpi.c and the benchmarks' own headers), where
# hvlab has a word of its own; all other tests keep theirs, such as put-latency and non-blocking-allreduce.
OSU: Mapping[str, str] = {
    **{item.osu: item.name for item in OPERATIONS.values() if item.osu},
    "Latency": "latency",
    "Bandwidth": "bandwidth",
    "Bi-Directional Bandwidth": "bidirectional-bandwidth",
}
MPI_DTYPES: Mapping[str, str] = {
    "MPI_CHAR": "int8",
    "MPI_INT": "int32",
    "MPI_FLOAT": "float32",
    "MPI_DOUBLE": "float64",
}
# OSU gives the size of one message between two ranks; nccl-tests and hvlab count the whole buffer.
OSU_BY_MESSAGE = tuple(item.name for item in OPERATIONS.values() if item.shared and not item.reduces)
REDUCING = tuple(item.name for item in OPERATIONS.values() if item.reduces)


def reverse(table: Mapping[str, str], name: str | None) -> str | None:
    """Return the tool's word for one of hvlab's; the name itself where the tool has none."""
    return next((theirs for theirs, ours in table.items() if ours == name), name)
