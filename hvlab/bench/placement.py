"""Where ranks can run: counts of hosts and slots, and the host sets that words stand for. Pure."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from difflib import get_close_matches

from hvlab.base.errors import UsageError
from hvlab.lab.inventory import Lab

ALL = "all"
EACH = "each"
PAIRS = "pairs"
ALL_PAIRS = "pairs:all"
_ALL_COUNTS_UP_TO = 4
_COUNT = re.compile("[0-9]{1,9}")
# Also what is meant as a count, and refused as one.
_LIKE_COUNT = re.compile(r"[+-]?\d*([-:.]+\d+)?")


@dataclass(frozen=True)
class HostSet:
    """Hosts to run on; ``count`` is how many were requested, more than ``names`` where the lab has fewer."""

    names: tuple[str, ...]
    count: int


def host_sets(requested: int | str, lab: Lab) -> tuple[HostSet, ...]:
    """Return the first hosts of a count, or the sets that a word stands for.

    ``each`` is every host alone, ``pairs`` the first with each other one, ``pairs:all`` every two hosts.
    """
    names = [host.name for host in lab.hosts]
    if requested == EACH:
        return tuple(HostSet((name,), 1) for name in names)
    if requested == PAIRS:
        return tuple(HostSet((names[0], name), 2) for name in names[1:]) or (HostSet(tuple(names), 2),)
    if requested == ALL_PAIRS:
        pairs = tuple(HostSet(pair, 2) for pair in itertools.combinations(names, 2))
        return pairs or (HostSet(tuple(names), 2),)
    count = int(requested)
    return (HostSet(tuple(names[:count]), count),)


def counts(most: int) -> tuple[int, ...]:
    """Return 1..N for up to four, else the powers of two below N, and N."""
    if most <= _ALL_COUNTS_UP_TO:
        return tuple(range(1, most + 1))
    return (*(2**power for power in range(most.bit_length()) if 2**power < most), most)


def default_hosts(lab: Lab) -> tuple[int, ...]:
    """Return the numbers of hosts to measure unless others are requested."""
    return counts(len(lab.hosts))


def most_slots(lab: Lab) -> int:
    """Return the most ranks that every host has room for."""
    return min(host.slots for host in lab.hosts)


def default_slots(lab: Lab) -> tuple[int, ...]:
    """Return 1 and the most that every host has room for."""
    return tuple(sorted({1, most_slots(lab)}))


def spread(devices: int, lab: Lab) -> tuple[int, int]:
    """Return hosts and slots for that many ranks, on as few hosts as possible.

    If they do not fit, it is one rank on each of that many hosts, or all on the only host.
    """
    most = most_slots(lab)
    for slots in range(min(devices, most), 0, -1):
        if devices % slots == 0 and devices // slots <= len(lab.hosts):
            return devices // slots, slots
    return (devices, 1) if len(lab.hosts) > 1 else (1, devices)


def names_hosts(text: str | None) -> bool:
    """Whether a value of --hosts names hosts rather than counts them."""
    words = (ALL, EACH, PAIRS, ALL_PAIRS)
    parts = [part.strip().lower() for part in (text or "").split(",")]
    return not all(_LIKE_COUNT.fullmatch(part) or get_close_matches(part, words, 1, 0.75) for part in parts)


def parse_counts(text: str, option: str, *, most: int, words: tuple[str, ...] = ()) -> tuple[int | str, ...]:
    """Return the whole numbers and words of a list such as ``1,2,each``; ``all`` is ``counts(most)``.

    Raises UsageError.
    """
    numbers: list[int | str] = []
    for part in [part.strip() for part in text.lower().split(",") if part.strip()]:
        if part == ALL:
            numbers += counts(most)
        elif part in words:
            numbers.append(part)
        elif _COUNT.fullmatch(part) and int(part) > 0:
            numbers.append(int(part))
        else:
            numbers = []
            break
    if not numbers:
        known = "".join(f", {name}" for name in (ALL, *words))
        raise UsageError(
            f"{option} {text}: expected whole numbers of 1 or more{known}",
            remedy=f"write {option} 1,2,3; -l n1,n2 names hosts",
        )
    return tuple(dict.fromkeys(numbers))
