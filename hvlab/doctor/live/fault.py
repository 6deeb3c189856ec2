"""One thing that is wrong on a host."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostFault:
    """An entry of what is known, the host that shows it, and what was seen there.

    ``role`` is the tag of the role whose run on this host mends it; empty where none does so safely.
    """

    id: str
    host: str
    observed: str
    role: str = ""
