"""Versions as tuples of numbers: compare them, match a prefix, find the nearest. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby


@lru_cache(maxsize=100_000)
def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version up to its first ``-`` or ``+``: 2.21.5-1+cuda12.4 is (2, 21, 5)."""
    match = re.match(r"[\d.]*", version)
    return tuple(int(part) for part in (match[0] if match else "").split(".") if part)


@lru_cache(maxsize=100_000)
def minor(version: str) -> str:
    """Return the first two numbers of a version: 3.10.12 is 3.10."""
    return ".".join(map(str, numbers(version)[:2]))


@lru_cache(maxsize=100_000)
def major(version: str) -> int:
    """Return the first number of a version; 0 if it has none."""
    return next(iter(numbers(version)), 0)


@lru_cache(maxsize=100_000)
def is_at_least(version: str, least: str) -> bool:
    """Whether ``version`` is ``least`` or newer; numbers missing from a short version count in its favour."""
    own = numbers(version)
    return own >= numbers(least)[: len(own)]


@lru_cache(maxsize=100_000)
def is_at_most(version: str, most: str) -> bool:
    """Whether ``version`` is ``most`` or older; every patch level of ``most`` counts."""
    limit = numbers(most)
    return numbers(version)[: len(limit)] <= limit


def is_within(version: str, limits: Sequence[str | None]) -> bool:
    """Whether ``version`` lies in ``[lowest, highest]``, both included; None means no limit."""
    lowest, highest = limits
    return (lowest is None or is_at_least(version, lowest)) and (
        highest is None or is_at_most(version, highest)
    )


def is_prefix(asked: str, version: str) -> bool:
    """Whether ``version`` is ``asked``, or begins with it followed by ``.``, ``-`` or ``+``."""
    return version == asked or version.startswith((f"{asked}.", f"{asked}-", f"{asked}+"))


def nearest(asked: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the ``count`` known versions nearest to ``asked``, in ascending order."""
    ordered = sorted(set(known), key=lambda version: (numbers(version), version))
    place = sum(numbers(version) < numbers(asked) for version in ordered)
    first = max(0, min(place - (count + 1) // 2, len(ordered) - count))
    return ordered[first : first + count]


def by_distance(asked: str, known: Iterable[str]) -> list[str]:
    """Return the known versions, nearest to ``asked`` first; of two equally near, the older first."""
    ordered = sorted(set(known), key=lambda version: (numbers(version), version))
    place = sum(numbers(version) < numbers(asked) for version in ordered)
    return sorted(ordered, key=lambda version: abs(ordered.index(version) + 0.5 - place))


def spans(versions: Iterable[str], among: Iterable[str]) -> str:
    """Return versions for the reader, runs of neighbours ``among`` the known ones as ``A to B``."""
    chosen = set(versions)
    ordered = sorted(set(among) | chosen, key=numbers)
    texts = []
    for run in (list(group) for is_chosen, group in groupby(ordered, chosen.__contains__) if is_chosen):
        texts += run if len(run) <= 2 else [f"{run[0]} to {run[-1]}"]  # noqa: PLR2004 - two need no span
    return ", ".join(texts)
