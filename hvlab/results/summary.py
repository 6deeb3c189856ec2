"""Records as two short tables for people: collectives and trainings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hvlab.results.configurations import Configuration, Repeats, configuration_of, gather
from hvlab.results.store import Record
from hvlab.workloads import contention, sizes

_WHERE = ("backend", "hosts", "slots")
_CORES = ("oversubscribed", "stolen %")
_END = ("proved", "status")
_RATE = "samples/s"
_OF_CEILING = "of ceiling"
_TAIL = ("p95", "p99")
_SHORT = {
    "mean us": "{0} us",
    "busbw GB/s": "busbw {0} GB/s",
    "mean step ms": "step {0} ms",
    _RATE: "{0} {1}",
    "real s": "{0} s",
}


@dataclass(frozen=True)
class SummaryTable:
    """A table: its title, its columns in their order, and its rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]


def failures(records: Sequence[Record]) -> dict[str, str | None]:
    """Return the error of each case that failed."""
    return {record.case_id: record.error for record in records if record.status == "failed"}


def sections(
    records: Sequence[Record], ceilings: Mapping[Configuration, float] | None = None
) -> tuple[SummaryTable, ...]:
    """Return the tables of a run: a row for each size of each collective, and for each training.

    Repeats share a row with the median of their figures; cases without figures have a row too. Rows are
    sorted by workload and place; parameters are shown where they differ. ``ceilings`` are the most that links
    carry, in GB/s of bus bandwidth.
    """
    kinds = {record.case_id: _trains(record) for record in records}
    tables = (
        _section("collectives", [r for r in records if not kinds[r.case_id]], _collective, ceilings or {}),
        _section("trainings", [r for r in records if kinds[r.case_id]], _training, {}),
    )
    return tuple(section for section in tables if section.rows)


def figures(records: Sequence[Record]) -> str:
    """Return the figures of one case in a few words; for a collective, those of its largest size."""
    largest = max((record.params.get("size_bytes", 0) for record in records), default=0)
    values = {
        record.metric: record.value
        for record in records
        if record.metric and record.value is not None and "host" not in record.params
        if record.params.get("size_bytes", 0) == largest
    }
    row = _training(values) if any(map(_trains, records)) else _collective(values)
    unit = next((record.unit for record in records if record.metric == "throughput"), None)
    words = [template.format(row[name], unit or _RATE) for name, template in _SHORT.items() if name in row]
    return (f"{sizes.format_size(largest)}: " if largest and words else "") + ", ".join(words)


def _trains(record: Record) -> bool:
    # Logs of benchmarks have their command as a parameter, too.
    return "compression" in record.params or record.workload == "command"


def _section(
    title: str,
    records: Sequence[Record],
    figures: Callable[[Mapping[str, float]], dict[str, Any]],
    ceilings: Mapping[Configuration, float],
) -> SummaryTable:
    gathered = gather(records)
    firsts = {configuration_of(record): record for record in reversed(records)}
    ordered = sorted(gathered, key=lambda one: _order(firsts[one]))
    varied = _find_varied([firsts[one] for one in ordered])
    repeated = any(repeats.tried > 1 for repeats in gathered.values())
    # A user's own training counts in its own unit.
    units = {
        configuration_of(record): record.unit
        for record in records
        if record.metric == "throughput" and record.unit
    }
    rows = []
    for one in ordered:
        values = _typical(gathered[one], repeated=repeated)
        shown = figures(values)
        if one in ceilings and "busbw" in values:
            shown[_OF_CEILING] = f"{values['busbw'] / ceilings[one]:.0%}"
        rows.append(
            {
                **_place(firsts[one], varied),
                **({"repeats": gathered[one].tried} if repeated else {}),
                **{_heading(name, units.get(one), repeated=repeated): value for name, value in shown.items()},
                **_cores(firsts[one], gathered[one]),
                "proved": ", ".join(sorted(filter(None, gathered[one].proved))) or None,
                "status": _status(gathered[one]),
            }
        )
    filled = {name for row in rows for name in row}
    headings = [
        _heading(name, unit, repeated=repeated)
        for name in _FIGURES[title]
        for unit in (dict.fromkeys(units.values()) if name == _RATE else [None])
    ]
    columns = ("workload", *_WHERE, *varied, "size", "repeats", *headings, *_CORES, *_END)
    return SummaryTable(title, tuple(name for name in columns if name in filled), tuple(rows))


