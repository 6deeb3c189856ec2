"""Single steps and operations: how they are distributed over all repeats of a configuration."""

from __future__ import annotations

from collections.abc import Iterable

from hvlab.report import labels
from hvlab.report.blocks import NOTHING, Code, Column, Number, Say, Several, Table, Value
from hvlab.report.data import ReportData
from hvlab.results.configurations import Configuration
from hvlab.results.samples import bars, pooled
from hvlab.workloads.metrics import METRICS


def table(data: ReportData, configurations: Iterable[Configuration], key: str) -> Table | None:
    """Return median, p95, p99 and histogram of each configuration that has its iterations; None without.

    ``key`` is steps or operations.
    """
    shown = [one for one in configurations if data.samples.get(one)]
    if not shown:
        return None
    names = labels.Labels((one.workload, one.without("size_bytes")) for one in shown)
    columns = (
        Column(Say("comparison.what"), text=True),
        Column(Say("workloads.shapes")),
        Column(Say("scaling.backend")),
        Column(Say("iterations.count"), numeric=True),
        Column(Say("iterations.median"), numeric=True),
        Column("p95", numeric=True),
        Column("p99", numeric=True),
        Column(Say("iterations.histogram")),
    )
    rows = tuple(_row(data, one, names) for one in shown)
    title, note = Say(f"iterations.{key}"), Say("iterations.note")
    return Table(f"iterations-{key}", title, columns, rows, merged=2, note=note, folded=title)


def _row(data: ReportData, one: Configuration, names: labels.Labels) -> tuple[Value, ...]:
    repeats = data.samples[one]
    spread, unit = pooled(repeats), METRICS[next(iter(repeats.values())).metric].unit
    name, size = names.name(one.workload, one.without("size_bytes")), one.get("size_bytes")
    scaling: list[Value] = [labels.scaling("strong")] if one.get("scaling") == "strong" else []
    sized: list[Value] = [Number(size, "B")] if isinstance(size, int) else []
    return (
        Several((name, *scaling, *sized)),
        labels.short(len(one.hosts), one.slots),
        labels.variant(one),
        spread.count,
        *(Number(value, unit) if value else NOTHING for value in (spread.median, spread.p95, spread.p99)),
        Code(bars(spread.counts)),
    )
