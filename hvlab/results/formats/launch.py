"""The two shapes that every format is written from and read into: a run, and a launch. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hvlab import __version__
from hvlab.base import answers
from hvlab.base.errors import UsageError
from hvlab.results.formats.lines import ORIGIN, number
from hvlab.results.store import Record, Run
from hvlab.workloads.metrics import METRICS
from hvlab.workloads.operations import COLLECTIVES

# Half of the last digit that the tools print.
_PRINTED = 0.00501


@dataclass(frozen=True)
class MeasuredRun:
    """A run and its records; ``seconds`` is the duration of each case, where known."""

    run: Run
    records: Sequence[Record]
    seconds: Mapping[str, float] = field(default_factory=dict)

    def cases(self) -> dict[str, list[Record]]:
        """Records of each case, in the order they were measured."""
        cases: dict[str, list[Record]] = {}
        for record in self.records:
            cases.setdefault(record.case_id, []).append(record)
        return cases


@dataclass(frozen=True)
class LaunchRow:
    """One size of a launch, in place or out of place; ``in_place`` is None if unknown.

    ``size`` is in bytes as nccl-tests counts them; ``values`` are by metric, in the units of
    hvlab.workloads.metrics; ``checked``: the program verified the received data; ``place`` is its line in the
    file.
    """

    size: int
    values: Mapping[str, float] = field(default_factory=dict)
    in_place: bool | None = None
    dtype: str | None = None
    op: str | None = None
    root: int | None = None
    iterations: int | None = None
    checked: bool = False
    place: str = ""
    error: str | None = None


@dataclass(frozen=True)
class Launch:
    """The measurements of one launch of a program.

    ``ranks`` and ``slots`` are None, and ``hosts`` is empty, where unknown. ``device`` is cpu, cuda or rocm;
    ``iterations`` are those that count; ``settings`` are other launch options in the output; ``left_out``
    names columns for which hvlab has no metric; ``stack`` is the tool and the hardware; ``origin`` is hvlab's
    own line in its exports.
    """

    workload: str | None
    rows: tuple[LaunchRow, ...]
    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    slots: int | None = None
    iterations: int | None = None
    warmup: int | None = None
    device: str | None = None
    error: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    stack: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """Sizes in bytes, each once, in their order."""
        return list(dict.fromkeys(row.size for row in self.rows))


def status(records: Sequence[Record]) -> str:
    """State of a case: failed if one record failed, else skipped or ok."""
    statuses = {record.status for record in records}
    return next(status for status in ("failed", "skipped", "ok") if status in statuses or status == "ok")


def launches(records: Iterable[Record], *, pair: bool = True) -> list[Launch]:
    """Return the collectives among the records, launch by launch; skipped cases were never launched.

    With ``pair``, an in-place and an out-of-place case that are otherwise alike make one launch.
    """
    varying = ("size_bytes", "sizes", *["in_place"] * pair)
    groups: dict[tuple[Any, ...], list[Record]] = {}
    twins: dict[tuple[Any, ...], list[str]] = {}
    for record in records:
        if record.workload not in COLLECTIVES or record.status == "skipped":
            continue
        params = {name: value for name, value in record.params.items() if name not in varying}
        place = (record.workload, record.backend, record.launcher, record.hosts, record.slots_per_host)
        key = (*place, record.repeat, sort_items(params))
        cases = twins.setdefault((*key, record.params.get("in_place")), [])
        if record.case_id not in cases:
            cases.append(record.case_id)
        groups.setdefault((*key, cases.index(record.case_id)), []).append(record)
    return [_launch(group, varying) for group in groups.values()]


def _launch(group: Sequence[Record], varying: Iterable[str]) -> Launch:
    first = group[0]
    values: dict[tuple[int, bool | None], dict[str, float]] = {}
    errors = []
    for record in group:
        size = record.params.get("size_bytes")
        if record.metric is not None and record.value is not None and size is not None:
            values.setdefault((size, record.params.get("in_place")), {})[record.metric] = record.value
        elif record.status != "ok":
            errors.append(record.error or "failed, no reason was recorded")
    iterations, warmup = _iterations(first, values.values())
    # hvlab's own programs compare every sum, and a wrong one fails its case.
    checked = bool(first.stack.get("checked", "source" not in first.stack))
    return Launch(
        workload=first.workload,
        rows=tuple(
            LaunchRow(
                size,
                row,
                in_place,
                dtype=first.params.get("dtype"),
                op=first.params.get("op"),
                root=first.params.get("root"),
                checked=checked,
            )
            for (size, in_place), row in values.items()
        ),
        ranks=len(first.hosts) * first.slots_per_host or first.world_size,
        hosts=first.hosts,
        slots=first.slots_per_host or None,
        iterations=iterations,
        warmup=warmup,
        device=first.params.get("device"),
        error="; ".join(dict.fromkeys(errors)) or None,
        settings=first.params,
        stack=first.stack,
        origin={
            "version": __version__,
            "run": first.run_id,
            "cases": list(dict.fromkeys(record.case_id for record in group)),
            "workload": first.workload,
            "backend": first.backend,
            "proved": first.proved_backend,
            "launcher": first.launcher,
            "hosts": list(first.hosts),
            "slots": first.slots_per_host,
            "repeat": first.repeat,
            "in_place": list(dict.fromkeys(record.params.get("in_place") for record in group)),
            "params": {name: value for name, value in first.params.items() if name not in varying},
        },
    )


def _iterations(record: Record, rows: Iterable[Mapping[str, float]]) -> tuple[int | None, int | None]:
    """Return the counted iterations and those before them; hvlab's own count both together."""
    iterations, warmup = record.params.get("iterations"), record.params.get("warmup_iterations")
    warmups = [row["warmup"] for row in rows if "warmup" in row]
    if not warmups:
        return iterations, warmup
    return (iterations and max(iterations - round(max(warmups)), 0)), round(max(warmups))


