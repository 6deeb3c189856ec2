"""What figures say, as a key with its numbers; a report puts it into words, in any language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Explanation:
    """One statement; ``names`` say what it is about, ``numbers`` what it rests on.

    ``key`` is the phrase ``why.<key>`` of a report, or the largest part of a whole (``step.compute``).
    Numbers are SI unless their name ends in a unit; shares are of 1, ratios are slower over faster.
    """

    key: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
