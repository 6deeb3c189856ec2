"""What a parser makes of a case's files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvlab.matrix import Case

_TAIL_LINES = 4
_LIMIT = 500
_RANK = re.compile(r"^\[\d+\]<std(?:err|out)>:")
# What launchers and tracebacks print around the one line that says something.
_FRAME = re.compile(
    r"[-=*~^\s]*$|File \"|Traceback |Process name: |Exit code: |Terminated$"
    r"|Primary job  terminated normally|a non-zero exit code\. Per user-direction"
    r"|mpirun detected that one or more processes exited|the job to be terminated\. The first process"
    r"|RuntimeError: Horovod detected that one or more processes exited"
)
# What tells most, the first kind that is there: a C++ exception, the end of a rank, a Python exception,
# a rank that horovodrun lost.
_TELLING = (
    re.compile(r"what\(\):\s*(.*)"),
    re.compile(r"mpirun noticed that process rank .*"),
    re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)\b.*)"),
    re.compile(r"Process \d+ exit with status code .*"),
)
_MISSING = re.compile(r"Missing ranks:\s*(.*)")


@dataclass(frozen=True)
class Figure:
    """One measured value with its unit, and the parameters it belongs to."""

    metric: str
    value: float
    unit: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a case ended: ``error`` is None when all went well; then ``figures`` count.

    ``started_at`` is seconds since the epoch on the first host, ``seconds`` how long the launcher ran.
    """

    started_at: float
    seconds: float = 0.0
    error: str | None = None
    skipped: bool = False
    proved_backend: str | None = None
    world_size: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Workload:
    """A program that runs on the nodes: how it is called, and who reads what it wrote."""

    name: str
    command: Callable[[Case], tuple[str, ...]]
    parse: Callable[[Case, Mapping[str, Any], Path], Outcome]


def read_json(path: Path) -> Any:
    """Return the file's content; None where there is no such file or no JSON in it."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def started(ended: Mapping[str, Any]) -> Outcome:
    """Return an outcome that knows only when the case ran."""
    begun = float(ended.get("started_at") or 0)
    return Outcome(begun, float(ended.get("ended_at") or begun) - begun)


def launcher_error(case: Case, ended: Mapping[str, Any], folder: Path) -> str | None:
    """Return what went wrong with the launch itself, from case.json and the launcher's last words."""
    if ended.get("error"):
        return str(ended["error"])
    words = last_words(folder)
    if ended.get("timed_out"):
        missing = _MISSING.search(_text(folder / "stderr"))
        stalled = f": Horovod waited for ranks {missing.group(1)}" if missing else ""
        return f"ran over its {case.timeout} s and was ended{stalled}"
    if ended.get("rc") == 0:
        return None
    lost = [host for host, found in (ended.get("reaped") or {}).items() if isinstance(found, str)]
    told = [words] * bool(words) + [f"{', '.join(lost)} does not answer any more"] * bool(lost)
    return ": ".join([f"{case.launcher} ended with exit status {ended.get('rc')}", *told])


def last_words(folder: Path) -> str:
    """Return why the launcher ended, from what it and the ranks printed."""
    text = _text(folder / "stderr") + "\n" + _text(folder / "stdout")
    lines = [_RANK.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if not _FRAME.match(line)]
    for pattern in _TELLING:
        found = [match for line in lines if (match := pattern.match(line))]
        if found:
            return str(found[-1].group(found[-1].lastindex or 0))[:_LIMIT]
    return " | ".join(lines[-_TAIL_LINES:])[-_LIMIT:]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
