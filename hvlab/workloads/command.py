"""The user's own training: a command, and its output -> figures.

Every rank starts the command. Its figures are the duration of the launch, and the throughput in the last line
of rank 0's output that matches a pattern.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.answers.shapes import Count, HostAnswer, NotNegative
from hvlab.base.errors import UsageError
from hvlab.workloads import answered
from hvlab.workloads.case import Case
from hvlab.workloads.metrics import METRICS, TABLES
from hvlab.workloads.outcome import STEP, Figure, Outcome, Workload, figure, open_outcome, output, read_text
from hvlab.workloads.parameters import from_table

OUTPUT = "output.txt"
_UNITS = r"(?:images|imgs?|samples|examples|sequences|tokens)"
# Anchored and possessive, so that a line of digits takes linear time.
_NUMBER = r"(?<!\d)(?<!\d,)(?P<value>\d++(?:,\d++)*+,*+(?:\.\d++)?+(?:[eE][-+]?\d++)?+)"
_A_SECOND = r"\s*(?:/\s*|per\s+)s(?:ec(?:ond)?)?\b"
# The usual output of trainings; not the throughput of each GPU.
PATTERNS = tuple(
    re.compile(text, re.IGNORECASE)
    for text in (
        rf"{_NUMBER}\s*(?P<unit>{_UNITS}){_A_SECOND}(?!\s*(?:per|/|each))",
        rf"(?P<unit>{_UNITS}){_A_SECOND}(?!\s*(?:per|/|each))[^:=\n]{{0,24}}[:=]\s*{_NUMBER}",
        rf"throughput\s*+(?:\([^)\n]{{0,80}}\)\s*+)?+[:=]\s*{_NUMBER}",
    )
)
# Each of the PATTERNS matches only where this does.
_NAMED = re.compile(f"{_UNITS}|throughput", re.IGNORECASE)
# command.py's line on a rank whose command failed.
_FAILURE = re.compile(r"(?:\[[\d,]+\]<std(?:err|out)>:)?\s*hvlab: (rank \d+ on .*)")
# Output of other ranks when one has left.
_CONSEQUENCE = re.compile(
    r"Horovod has been shut down|HorovodInternalError|Connection (?:closed|reset) by peer"
)
_MISSING_FILE = re.compile(r"No module named '|No such file or directory")
_COPY = "; files of yours that the command line does not name need --copy"
_LIMIT = 800
# Launchers may write the rank before it.
_STEP = re.compile(rf"\b{STEP}(\{{.*\}})$", re.MULTILINE)
PARTS = ("compute", "exposed", "data", "host")
_NO_STEPS = (
    "no process called step() of an optimizer of torch.optim; --explain needs that, and torch 2.0 or later"
)
_EXAMPLE = "write --pattern 'images/sec: (?P<value>[0-9.]+)'"


class _StepParts(HostAnswer):
    rank: Count
    compute: NotNegative
    exposed: NotNegative
    data: NotNegative
    host: NotNegative
    overhead: NotNegative


class _NoSteps(HostAnswer):
    rank: Count
    missing: str


def parse(case: Case, ended: Mapping[str, Any], folder: Path) -> Outcome:
    """Return the figures of a case, or why it does not count."""
    outcome, result = open_outcome(case, ended, folder, answered.CommandResult)
    copied = str(case.params.get("copy") or "")
    if copied:
        outcome = replace(outcome, versions={**outcome.versions, "files": copied.split(maxsplit=1)[0]})
    if outcome.error:
        reason = None if ended.get("timed_out") or outcome.skipped else _failure(folder)
        return replace(outcome, error=reason or outcome.error)
    try:
        figures = tuple(_figures(case, outcome, result, folder))
    except ValueError as error:
        return replace(outcome, error=str(error))
    return replace(outcome, figures=figures)


def _figures(case: Case, outcome: Outcome, result: Mapping[str, Any], folder: Path) -> Iterator[Figure]:
    yield figure("real", outcome.seconds)
    yield figure("training_time", result["command"]["seconds"])
    yield from _steps(case, folder)
    text = read_text(folder / OUTPUT)
    pattern = str(case.params["pattern"])
    value = throughput(text, pattern)
    if value is not None:
        yield Figure("throughput", value, str(case.params["unit"]) or METRICS["throughput"].unit)
    elif pattern:
        raise ValueError(f"rank 0 printed no line that matches the pattern {pattern} ({OUTPUT})")


def _steps(case: Case, folder: Path) -> Iterator[Figure]:
    """Return the parts of a step on each rank, see `_place`."""
    if EXPLAIN.name not in case.params:
        return
    ranks: dict[str, dict[str, float]] = {}
    missing = _NO_STEPS
    for line in _STEP.findall(output(folder)):
        try:
            answer = answers.load(line, "a rank", _StepParts | _NoSteps)
            if "missing" in answer:
                missing = f"rank {answer['rank']}'s training: {answer['missing'][:_LIMIT]}"
            else:
                ranks[_place(case, answer["rank"])] = answer
        except (AnswerError, IndexError):
            continue
    if not ranks:
        raise ValueError(f"no step was recorded: {missing}")
    for name, parts in ranks.items():
        for part in PARTS:
            yield figure(f"step_{part}", parts[part], host=name)
    yield figure("recorded_step", max(parts["overhead"] for parts in ranks.values()))


def _place(case: Case, rank: int) -> str:
    """Return a rank's name: that of its host, if it is alone there."""
    host = case.hosts[rank // case.slots]
    if case.slots == 1:
        return host
    return f"rank {rank}" if len(case.hosts) == 1 else f"rank {rank} on {host}"


def read_removed(folder: Path) -> tuple[str, ...]:
    """Return the files that rank 0 wrote to its temporary working folder; ``folder`` is the case's."""
    try:
        written = answers.read(folder / "result.json", "its result.json", answered.CommandResult)
    except (FileNotFoundError, AnswerError):
        return ()
    return tuple(written["command"].get("removed") or ())


def throughput(text: str, pattern: str = "") -> float | None:
    """Return the value in the last line of ``text`` that matches, if any.

    ``pattern`` is a regular expression with a group ``value``, by default ``PATTERNS``. Raises ValueError if
    that group is not a positive number.
    """
    patterns = (re.compile(pattern),) if pattern else PATTERNS
    for line in reversed(text.splitlines()):
        for each in patterns if pattern or _NAMED.search(line) else ():
            matches = list(each.finditer(line))
            if matches:
                return _number(matches[-1].group("value"), line)
    return None


def check_pattern(pattern: str | None) -> None:
    """Raise UsageError for a pattern that cannot find a value."""
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            groups = re.compile(pattern or "(?P<value>)").groupindex
    except re.error as error:
        raise UsageError(f"--pattern {pattern}: {error}", remedy=_EXAMPLE) from error
    if "value" not in groups:
        raise UsageError(f"--pattern {pattern} has no group named value", remedy=_EXAMPLE)


def _number(text: str, line: str) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        observed = f"{text[:_LIMIT]!r} is no positive number, in the line: {line.strip()[:_LIMIT]}"
        raise ValueError(f"the value {observed}")
    return value


def _failure(folder: Path) -> str | None:
    """Return the output of a rank whose command failed, preferably not merely by losing a peer."""
    failures = [match[1] for match in map(_FAILURE.match, output(folder).splitlines()) if match]
    first = min(failures, key=lambda text: bool(_CONSEQUENCE.search(text)), default=None)
    if not first:
        return None
    return first[:_LIMIT] + (_COPY if _MISSING_FILE.search(first) else "")


*_, EXPLAIN = _PARAMETERS = from_table(TABLES["command"])
COMMAND = Workload("command", "command.py", _PARAMETERS, parse, "real")
