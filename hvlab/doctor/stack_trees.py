"""Stacks of many processes as one tree of calls, as padb, STAT and DDT write them. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from hvlab.base.ranges import parse_ranges

# Function, file and line, the innermost call first.
Frames = list[tuple[str, str, str]]
# Ranks, if they are named; the number of processes; whether it is their main thread; where they stand.
Group = tuple[list[int], int, bool, Frames]

# padb: what stands before a call shows its depth, a quotation's mark included.
_BEFORE = r"(?P<before>[>\s]*(?:\d+:\s+)?)"
_THREAD = re.compile(r"Stack trace\(s\) for thread: (\d+)")
_BRANCH = re.compile(
    _BEFORE + r"(?:Branch \d+ of \d+, .* of total )?\[(?P<ranks>[\d,-]+)\](?: \(\d+ processes\))?\s*$"
)
_CALL = re.compile(_BEFORE + r"(?P<name>\S.*?)\(\) at (?P<file>\S+?):(?P<line>\d+|\?)\s*$")
# DDT's export: processes, perhaps threads, and the call.
_TABLE = re.compile(r"Processes,(?:Threads,)?Function\s*$")
_ROW = re.compile(
    r"(?P<number>\d+),(?:\d+,)?(?P<before> *)(?P<name>\S.*?)(?: \((?P<file>[^():]+):(?P<line>\d+)\))?\s*$"
)
# STAT's graph: calls are nodes, the ranks in them stand at the edges.
_NODE = re.compile(r"\s*(-?\d+) \[")
_EDGE = re.compile(r'\s*(-?\d+) -> (-?\d+) \[.*?\b(?:bv|label)="(?:\d+:)?\[([\d,-]+)\]')
_FIELDS = re.compile(r'\b(function|label|source|line)="([^"]*)"')
_DEEPEST = 1000


def read(lines: Sequence[str]) -> Iterator[Group]:
    """Yield the processes that stand in one call, by the trees in a text."""
    yield from _read_padb(lines)
    yield from _read_ddt(lines)
    if any("digraph" in line for line in lines):
        yield from _read_stat(lines)


def _read_padb(lines: Sequence[str]) -> Iterator[Group]:
    path: list[tuple[float, list[int] | tuple[str, str, str]]] = []
    thread = ""
    for line in (*lines, "Stack trace(s) for thread: 0"):
        begun = _THREAD.search(line)
        match = (_BRANCH.match(line) or _CALL.match(line)) if thread else None
        if not begun and not match:
            continue
        is_branch = bool(match and "ranks" in match.groupdict())
        # A branch holds the calls of its own depth.
        depth = len(match["before"]) - is_branch / 2 if match else 0
        if path and (begun or path[-1][0] >= depth) and isinstance(path[-1][1], tuple):
            ranks = next((held for _, held in reversed(path) if isinstance(held, list)), [])
            yield (
                ranks,
                len(ranks),
                thread == "1",
                [held for _, held in reversed(path) if isinstance(held, tuple)],
            )
        while path and (begun or path[-1][0] >= depth):
            path.pop()
        if begun:
            thread = begun[1]
        elif match:
            path.append((depth, parse_ranges(match["ranks"]) if is_branch else _frame(match)))


def _frame(match: re.Match[str]) -> tuple[str, str, str]:
    known = match["file"] and match["file"] != "?"
    return match["name"], f"/{match['file']}" if known else "/", match["line"] if known else ""


def _read_ddt(lines: Sequence[str]) -> Iterator[Group]:
    # How many processes of a call are in no call below it.
    path: list[tuple[int, int, tuple[str, str, str]]] = []
    inside = False
    for line in (*lines, ""):
        row = _ROW.match(line) if inside else None
        depth = len(row["before"]) if row else -1
        while path and path[-1][0] >= depth:
            if path[-1][1] > 0:
                yield [], path[-1][1], True, [frame for *_, frame in reversed(path)]
            path.pop()
        inside = bool(row or _TABLE.match(line))
        if row:
            number = int(row["number"])
            if path:
                path[-1] = (path[-1][0], path[-1][1] - number, path[-1][2])
            path.append((depth, number, _frame(row)))


def _read_stat(lines: Sequence[str]) -> Iterator[Group]:
    calls: dict[str, tuple[str, str, str]] = {}
    above: dict[str, str] = {}
    ranks: dict[str, list[int]] = {}
    below: dict[str, set[int]] = defaultdict(set)
    for line in lines:
        if edge := _EDGE.match(line):
            above[edge[2]], ranks[edge[2]] = edge[1], parse_ranges(edge[3])
            below[edge[1]].update(ranks[edge[2]])
        elif node := _NODE.match(line):
            own = dict(_FIELDS.findall(line))
            calls[node[1]] = (
                own.get("function") or own.get("label", ""),
                f"/{own.get('source', '')}",
                own.get("line", ""),
            )
    for call, own_ranks in ranks.items():
        here = [rank for rank in own_ranks if rank not in below[call]]
        if here:
            yield here, len(here), True, [calls[each] for each in _path(call, above) if each in calls]


def _path(call: str, above: dict[str, str]) -> Iterator[str]:
    for _ in range(_DEEPEST):
        yield call
        if call not in above:
            return
        call = above[call]
