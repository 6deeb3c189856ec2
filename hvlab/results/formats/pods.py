"""Logs of the jobs that `hvlab bench --export` writes for Kubernetes: cases with their files. Pure.

The launcher's log states three things, each with the id of its case: the case, its files as
``workloads/programs/logged.py`` prints them, and how the launcher ended. So one log may hold several
concurrent jobs. Prefixes of kubectl or another collector are removed.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.base.errors import CheckError
from hvlab.lab.backends import BACKENDS
from hvlab.workloads import WORKLOADS
from hvlab.workloads.case import Case
from hvlab.workloads.command import EXPLAIN

# The id of a case names its folder.
_ID = r"[A-Za-z0-9][A-Za-z0-9._=@+-]{0,200}"
_CASE = "hvlab: case: "
_FILE = re.compile(
    rf"hvlab: file: ({_ID}) (result\.json|output\.txt) (\d{{1,6}})/(\d{{1,6}}) ([A-Za-z0-9+/=]+)\s*$"
)
_ENDED = re.compile(rf"hvlab: ended: ({_ID}) (.*)")
_NAMED = re.compile(rf"hvlab: (?:file|ended): ({_ID}) ")
# Longest prefix of a collector, and the most concurrent jobs.
_LONGEST_TAG, _MOST_TAGS = 500, 200
# A hostile log may unpack to more than the memory holds.
_LARGEST = 256 * 2**20


@dataclass(frozen=True)
class PodLaunch:
    """One launch: its case and its files, as a bench fetches them from hosts."""

    case: Case
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class _Line:
    """A line without the collector's prefix (``tag``), and the case that it names, if any."""

    text: str
    tag: re.Pattern[str] | None
    case_id: str | None


def knows(text: str) -> bool:
    """Recognise such a log."""
    return _CASE in text


def read(text: str, name: str) -> list[PodLaunch]:
    """Return the launches of a log; one with incomplete files has failed.

    Raises CheckError with the line of an invalid case.
    """
    lines = _lines(text.splitlines(), name)
    last = {line.case_id: number for number, line in enumerate(lines)}
    launches = []
    for start, end in _blocks(lines):
        where, first = f"{name}, line {start + 1}", lines[start]
        case = _case(first.text.partition(_CASE)[2], where)
        # The files of a job may stand after the case of another one, which ran at the same time.
        block = lines[start : max(end, last.get(case.id, 0) + 1)]
        own = [
            line.text for line in block if line.tag in (None, first.tag) and line.case_id in (None, case.id)
        ]
        launches.append(PodLaunch(case, _files(own, where)))
    return launches


def _lines(texts: Sequence[str], name: str) -> list[_Line]:
    tags = _tags([text.partition(_CASE)[0] for text in texts if _CASE in text], name)
    lines = []
    for text in texts:
        tag = next((tag for tag in tags if tag.match(text)), None)
        named = _NAMED.search(text)
        lines.append(_Line(tag.sub("", text, count=1) if tag else text, tag, named[1] if named else None))
    return lines


def _blocks(lines: Sequence[_Line]) -> Iterator[tuple[int, int]]:
    starts = [number for number, line in enumerate(lines) if _CASE in line.text]
    following: dict[re.Pattern[str] | None, int] = {}
    ends = []
    for start in reversed(starts):
        ends.append(following.get(lines[start].tag, len(lines)))
        following[lines[start].tag] = start
    return zip(starts, reversed(ends), strict=True)


def _tags(prefixes: Sequence[str], name: str) -> list[re.Pattern[str]]:
    """Return patterns for a collector's prefix of each pod's lines; times and streams in it vary."""
    varying = {
        re.sub(r"std(?:out|err)", "std(?:out|err)", re.sub(r"\d+", r"\\d+", re.escape(prefix)))
        for prefix in prefixes
        if 0 < len(prefix) <= _LONGEST_TAG
    }
    if len(varying) > _MOST_TAGS:
        raise CheckError(f"{name}: more than {_MOST_TAGS} pods wrote into it", remedy="split it by pods")
    return [re.compile("^" + pattern) for pattern in sorted(varying, key=len, reverse=True)]


def _case(text: str, where: str) -> Case:
    try:
        content = json.loads(text)
        case = Case(**{**content, "hosts": tuple(content["hosts"])})
        valid = (
            re.fullmatch(_ID, case.id)
            and case.workload in WORKLOADS
            and case.backend in BACKENDS
            and {item.name for item in WORKLOADS[case.workload].parameters if item != EXPLAIN}
            <= case.params.keys()
            and case.hosts
            and all(isinstance(host, str) for host in case.hosts)
            and all(isinstance(number, int) and number > 0 for number in (case.slots, case.repeat))
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        valid = None
    if not valid:
        raise CheckError(
            f"{where}: this is not a case of this version of hvlab",
            remedy="read the log with the version that exported the jobs",
        )
    return case


def _files(lines: Sequence[str], where: str) -> dict[str, bytes]:
    parts: dict[str, list[re.Match[str]]] = {}
    for match in filter(None, map(_FILE.search, lines)):
        parts.setdefault(match[2], []).append(match)
    files, damage = {}, ""
    for name, matches in parts.items():
        try:
            files[name] = _join(matches, f"{where}: {name}")
        except CheckError as error:
            damage = f"{error}; {error.remedy}"
    ended = [match[2] for match in map(_ENDED.search, lines) if match]
    return {
        "case.json": _end(ended, damage),
        "stdout": "\n".join(line for line in lines if not _FILE.search(line)).encode(),
        **files,
    }


def _end(said: Sequence[str], damage: str) -> bytes:
    ended: dict[str, Any] = {"rc": None, "timed_out": False, "error": None, "reaped": {}}
    if damage:
        ended["error"] = damage
    elif not said:
        ended["error"] = "the log stops before the launcher ended: its pod was killed, or was still running"
    else:
        try:
            content = json.loads(said[-1])
            ended |= {key: float(content[key]) for key in ("started_at", "ended_at")}
            ended |= {"error": str(content["error"])} if "error" in content else {"rc": int(content["rc"])}
        except (ValueError, TypeError, KeyError):
            ended["error"] = f"the launcher's end cannot be read: {said[-1][:80]}"
    return json.dumps(ended).encode()


def _join(matches: Sequence[re.Match[str]], where: str) -> bytes:
    parts = {int(match[3]): match[5] for match in matches}
    count = int(matches[-1][4])
    if sorted(parts) != list(range(1, count + 1)):
        raise CheckError(
            f"{where}: the log has {len(parts)} of its {count} parts",
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
        raise CheckError(f"{where} is damaged", remedy="fetch the log again")
    return content
