"""The stacks in a log: which processes stand where. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from hvlab.doctor import text
from hvlab.doctor.places import kind_of, name_frame

# Function, file and line.
_Frame = tuple[str, str, str]
# Stacks as py-spy, pystack, faulthandler, gdb and pstack print them: the process or rank, a thread, a frame.
_OWNER = re.compile(r"(Process) (\d+)\b(?=:| timed out)|\W*[Rr](ank)[ :=]*(\d+)\b\W*(?:\(.*\))?\W*$")
_STACKED = re.compile(r"[Tt]hread \w+ [\[(]|#0 |Traceback \(most recent call first\)")
_THREAD = re.compile(
    r"Thread (?:0x)?[0-9A-Fa-f]+ \((?:idle|active)[^)]*\)|Thread \d+ \((?:Thread|LWP) "
    r"|(?:Current t|T)hread 0x[0-9a-f]+ .*\(most recent call first\):$"
    r"|Traceback (?:\(most recent call first\)|for thread \d+ .*\(most recent call (?P<outer>last)\)):$"
)
_FRAMES = (
    re.compile(r'(?:\(\w+\) )?File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>\S+)'),
    re.compile(r"#\d+ +(?:0x[0-9a-f]+ in )?(?P<name>.+?) \((?:.* at (?P<file>\S+):(?P<line>\d+))?"),
    re.compile(r"(?P<name>[^\s()]\S*) \((?P<file>[^\s():]+)(?::(?P<line>\d+))?\)$"),
)


def read(raw: Iterable[str]) -> Iterator[str]:
    """Yield which processes stand where, by the stacks in a text; the largest group first."""
    alike: dict[str, list[str]] = defaultdict(list)
    for who, threads in _by_process([*raw]).items():
        if where := _place_of(threads):
            alike[where].append(who)
    every = sum(map(len, alike.values()))
    for where, owners in sorted(alike.items(), key=lambda item: -len(item[1])):
        names = ", ".join([owners[0], *(each.rpartition(" ")[2] for each in owners[1:])])
        yield f"{names}: {where}" + f" ({len(owners)} of {every})" * (every > 1)


def _by_process(lines: Sequence[str]) -> dict[str, list[tuple[bool, list[_Frame]]]]:
    """Return the threads of each process: whether it is the main one, and its frames."""
    # Ranks that write at the same time have their marks.
    written: dict[str, list[str]] = defaultdict(list)
    for writer, line in text.split_writers(lines if any(map(_STACKED.search, lines)) else ()):
        written[writer.strip(" :")].append(line)
    stacks: dict[str, list[tuple[bool, list[_Frame]]]] = defaultdict(list)
    for writer, own in written.items():
        owner, inside, outer = writer or f"stack {len(stacks) + 1}", False, False
        for line in own:
            main = "MainThread" in line or line.startswith(("Thread 1 (", "Current thread"))
            bare = line.startswith("#0 ") and (not inside or bool(stacks[owner][-1][1]))
            if named := _OWNER.match(line):
                owner = f"process {named[2]}" if named[1] else f"rank {named[4]}"
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
