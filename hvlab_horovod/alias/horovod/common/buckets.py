"""Which gradients are sent together. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

# DDP's: a small first bucket, so that sending begins early, then larger ones.
FIRST_BYTES = 2**20
BYTES = 25 * 2**20


def capacity(environment: Mapping[str, str] = os.environ) -> int:
    """Return the bytes of a bucket: Horovod's own variable, or DDP's default."""
    return int(environment.get("HOROVOD_FUSION_THRESHOLD") or BYTES)


def plan(
    order: Sequence[int],
    sizes: Mapping[int, int],
    kinds: Mapping[int, Any],
    groups: Sequence[Sequence[int]],
    limit: int,
) -> list[list[int]]:
    """Return the buckets, in the order in which every rank sends them.

    ``order`` are the gradients as they become ready; ``sizes`` in bytes; those of one kind (type, device)
    share a bucket. ``groups`` stay together, whatever their size.
    """
    group_of = {number: group for group, members in enumerate(groups) for number in members}
    grouped: dict[Any, list[int]] = {}
    buckets: list[list[int]] = []
    filling: dict[Any, list[int]] = {}
    for number in order:
        if number in group_of:
            key = (group_of[number], kinds[number])
            if key not in grouped:
                grouped[key] = []
                buckets.append(grouped[key])
            grouped[key].append(number)
            continue
        bucket = filling.get(kinds[number])
        room = limit if buckets and bucket is not buckets[0] else min(FIRST_BYTES, limit)
        if bucket is None or sum(sizes[one] for one in bucket) + sizes[number] > room:
            bucket = filling[kinds[number]] = []
            buckets.append(bucket)
        bucket.append(number)
    # A bucket is complete with its last gradient.
    position = {number: place for place, number in enumerate(order)}
    return sorted(buckets, key=lambda bucket: max(position[number] for number in bucket))


def split(numbers: Sequence[int], parts: int) -> list[Sequence[int]]:
    """Split the numbers into at most ``parts`` runs whose lengths differ by at most one."""
    ends = [len(numbers) * part // parts for part in range(parts + 1)]
    return [numbers[start:end] for start, end in pairwise(ends) if start < end]
