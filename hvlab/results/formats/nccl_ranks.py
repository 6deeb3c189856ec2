"""How many ranks of nccl-tests ran on which host, where its output says so beyond doubt. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hvlab.results.formats.launch import LaunchRow
from hvlab.results.formats.lines import whole
from hvlab.workloads.operations import OPERATIONS

# A bandwidth from which two digits after the point tell one number of ranks from the next.
_CLEAR_GB_S = 1.0
_APART = 0.02


def layout(devices: Sequence[Mapping[str, Any]], each: int) -> Counter[str]:
    """Return how many ranks each host has; nothing where the list of devices is not whole.

    A process has ``each`` devices, of which the JSON of 2.16 and later lists the first alone.
    """
    count = len(devices)
    numbers = [whole(device.get("rank")) for device in devices]
    if len({str(device.get("group") or 0).strip() for device in devices}) > 1:
        return Counter()
    if numbers == list(range(count)) and count % each == 0:
        each = 1
    elif numbers != list(range(0, count * each, each)):
        return Counter()
    hosts = Counter(str(device.get("hostname") or "?") for device in devices)
    return Counter({host: ranks * each for host, ranks in hosts.items()})


def agree(workload: str | None, ranks: int, rows: Iterable[LaunchRow]) -> bool:
    """Return whether busbw over algbw, 2(n-1)/n for an allreduce, is that of so many ranks."""
    ratios = [
        row.values["busbw"] / row.values["algbw"] for row in rows
        if row.values.get("algbw", 0) >= _CLEAR_GB_S and "busbw" in row.values
    ]  # fmt: skip
    if workload != "allreduce" or not ratios or not ranks:
        return True
    return abs(statistics.median(ratios) - OPERATIONS[workload].busbw(ranks)) <= _APART