def _order(record: Record) -> tuple[Any, ...]:
    return (
        record.workload,
        record.backend,
        len(record.hosts),
        record.hosts,
        record.slots_per_host,
        record.case_id,
        int(record.params.get("size_bytes", 0)),
    )


def _find_varied(records: Sequence[Record]) -> list[str]:
    values: dict[tuple[str, str], set[str]] = {}
    for record in records:
        for name, value in record.params.items():
            values.setdefault((record.workload, name), set()).add(str(value))
    varied = [name for (_, name), differing in values.items() if len(differing) > 1]
    return list(dict.fromkeys(name for name in varied if name not in ("size_bytes", "host")))


def _place(first: Record, varied: Sequence[str]) -> dict[str, Any]:
    size = int(first.params.get("size_bytes", 0))
    return {
        "workload": first.workload,
        "backend": first.backend,
        "hosts": len(first.hosts),
        "slots": first.slots_per_host,
        **{name: first.params[name] for name in varied if name in first.params},
        **({"size": sizes.format_size(size)} if size else {}),
    }


def _typical(repeats: Repeats, *, repeated: bool) -> dict[str, float]:
    """Return the median of each metric; with several repeats, low and high are those of their medians."""
    values = {metric: median(by_repeat.values()) for metric, by_repeat in repeats.values.items()}
    for name in ("time", "step_time") if repeated else ():
        if medians := repeats.of(f"{name}_median"):
            values |= {f"{name}_low": min(medians), f"{name}_high": max(medians)}
    return values


def _heading(name: str, unit: str | None, *, repeated: bool) -> str:
    if name == _RATE and unit:
        return unit
    return name.replace("95 %", "lowest..highest") if repeated else name


def _status(repeats: Repeats) -> str:
    """Return the states of the repeats: one word if all are alike."""
    counts = {"ok": len(repeats.ok), "failed": len(repeats.errors), "skipped": len(repeats.skipped)}
    ended = [word for word, count in counts.items() if count]
    return ", ".join(f"{counts[word]} {word}" for word in ended) if len(ended) > 1 else "".join(ended)


def _cores(record: Record, repeats: Repeats) -> dict[str, Any]:
    """Return oversubscription and the largest share of time stolen by others, marked if much."""
    row: dict[str, Any] = {}
    if "oversubscribed" in record.stack:
        row["oversubscribed"] = str(record.stack["oversubscribed"]).partition(" (")[0]
    if taken := repeats.of(contention.METRIC):
        row["stolen %"] = f"{max(taken):.0f}" + " (much)" * (max(taken) >= contention.MUCH)
    return row


def _collective(value: Mapping[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if "time" in value:
        row["mean us"] = _digits(value["time"])
    if {"time_low", "time_high"} <= value.keys():
        row["median us (95 %)"] = _interval(value, "time", 1)
    row |= {f"{name} us": _digits(value[f"time_{name}"]) for name in _TAIL if f"time_{name}" in value}
    if value.get("busbw"):  # one rank sends nothing over a bus
        row["busbw GB/s"] = _digits(value["busbw"])
    return row


def _training(value: Mapping[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    if "step_time" in value:
        row["mean step ms"] = _digits(value["step_time"] * 1e3)
    if {"step_time_low", "step_time_high"} <= value.keys():
        row["median step ms (95 %)"] = _interval(value, "step_time", 1e3)
    row |= {
        f"{name} ms": _digits(value[f"step_time_{name}"] * 1e3)
        for name in _TAIL
        if f"step_time_{name}" in value
    }
    for metric, column in (("throughput", "samples/s"), ("accuracy", "accuracy %"), ("real", "real s")):
        if metric in value:
            row[column] = f"{value[metric]:.2f}" if metric == "accuracy" else _digits(value[metric])
    return row


_FIGURES = {
    "collectives": ("mean us", "median us (95 %)", "p95 us", "p99 us", "busbw GB/s", _OF_CEILING),
    "trainings": (
        *("mean step ms", "median step ms (95 %)", "p95 ms", "p99 ms"),
        *("samples/s", "accuracy %", "real s"),
    ),
}


def _interval(value: Mapping[str, float], name: str, scale: float) -> str:
    low, mid, high = (_digits(value[f"{name}_{part}"] * scale) for part in ("low", "median", "high"))
    return f"{mid} ({low}..{high})"


def _digits(value: float) -> str:
    if value >= 100:  # noqa: PLR2004
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 1e-4 else f"{value:.6f}"  # noqa: PLR2004
