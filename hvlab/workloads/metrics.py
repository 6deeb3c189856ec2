"""What is measured: each metric's unit, and which way is better. Read by parsers and reports alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A measured quantity. ``unit`` is as records keep it; ``better`` is None where neither way is."""

    name: str
    unit: str
    better: Literal["low", "high"] | None = None


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        # Collectives, for each size. `time` is the mean over ranks and iterations, as nccl-tests has it; the
        # median with its interval (low, high) and the percentiles are of the iterations' means over ranks.
        Metric("time", "us", "low"),
        Metric("time_median", "us", "low"),
        Metric("time_low", "us"),
        Metric("time_high", "us"),
        Metric("time_p95", "us", "low"),
        Metric("time_p99", "us", "low"),
        Metric("time_min", "us"),
        Metric("time_max", "us"),
        Metric("algbw", "GB/s", "high"),
        Metric("busbw", "GB/s", "high"),
        # Training. `step_time` is the mean over ranks and steps after the warm-up; the others as above.
        Metric("step_time", "s", "low"),
        Metric("step_time_median", "s", "low"),
        Metric("step_time_low", "s"),
        Metric("step_time_high", "s"),
        Metric("step_time_p95", "s", "low"),
        Metric("step_time_p99", "s", "low"),
        Metric("step_time_min", "s"),
        Metric("step_time_max", "s"),
        # The standard deviation of single steps: how unevenly a rank computes.
        Metric("step_time_sd", "s"),
        Metric("throughput", "samples/s", "high"),
        Metric("accuracy", "%", "high"),
        Metric("loss", "1", "low"),
        Metric("real", "s", "low"),
        Metric("user", "s", "low"),
        Metric("sys", "s", "low"),
        Metric("training_time", "s", "low"),
        Metric("startup", "s", "low"),
        Metric("compute_time", "s", "low"),
        Metric("host_compute_time", "s", "low"),
        Metric("gradient_bytes", "B"),
        Metric("sent_bytes", "B"),
        Metric("flops", "FLOP/sample"),
        # Both: how many iterations or steps at the beginning do not count.
        Metric("warmup", "1"),
        # Both: the share of the hosts' core time that others took while the case ran (`contention`).
        Metric("stolen", "%"),
    )
}
