"""Sizes of buffers: their spelling, and rounding to whole elements. Pure."""

from __future__ import annotations

import re

from hvlab.base.errors import UsageError

DTYPES = {
    **{"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8},
    **{"int8": 1, "uint8": 1, "int32": 4, "int64": 8},
}
_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_REMEDY = "write min:max:factor or a list, such as 1K:64M:4 or 1K,4M"


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return bytes from ``min:max:factor`` or a list; K, M, G are powers of 1024. Raises UsageError."""
    if ":" in text:
        low, high, factor = _bounds(text)
        sizes = []
        while low <= high:
            sizes.append(low)
            low *= factor
    else:
        sizes = [parse_size(part) for part in text.split(",") if part.strip()]
    if not sizes or min(sizes) < 1:
        raise UsageError(f"sizes {text!r}: no size in it, or one of 0 bytes", remedy=_REMEDY)
    return tuple(dict.fromkeys(sizes))


def parse_size(text: str) -> int:
    """Return one size in bytes, such as 4096, 4K or 64MiB. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,18})\s*([KMG]?)(?:I?B)?", text.strip().upper())
    if match is None:
        raise UsageError(f"{text[:40]!r} is no size", remedy="write 4096, 4K, 16M or 1G")
    return int(match[1]) * _UNITS[match[2]]


def round_down(sizes: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Return the sizes rounded down to multiples of ``step`` bytes, each once; 0 for smaller ones."""
    return tuple(dict.fromkeys(size - size % step for size in sizes))


def format_size(size: int) -> str:
    """Return a size as people write it: 4K, 16M, or the plain number."""
    for unit, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _bounds(text: str) -> tuple[int, int, int]:
    low_text, _, rest = text.partition(":")
    high_text, _, factor_text = rest.partition(":")
    if not re.fullmatch("[0-9]{1,18}", factor_text):
        raise UsageError(f"sizes {text[:40]!r}: not min:max:factor", remedy=_REMEDY)
    low, high, factor = parse_size(low_text), parse_size(high_text), int(factor_text)
    if factor < 2 or not 0 < low <= high:  # noqa: PLR2004 - a smaller factor does not grow
        raise UsageError(f"sizes {text!r}: min must be from 1 to max and factor 2 or more", remedy=_REMEDY)
    return low, high, factor
