"""A record: one value of one case, as it is stored and read back; `records` makes them of an outcome."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field

from hvlab.base import answers
from hvlab.base.answers.shapes import Count, HostAnswer
from hvlab.base.errors import UsageError
from hvlab.base.masking import mask_json
from hvlab.workloads import read_back

# Run ids, which are names of folders: foreign results must not choose where reports are written.
RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
STATES = ("running", "interrupted", "finished", "refused")
# More ranks are a damaged or hostile file.
_MOST_SLOTS, _MOST_RANKS = 4096, 10_000_000
# The launcher of figures that were imported.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Record:
    """One value. ``status`` is ok, failed or skipped; a case without figures is one record.

    ``started_at`` is UTC (ISO 8601); ``raw_path`` is relative to the results folder.
    """

    run_id: str
    case_id: str
    started_at: str
    workload: str
    launcher: str
    backend: str
    proved_backend: str | None
    hosts: tuple[str, ...]
    slots_per_host: int
    world_size: int | None
    params: Mapping[str, Any]
    repeat: int
    metric: str | None
    value: float | None
    unit: str | None
    status: str
    error: str | None
    stack: Mapping[str, Any]
    raw_path: str


FIELDS = tuple(field.name for field in fields(Record))
_AS_JSON = ("hosts", "params", "stack")


class _Params(HostAnswer):
    """Parameters of records that no workload takes."""

    size_bytes: Annotated[Count, Field(ge=1)] = 1
    in_place: bool | None = None


class _Stack(HostAnswer):
    """Versions of a case that are used beyond printing."""

    cores: str | None = None
    oversubscribed: str | None = None


class RunSpec(HostAnswer):
    """The request of a run, as far as reports read it."""

    sides: dict[str, dict[str, Any]] | None = None


class _Row(HostAnswer):
    """A record as JSON holds it: optional fields may be null, none may be absent."""

    run_id: str
    case_id: str
    started_at: str
    workload: str
    launcher: str
    backend: str
    proved_backend: str | None = None
    metric: str | None = None
    unit: str | None = None
    error: str | None = None
    hosts: list[str]
    # Ranks are counted one by one.
    slots_per_host: Annotated[Count, Field(le=_MOST_SLOTS)]
    world_size: Annotated[Count, Field(le=_MOST_RANKS)] | None = None
    params: _Params
    repeat: Count
    status: Literal["ok", "failed", "skipped"]
    value: Annotated[float, Field(ge=-1e300, le=1e300)] | None = None
    stack: _Stack
    raw_path: str


def to_row(record: Record) -> tuple[Any, ...]:
    """Return a record as journals and SQLite hold it."""
    return tuple(
        json.dumps(getattr(record, name)) if name in _AS_JSON else getattr(record, name) for name in FIELDS
    )


def read_record(row: Sequence[Any], known: dict[Any, Any]) -> Record:
    """Parse a row; ``known`` caches parsed JSON, which a run's rows repeat.

    Raises ValueError, TypeError, LookupError or RecursionError for an invalid one.
    """
    values = dict(zip(FIELDS, row, strict=True))
    for name in _AS_JSON:
        text = values[name]
        if text not in known:
            known[text] = parse_masked(text)
        values[name] = known[text]
    if problem := answers.mismatch(values, _Row):
        raise ValueError(problem)
    # By the workload, too, whose parameters these are.
    kind = (values["workload"], row[FIELDS.index("params")])
    if kind not in known:
        try:
            known[kind] = read_back(values["workload"], values["params"])
        except UsageError as error:
            raise ValueError(str(error)) from error
    values["params"] = known[kind]
    run_name(values["run_id"])
    values |= {name: answers.clean(value) for name, value in values.items() if isinstance(value, str)}
    path = PurePosixPath(values["raw_path"])
    if path.parts[:1] not in ((), ("runs",)) or ".." in path.parts:
        raise ValueError(f"the raw path {values['raw_path']!r} is not below runs/")
    values["hosts"] = tuple(values["hosts"])
    return Record(**values)


def run_name(name: object) -> str:
    """Return a valid name of a run. Raises ValueError."""
    if not isinstance(name, str) or not RUN_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a run")
    return name


def parse_masked(text: str) -> Any:
    """Parse a JSON text, secrets masked. Raises ValueError."""
    try:
        return answers.check(mask_json(text), "the results")
    except answers.AnswerError as error:
        raise ValueError(error.observed) from error
