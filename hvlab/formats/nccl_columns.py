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
    LogColumn("min", "(us)", 7, "min_us", "time_min"),
    LogColumn("max", "(us)", 7, "max_us", "time_max"),
    LogColumn("p50", "(us)", 7, "p50_us", "time_median"),
)
# The keys of both halves in the JSON, and whether they are in place.
HALVES = {"out_of_place": False, "in_place": True}
