"""What nccl-tests and the OSU benchmarks call things, with their columns, and what hvlab calls them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class LogColumn:
    """A column: its head, unit and width in the text, its key in the JSON, and hvlab's metric, if any."""

    head: str
    unit: str
    width: int
    key: str
    metric: str = ""


# What a row is of.
LEFT = (
    LogColumn("size", "(B)", 12, "size"),
    LogColumn("count", "(elements)", 12, "count"),
    LogColumn("type", "", 8, "type"),
    LogColumn("redop", "", 6, "redop"),
    LogColumn("root", "", 6, "root"),
)
# What was measured, once out of place and once in place.
HALF = (
    LogColumn("time", "(us)", 7, "time", "time"),
    LogColumn("algbw", "(GB/s)", 6, "alg_bw", "algbw"),
    LogColumn("busbw", "(GB/s)", 6, "bus_bw", "busbw"),
    LogColumn("#wrong", "", 6, "nwrong"),
)
# The spread of the single iterations; the text has no p50.
ITERATIONS = (
    LogColumn("i_min", "(us)", 7, "min_us", "time_min"),
    LogColumn("i_max", "(us)", 7, "max_us", "time_max"),
    LogColumn("i_p50", "(us)", 7, "p50_us", "time_median"),
)
# What hvlab has no metric for. The time of the CPU (-C) is that of issuing the calls, not of their end.
OTHERS = (
    LogColumn("cputime", "(us)", 7, "cpu_time"),
    LogColumn("i_p99", "(us)", 7, "p99_us"),
    LogColumn("i_cv%", "(%)", 7, "cv_pct"),
)
# What versions until 2022 call a column.
OLD_HEADS = {"error": "#wrong", "res": "#wrong"}
# The keys of both halves in the JSON, and whether they are in place.
HALVES = {"out_of_place": False, "in_place": True}
# The key of figures of which nothing says whether they are in place.
EITHER = "either"
