"""Numbers as the kernel lists them."""

from __future__ import annotations

from collections.abc import Sequence


def format_ranges(numbers: Sequence[int]) -> str:
    """Return numbers of CPUs or ranks as ``0-3,8``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
