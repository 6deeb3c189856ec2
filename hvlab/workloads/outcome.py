"""What a parser makes of a case's files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hvlab.workloads import proof
from hvlab.workloads.case import Case
from hvlab.workloads.metrics import METRICS
from hvlab.workloads.parameters import Parameter

_TAIL_LINES = 4
_LIMIT = 500
# What horovodrun puts before a rank's line, and torch.distributed before those of a traceback.
_RANK = re.compile(r"^(?:\[\d+\]<std(?:err|out)>:)?(?:\[rank\d+\]: )?")
# What command.py prints for each rank that ended well.
CORES = "hvlab: cores: "
# What launchers and tracebacks print around the one line that says something.
_FRAME = re.compile(
    r"[-=*~^\s]*$|File \"|Traceback |Process name: |Exit code: |Terminated$"
    r"|Primary job  terminated normally|a non-zero exit code\. Per user-direction"
    r"|mpirun detected that one or more processes exited|the job to be terminated\. The first process"
    r"|RuntimeError: Horovod detected that one or more processes exited"
    r"|srun: (?:launch/slurm|cluster configuration lacks|Force Terminated|Job step aborted)"
    # Ranks that srun ended because of another one.
    r"|srun: error: \S+: tasks? [\d,-]+: (?:Terminated|Exited with exit code 1(?:37|43))$"
)
_FIRST, _LAST = 0, -1
# What tells most, the first kind that is there: a C++ exception, the end of a rank, a Python exception,
# a rank that horovodrun or srun lost. Of exceptions the last line counts, it may name the one before as its
# cause; of ends of ranks the first, others are ended for it.
_TELLING = (
    (_LAST, re.compile(r"what\(\):\s*(.*)")),
    (_LAST, re.compile(r"mpirun noticed that process rank .*")),
    (_LAST, re.compile(r"srun: error: (Node failure on .*|Unable to .*)")),
    (_FIRST, re.compile(r"srun: error: (\S+: tasks? [\d,-]+: (?!Terminated|Killed|Exited).*)")),
    (_LAST, re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)\b.*)")),
    (_FIRST, re.compile(r"Process \d+ exit with status code .*")),
    (_FIRST, re.compile(r"srun: error: (\S+: tasks? [\d,-]+: Exited .*)")),
    (_LAST, re.compile(r"srun: (First task exited \d+s ago)")),
)
_MISSING = re.compile(r"Missing ranks:\s*(.*)")


@dataclass(frozen=True)
class Figure:
    """One measured value with its unit; ``params`` holds what it belongs to beyond the case's own."""

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
    """A program that runs on the nodes, what can be set of it, and who reads what it wrote.

    ``primary`` is the metric that is compared unless another is requested; ``collective`` is the one that
    its backend has to carry.
    """

    name: str
    program: str
    parameters: tuple[Parameter, ...]
    parse: Callable[[Case, Mapping[str, Any], Path], Outcome]
    primary: str
    collective: str = "allreduce"


def read_json(path: Path) -> Any:
    """Return the file's content; None where there is no such file or no JSON in it."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def figure(metric: str, value: float, **params: Any) -> Figure:
    """Return a figure in its metric's own unit."""
    return Figure(metric, float(value), METRICS[metric].unit, params)


def started(ended: Mapping[str, Any]) -> Outcome:
    """Return an outcome that knows only when the case ran."""
    begun = float(ended.get("started_at") or 0)
    return Outcome(begun, float(ended.get("ended_at") or begun) - begun)


def opened(case: Case, ended: Mapping[str, Any], folder: Path) -> tuple[Outcome, Mapping[str, Any]]:
    """Return what every program tells of a case, and its result; an error where that cannot count.

    It counts where all checks were good, the launcher ended well, the ranks were as many and on the device as
    requested, and the requested backend, and no other, carried the case's collective.
    """
    begun = started(ended)
    result = read_json(folder / "result.json")
    failed = launcher_error(case, ended, folder)
    if not isinstance(result, dict):
        return replace(begun, error=failed or "the program wrote no result"), {}
    if result.get("unavailable"):
        return replace(begun, error=str(result["unavailable"]), skipped=True), {}
    outcome = replace(
        begun,
        proved_backend=proof.proved(case, result),
        world_size=(result.get("world") or {}).get("size"),
        versions={**((result.get("state") or {}).get("versions") or {}), **_transport(case, result)},
    )
    error = "; ".join(result.get("checks") or []) or failed or _elsewhere(case, outcome, result)
    return replace(outcome, error=error or proof.unproved(case, result)), result


def _transport(case: Case, result: Mapping[str, Any]) -> dict[str, str]:
    """Return what really carried the data: Open MPI's layer, and between hosts the network devices."""
    shown = {"pml": (result.get("state") or {}).get("pml")}
    if len(case.hosts) > 1:
        shown["transport"] = ", ".join((result.get("wire") or {}).get("carriers") or [])
    return {name: text for name, text in shown.items() if text}


def _elsewhere(case: Case, outcome: Outcome, result: Mapping[str, Any]) -> str | None:
    if outcome.world_size != case.world_size:
        return f"asked for {case.world_size} ranks, {outcome.world_size} took part"
    device = str(result.get("device", "cpu")).partition(":")[0]
    requested = case.params["device"]
    return None if device == requested else f"asked for the device {requested}, the tensors were on {device}"


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
    lost = [host for host, answer in (ended.get("reaped") or {}).items() if isinstance(answer, str)]
    reasons = [words] * bool(words) + [f"{', '.join(lost)} is unreachable"] * bool(lost)
    return ": ".join([f"{case.launcher} ended with exit status {ended.get('rc')}", *reasons])


def last_words(folder: Path) -> str:
    """Return why the launcher ended, from what it and the ranks printed."""
    text = output(folder)
    lines = [_RANK.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if not _FRAME.match(line) and not line.startswith(CORES)]
    for which, pattern in _TELLING:
        matches = [match for line in lines if (match := pattern.match(line))]
        if matches:
            match = matches[which]
            return str(match.group(match.lastindex or 0))[:_LIMIT]
    return " | ".join(lines[-_TAIL_LINES:])[-_LIMIT:]


def output(folder: Path) -> str:
    """Return all that a case printed; standard error first."""
    return _text(folder / "stderr") + "\n" + _text(folder / "stdout")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
