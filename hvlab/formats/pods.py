"""Logs of the jobs that `hvlab bench --export` writes for Kubernetes: cases with their files. Pure.

The launcher's log says three things: the case, the result as ``workloads/programs/logged.py`` prints it, and
how the launcher ended. What kubectl or another collector puts before a line does not matter.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.errors import CheckError
from hvlab.lab.backends import BACKENDS
from hvlab.workloads import WORKLOADS
from hvlab.workloads.case import Case

_LINE = re.compile(r"hvlab: (case|result|ended): (.*)")
_PART = re.compile(r"(\d{1,6})/(\d{1,6}) ([A-Za-z0-9+/=]+)$")
_NO_ANSWER = re.compile(r"hvlab: (no answer from [^\s:]+)")
# The id of a case names its folder.
_ID = re.compile(r"[A-Za-z0-9][\w.,=+-]{0,200}")
# What zlib makes of a hostile log would fill the memory.
_LARGEST = 256 * 2**20


@dataclass(frozen=True)
class PodLaunch:
    """One launch: its case, and the files that tell of it, as a bench fetches them from hosts."""

    case: Case
    files: Mapping[str, bytes]


def knows(text: str) -> bool:
    """Return whether a text is such a log."""
    return any(match[1] == "case" for match in _LINE.finditer(text))


def read(text: str, name: str) -> list[PodLaunch]:
    """Return the launches of a log. Raises CheckError with the line where it is not whole."""
    launches = []
    for first, lines in _sections(text):
        where = f"{name}, line {first}"
        said: dict[str, list[str]] = {"case": [], "result": [], "ended": []}
        for line in lines:
            if match := _LINE.search(line):
                said[match[1]].append(match[2].strip())
        case = _case(said["case"][0], where)
        output = "\n".join(lines)
        files = {"case.json": _ended(said["ended"], output), "stdout": output.encode()}
        if said["result"]:
            files["result.json"] = _result(said["result"], where)
        launches.append(PodLaunch(case, files))
    return launches


def _sections(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the line that names a case, and the lines from there to the next one."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if (m := _LINE.search(line)) and m[1] == "case"]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield start + 1, lines[start:end]


def _case(text: str, where: str) -> Case:
    try:
        content = json.loads(text)
        case = Case(**{**content, "hosts": tuple(content["hosts"])})
        valid = (
            _ID.fullmatch(case.id)
            and case.workload in WORKLOADS
            and case.backend in BACKENDS
            and {item.name for item in WORKLOADS[case.workload].parameters} <= case.params.keys()
            and case.hosts
            and all(isinstance(host, str) for host in case.hosts)
            and all(isinstance(number, int) and number > 0 for number in (case.slots, case.repeat))
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        valid = None
    if not valid:
        raise CheckError(
            f"{where}: this is no case of this version of hvlab",
            remedy="read the log with the version that exported the jobs",
        )
    return case


def _ended(said: list[str], output: str) -> bytes:
    """Return case.json: how the launcher ended."""
    ended: dict[str, Any] = {"rc": None, "timed_out": False, "error": None, "reaped": {}}
    missing = _NO_ANSWER.search(output)
    if missing:
        ended["error"] = missing[1]
    elif not said:
        ended["error"] = "the log stops before the launcher has ended: its pod was ended, or still ran"
    else:
        try:
            content = json.loads(said[-1])
            ended |= {key: float(content[key]) for key in ("started_at", "ended_at")}
            ended["rc"] = int(content["rc"])
        except (ValueError, TypeError, KeyError):
            ended["error"] = f"how the launcher ended is not to be read: {said[-1][:80]}"
    return json.dumps(ended).encode()


def _result(said: list[str], where: str) -> bytes:
    """Return the file of which the log has the parts."""
    parts: dict[int, str] = {}
    count = 0
    for text in said:
        match = _PART.fullmatch(text)
        if match:
            parts[int(match[1])], count = match[3], int(match[2])
    if not count or sorted(parts) != list(range(1, count + 1)):
        raise CheckError(
            f"{where}: of the {count or 'some'} parts of its result the log has {len(parts)}",
            remedy="fetch the log again, whole: `kubectl logs` without --tail and --since",
        )
    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(
            base64.b64decode("".join(parts[number] for number in sorted(parts)), validate=True), _LARGEST
        )
        whole = unpacking.eof and not unpacking.unused_data
    except (ValueError, zlib.error):
        whole = False
    if not whole:
        raise CheckError(f"{where}: its result is damaged", remedy="fetch the log again")
    return content
