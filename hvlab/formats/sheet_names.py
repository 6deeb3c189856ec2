"""Which training of a run the text above a table of a lab sheet names. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Training:
    """A training of a run: the words it is called by, and its rows as Sheet has them."""

    words: tuple[str, ...]
    inside: Sequence[Mapping[str, str]] = ()
    across: Sequence[Mapping[str, str]] = ()
    compression: Sequence[Mapping[str, str]] = ()


def named(lines: Iterable[str], trainings: Sequence[Training]) -> int | None:
    """Return the number of the training that the first telling line names.

    A line that names several tells none. A name without its number, ResNet for resnet50, is enough where no
    other one is called so.
    """
    for line in lines:
        text = unicodedata.normalize("NFKC", line).casefold()
        counts = [sum(_names(word, text) for word in training.words) for training in trainings]
        most = max(counts, default=0)
        if most and counts.count(most) == 1:
            return counts.index(most)
    return None


def _names(word: str, text: str) -> bool:
    parts = re.findall(r"[^\W\d_]+|\d+", word.casefold())
    if not parts:
        return False
    patterns = [r"[\s_-]*".join(map(re.escape, parts)) + r"(?![a-z0-9])"]
    if len(parts) > 1 and parts[-1].isdigit():
        patterns.append(r"[\s_-]*".join(map(re.escape, parts[:-1])) + r"(?![a-z]|[\s_-]*\d)")
    return any(re.search(rf"(?<![a-z0-9]){pattern}", text) for pattern in patterns)
