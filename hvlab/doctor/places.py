"""Where each rank of a job stands, and which of them wait for others. Pure.

The table standing.yml says what a frame of a stack shows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from hvlab.base.answers.shapes import Count, HostAnswer, Number
from hvlab.base.ranges import format_ranges
from hvlab.base.yaml_files import read_shipped

_PLACES = read_shipped(Path(__file__).with_name("standing.yml"))["places"]
# Less of one core is idle.
_IDLE = 0.1


class _Rank(HostAnswer):
    rank: Count
    size: Count | None
    local_size: Count | None
    job: str
    names: list[str]
    pid: Count
    states: str
    moved: bool
    cpu: Number
    wanted_cpu: Number | None = None
    threads_cpu: Number | None = None
    below_cpu: Number
    io: Number
    disk_waits: list[str]
    stopped: list[Count]
    ended: list[Count] | None = None
    unacknowledged: list[str]
    stack: list[list[Any]] | None
    blocked: list[str] | None = None
    user: Count | None = None
    counters: dict[str, Count] | None = None
    why: str | None
    recorder: list[dict[str, Any]]


class HostStanding(HostAnswer):
    """The output of workloads/programs/standing.py on a host."""

    host: str
    user: Count
    ptrace_scope: str
    ranks: list[_Rank]
    ras: list[dict[str, Any]]
    stall_lines: list[str]
    kernel: list[str]
    memory_kills: Count
    full_disks: list[str]
    dead_links: list[str]
    addresses: list[str]
    unanswered: list[str] | None = None


@dataclass(frozen=True)
class RankPlace:
    """One rank: ``where`` it stands, of which ``kind`` that is, and whether it ``waits`` for others."""

    rank: int
    host: str
    kind: str
    where: str
    waits: bool
    seen: Mapping[str, Any]

    @property
    def site(self) -> tuple[Any, ...]:
        """What is the same for two ranks in the same call."""
        return (self.where, self.callers, *sorted((self.seen.get("counters") or {}).items()))

    @property
    def callers(self) -> tuple[str, ...]:
        """The lines that lead to the call, the innermost of the user's code first."""
        user = self.seen.get("user")
        frames = () if user is None else (self.seen["stack"] or ())[user:]
        return tuple(f"{PurePosixPath(file).name}:{line}" for _, file, line in frames)

    def parting(self, other: RankPlace) -> tuple[str, str]:
        """Return the outermost line in which two ranks differ, of this one and of the other."""
        for pair in zip(reversed(self.callers), reversed(other.callers), strict=False):
            if pair[0] != pair[1]:
                return pair
        return self.callers[0], other.callers[0]


def of_rank(host: str, rank: Mapping[str, Any]) -> RankPlace:
    """Name the place of a rank by its stack: the outermost collective, or else the innermost known call."""
    stack = [tuple(frame) for frame in rank["stack"] or ()]
    user = rank.get("user")
    line = (
        f" ({PurePosixPath(stack[user][1]).name}:{stack[user][2]})"
        if user is not None and stack[user:]
        else ""
    )
    found = [(kind, name) for name, file, _ in stack if (kind := kind_of(name, file, rank["cpu"]))]
    waits = [name for kind, name in found if kind == "collective"]
    if waits:
        return RankPlace(rank["rank"], host, "collective", f"{name_frame(waits[-1])}{line}", True, rank)
    if found:
        kind, name = found[0]
        return RankPlace(rank["rank"], host, kind, f"{name}{line}", False, rank)
    own = stack[0][0].rpartition("<locals>.")[2] if stack else "a place that cannot be seen"
    where = line.strip(" ()") if line and own == "<module>" else f"{own}{line}"
    return RankPlace(rank["rank"], host, "elsewhere", where, False, rank)


def kind_of(name: str, file: str, cpu: float) -> str:
    """Return the kind of place that a frame belongs to, by the table; empty for an unknown one."""
    for row in _PLACES:
        if (
            re.search(row["in"], name)
            and re.search(row["file"], file)
            and (not row.get("idle") or cpu < _IDLE)
        ):
            return str(row["kind"])
    return ""


def name_frame(name: str) -> str:
    """Return a function's name for people."""
    return "the gradients' allreduce" if name == "_engine_run_backward" else name.rpartition(".")[2]


def by_majority(places: Sequence[RankPlace]) -> list[RankPlace]:
    """Count the place of more than half of the ranks as the wait, where no collective is known."""
    (site, number), *_ = Counter(place.site for place in places).most_common(1)
    most = number > len(places) / 2 and number < len(places) and all(place.seen["stack"] for place in places)
    return [replace(each, waits=most and each.site == site) for each in places]


def groups(places: Sequence[RankPlace]) -> Iterator[str]:
    """Yield who stands where, the largest group first."""
    alike: dict[str, list[RankPlace]] = defaultdict(list)
    for place in places:
        alike[f"{'wait' if place.waits else 'are'} in {place.where}"].append(place)
    for words, own in sorted(alike.items(), key=lambda item: -len(item[1])):
        ranks = format_ranges([place.rank for place in own])
        hosts = ", ".join(dict.fromkeys(place.host for place in own))
        one = words.replace("wait in", "waits in").replace("are in", "is in")
        yield (
            f"rank {ranks} {one} on {hosts}"
            if len(own) == 1
            else f"{len(own)} ranks ({ranks}) {words} on {hosts}"
        )
