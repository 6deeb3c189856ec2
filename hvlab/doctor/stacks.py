"""The stacks in a log: which processes stand where. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from hvlab.base.ranges import format_ranges, parse_ranges
from hvlab.doctor import stack_trees, text
from hvlab.doctor.places import kind_of, name_frame

# Function, file and line.
_Frame = tuple[str, str, str]
# Stacks as py-spy, pystack, faulthandler, gdb and pstack print them: the process or rank, a thread, a frame.
_OWNER = re.compile(
    r"Process (?P<python>\d+)\b(?=:| timed out)"
    r"|(?:Attaching to )?\W*(?:(?:[Pp]rocess|PID|pid)[ :=#]*(?P<pid>\d+)|[Rr]ank[ :=]*(?P<rank>\d+))\b\W*"
    r"(?:\(.*\)|s backtrace\b.*)?\W*$"
)
_STACKED = re.compile(r"[Tt]hread \w+ [\[(]|#0 |Traceback \(most recent call first\)")
_THREAD = re.compile(
    r"Thread (?:0x)?[0-9A-Fa-f]+ \((?:idle|active)[^)]*\)|Thread (?:\d+\.)?\d+ \((?:Thread|LWP) "
    r"|(?:Current t|T)hread 0x[0-9a-f]+ .*\(most recent call first\):$"
    r"|Traceback (?:\(most recent call first\)|for thread \d+ .*\(most recent call (?P<outer>last)\)):$"
)
_FRAMES = (
    re.compile(r'(?:\(\w+\) )?File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>\S+)'),
    re.compile(r"#\d+ +(?:0x[0-9a-f]+ in )?(?P<name>.+?) \((?:.* at (?P<file>\S+):(?P<line>\d+))?"),
    re.compile(r"(?P<name>[^\s()]\S*) \((?P<file>[^\s():]+)(?::(?P<line>\d+))?\)$"),
)


# dshbak puts the hosts that wrote the same between two rules.
_RULE = re.compile(r"-{10,}\s*$")
_HOSTS = re.compile(
    r"[A-Za-z0-9][\w.-]*(?:\[[\d,-]+\][\w.-]*)?(?:,[A-Za-z0-9][\w.-]*(?:\[[\d,-]+\][\w.-]*)?)*\s*$"
)
_HOST = re.compile(r"([\w.-]+)(?:\[([\d,-]+)\])?([\w.-]*)")


def read(raw: Iterable[str]) -> Iterator[str]:
    """Yield which processes stand where, by the stacks in a text; the largest group first."""
    placed = groups([*raw])
    every = sum(number for _, number in placed.values())
    for where, (owners, number) in sorted(placed.items(), key=lambda item: -item[1][1]):
        names = _join(owners) or f"{number} process{'es' * (number > 1)}"
        yield f"{names}: {where}" + f" ({number} of {every})" * (every > 1)


def groups(lines: Sequence[str]) -> dict[str, tuple[list[str], int]]:
    """Return the processes that stand in one place, by name where they have one, and how many they are."""
    stacks: dict[str, list[tuple[bool, list[_Frame]]]] = defaultdict(list)
    alike: dict[str, tuple[list[str], int]] = {}
    for hosts, own in _by_hosts(lines):
        for who, threads in _by_process(own).items():
            for name in [
                f"{who} on {host}" if " " in who and not who.startswith("stack") else host for host in hosts
            ] or [who]:
                stacks[name] += threads
    for ranks, number, main, frames in stack_trees.read(lines):
        for rank in ranks:
            stacks[f"rank {rank}"].append((main, frames))
        if not ranks and (where := _place_of([(main, frames)])):
            alike[where] = ([], alike.get(where, ([], 0))[1] + number)
    for who, threads in stacks.items():
        if where := _place_of(threads):
            owners, number = alike.get(where, ([], 0))
            alike[where] = ([*owners, who], number + 1)
    return alike


def _join(owners: Sequence[str]) -> str:
    kinds = {owner.rpartition(" ")[0] for owner in owners}
    if kinds == {"rank"}:
        return f"rank {format_ranges([int(owner.split()[1]) for owner in owners])}"
    shorter = len(kinds) == 1 and " on" not in "".join(kinds)
    return ", ".join([*owners[:1], *(each.rpartition(" ")[2] if shorter else each for each in owners[1:])])


def _by_hosts(lines: Sequence[str]) -> Iterator[tuple[list[str], Sequence[str]]]:
    """Yield the parts of a text that dshbak gives to hosts, or all of it."""
    heads = [
        at
        for at in range(1, len(lines) - 1)
        if _RULE.match(lines[at - 1]) and _RULE.match(lines[at + 1]) and _HOSTS.match(lines[at])
    ]
    for first, last in zip([-2, *heads], [*heads, len(lines) + 1], strict=True):
        hosts = _expand(lines[first].strip()) if first >= 0 else []
        yield hosts, lines[first + 2 : last - 1]


def _expand(hosts: str) -> list[str]:
    names = []
    for before, numbers, after in _HOST.findall(hosts):
        width = len(re.split("[,-]", numbers)[0])
        names += [f"{before}{number:0{width}}{after}" for number in parse_ranges(numbers)] or [before]
    return names


def _by_process(lines: Sequence[str]) -> dict[str, list[tuple[bool, list[_Frame]]]]:
    """Return the threads of each process: whether it is the main one, and its frames."""
    # Ranks that write at the same time have their marks.
    written: dict[str, list[str]] = defaultdict(list)
    for writer, line in text.split_writers(lines if any(map(_STACKED.search, lines)) else ()):
        written[writer.strip(" :")].append(line.removeprefix("(gdb) "))
    stacks: dict[str, list[tuple[bool, list[_Frame]]]] = defaultdict(list)
    for writer, own in written.items():
        on = f" on {writer}" * bool(re.match(r"[A-Za-z]", writer))
        owner, inside, outer = writer or f"stack {len(stacks) + 1}", False, False
        for line in own:
            main = "MainThread" in line or line.startswith(("Thread 1 (", "Current thread"))
            bare = line.startswith("#0 ") and (not inside or bool(stacks[owner][-1][1]))
            if named := _OWNER.match(line):
                pid = named["python"] or named["pid"]
                owner = (f"process {pid}" if pid else f"rank {named['rank']}") + on
                inside = False
            elif (thread := _THREAD.match(line)) or bare:
                # Of processes that no line names, each has one main thread.
                again = bare or (main and any(is_main for is_main, _ in stacks[owner]))
                if again and stacks[owner] and owner.startswith("stack"):
                    owner = f"stack {len(stacks) + 1}"
                stacks[owner].append((main, []))
                inside, outer = True, bool(thread and thread["outer"])
            if inside and (frame := _match_frame(line)):
                frames = stacks[owner][-1][1]
                place = 0 if outer else len(frames)
                frames.insert(place, (frame["name"], f"/{frame['file'] or ''}", frame["line"] or ""))
    return stacks


def _match_frame(line: str) -> re.Match[str] | None:
    return next((found for form in _FRAMES if (found := form.match(line))), None)


def _place_of(threads: Sequence[tuple[bool, Sequence[_Frame]]]) -> str:
    """Return where a process stands: in a collective if one of its threads does, else its main thread."""
    stacks = [frames for _, frames in sorted(threads, key=lambda each: each[0]) if frames]
    known = [
        [(kind, each) for each in frames if (kind := kind_of(each[0], each[1], 0.0))] for frames in stacks
    ]
    waits = [each for own in known for kind, each in own if kind == "collective"]
    if not stacks:
        return ""
    name, file, line = waits[-1] if waits else known[-1][0][1] if known[-1] else stacks[-1][0]
    at = "/".join(PurePosixPath(file).parts[1:][-2:]) + f":{line}" * bool(line)
    return f"{'waiting in ' * bool(waits)}{name_frame(name)}" + f" ({at})" * bool(at)
