"""What the text and the JSON of nccl-tests have in common: devices, versions, and the operation. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.formats.lines import number
from hvlab.formats.nccl_rows import Columns

_CLEAR_GB_S = 1.0


@dataclass(frozen=True)
class Device:
    """One line of the list of devices."""

    rank: int
    group: int
    host: str
    name: str


def placed(devices: Sequence[Device]) -> tuple[tuple[str, ...], int | None, int | None]:
    """Return the hosts in their order, the ranks on each (None: not alike), and the number of ranks."""
    counts = Counter(device.host for device in devices)
    if not counts:
        return (), None, None
    each = set(counts.values())
    return tuple(counts), each.pop() if len(each) == 1 else None, len(devices)


def about(version: str | None, library: str | None, devices: Sequence[Device]) -> dict[str, Any]:
    """Return what the stack of a record tells: the tool, the library, the GPUs of a host, what is known."""
    found = {"source": "nccl-tests", "tool": f"nccl-tests {version}" if version else None}
    if library:
        found["nccl"] = library if "." in library else _dotted(int(library))
    first = [device.name for device in devices if device.host == devices[0].host and device.name]
    found["gpus"] = "; ".join(f"{count} x {name}" for name, count in Counter(first).items()) or None
    return {name: value for name, value in found.items() if value}


def code(version: object) -> int | None:
    """Return NCCL's version as its own number, 2.28.9 as 22809; None where it is not told."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", str(version))
    if found is None:
        return None
    major, minor, patch = map(int, found.groups())
    return major * 10000 + minor * 100 + patch


def guess(columns: Sequence[Columns], ranks: int | None) -> str | None:
    """Return the operation by its columns and busbw/algbw; None where several have the same ones.

    Old versions do not write which program it is.
    """
    clear = [ratio for row in columns if (ratio := _ratio(row)) is not None]
    if not clear:
        return None
    first, ratio = columns[0], clear[-1]
    rooted = first.root is not None and first.root >= 0
    if first.redop in (None, "none"):
        return "broadcast" if rooted else None
    if rooted:
        return "reduce"
    if ranks == 1:
        return None
    # 2(n-1)/n is at least 1, (n-1)/n is below.
    return "allreduce" if ratio > 1 - 0.5 / (ranks or 64) else "reducescatter"


def _ratio(row: Columns) -> float | None:
    half = row.out or row.inside
    algbw, busbw = number(half[1]), number(half[2])
    return busbw / algbw if algbw and busbw is not None and algbw >= _CLEAR_GB_S else None


def _dotted(version: int) -> str:
    """Return 22809 as 2.28.9; before 2.9 a release was written 2804."""
    factor = 10000 if version >= 10000 else 1000  # noqa: PLR2004 - how NCCL numbers its releases (nccl.h)
    return f"{version // factor}.{version % factor // 100}.{version % 100}"
