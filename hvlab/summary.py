"""Records as the short table a person reads: one row for each size of each case. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hvlab.results import Record

COLUMNS = ("backend", "hosts", "slots", "size", "time us", "min..max", "busbw GB/s", "proved", "status")


def failures(records: Sequence[Record]) -> dict[str, str | None]:
    """Return the error of each case that failed."""
    return {record.case_id: record.error for record in records if record.status == "failed"}


def summary(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return one row for each size of each case, one for a case without figures; see COLUMNS."""
    rows: dict[tuple[str, int], dict[str, Record]] = {}
    for record in records:
        key = (record.case_id, int(record.params.get("size_bytes", 0)))
        rows.setdefault(key, {})[record.metric or ""] = record
    return [_summary_row(size, found) for (_, size), found in rows.items()]


def _summary_row(size: int, found: dict[str, Record]) -> dict[str, Any]:
    first = next(iter(found.values()))
    value = {metric: record.value or 0.0 for metric, record in found.items()}
    row: dict[str, Any] = {
        "backend": first.backend,
        "hosts": len(first.hosts),
        "slots": first.slots_per_host,
        "proved": first.proved_backend,
        "status": first.status,
    }
    if "time" in value:
        row |= {"size": _size(size), "time us": _digits(value["time"])}
    if {"time_min", "time_max"} <= value.keys():
        row["min..max"] = f"{_digits(value['time_min'])}..{_digits(value['time_max'])}"
    if "busbw" in value:
        row["busbw GB/s"] = f"{value['busbw']:.3f}"
    return row


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004


def _size(size: int) -> str:
    for unit, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