def sort_items(params: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return parameters as a key that is the same for equal ones."""
    return tuple(sorted((name, repr(value)) for name, value in params.items()))


def shares(launch: Launch, shared: Collection[str | None]) -> int:
    """Number of parts into which the ranks share the buffer. Raises UsageError if ranks are unknown."""
    if launch.workload not in shared:
        return 1
    if not launch.ranks:
        raise UsageError(
            f"a {launch.workload} is written by each rank's share, and the number of ranks is unknown",
            remedy="import its log again with --ran-on and --slots",
        )
    return launch.ranks


def origin_line(origin: Mapping[str, Any]) -> str:
    """Return the line of a log that holds an origin."""
    return ORIGIN + json.dumps(origin)


def with_figures(origin: Mapping[str, Any], rows: Iterable[LaunchRow]) -> dict[str, Any]:
    """Return an origin with the figures at full precision, and those without a column."""
    return {**origin, "figures": [[row.size, row.in_place, dict(row.values)] for row in rows]}


def with_digits(rows: Iterable[LaunchRow], origin: Mapping[str, Any]) -> tuple[LaunchRow, ...]:
    """Return the rows at the full precision of their origin, where the table shows the same rounded."""
    figures: dict[tuple[Any, Any], dict[str, Any]] = {}
    for each in origin["figures"] if isinstance(origin.get("figures"), list) else ():
        match each:
            case [int(size), bool() | None as in_place, dict(values)]:
                figures[size, in_place] = {
                    k: v for k, v in values.items() if k in METRICS and number(v) is not None
                }
    exact = (
        (row, figures.get((row.size, row.in_place)) or figures.get((row.size, None)) or {}) for row in rows
    )
    return tuple(
        replace(row, values=values) if _is_rounded(row.values, values) else row for row, values in exact
    )


def _is_rounded(printed: Mapping[str, float], exact: Mapping[str, float]) -> bool:
    return bool(exact) and all(
        name in exact and abs(value - exact[name]) <= _PRINTED + abs(exact[name]) / 1000
        for name, value in printed.items()
    )


def read_origin(line: str) -> dict[str, Any]:
    """Parse an origin line; a damaged one is empty."""
    try:
        origin = answers.load(line.removeprefix(ORIGIN), "the file")
    except answers.AnswerError:
        return {}
    return origin if isinstance(origin, dict) else {}
