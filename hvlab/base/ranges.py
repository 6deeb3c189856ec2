"""Numbers as the kernel lists them."""

from __future__ import annotations

from collections.abc import Sequence

# Longer lists are no list of CPUs or ranks.
_MOST = 2**20


def format_ranges(numbers: Sequence[int]) -> str:
    """Return numbers of CPUs or ranks as ``0-3,8``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def parse_ranges(text: str) -> list[int]:
    """Return the numbers of such a list; [] for what is none, or too long to be one."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        if not all(end.isdecimal() for end in ends) or int(ends[1]) - int(ends[0]) + len(numbers) > _MOST:
            return []
        numbers += range(int(ends[0]), int(ends[1]) + 1)
    return numbers
