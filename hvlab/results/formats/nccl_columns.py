"""The columns of nccl-tests, in its text and in its JSON, and the metrics they hold. Pure."""

from __future__ import annotations

from dataclasses import dataclass


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
