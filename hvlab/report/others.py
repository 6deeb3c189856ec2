"""What other tools measured that is neither a training nor a collective of hvlab's: latency, bandwidth."""

from __future__ import annotations

from hvlab.report import labels, spread
from hvlab.report.blocks import NOTHING, Column, Number, Say, Section, Table, Value
from hvlab.report.data import ReportData
from hvlab.results.configurations import Configuration, Repeats
from hvlab.workloads import WORKLOADS
from hvlab.workloads.metrics import METRICS

_METRICS = ("time", "algbw", "busbw")


def section(data: ReportData) -> Section | None:
    """Return the part of the report on other measurements; None where there are none."""
    own = {
        configuration: repeats
        for configuration, repeats in data.configurations.items()
        if configuration.workload not in WORKLOADS and any(repeats.of(name) for name in _METRICS)
    }
    if not own:
        return None
    names = labels.Labels((one.workload, one.without("size_bytes")) for one in own)
    shown = [name for name in _METRICS if any(repeats.of(name) for repeats in own.values())]
    columns = (
        Column(Say("comparison.what"), text=True),
        Column(Say("workloads.shapes")),
        Column(Say("scaling.backend")),
        Column(Say("sweeps.size"), numeric=True),
        *(Column(Say(f"others.{name}"), numeric=True) for name in shown),
        Column(Say("scaling.repeats"), numeric=True),
    )
    rows = tuple(
        (*_subject(one, names), *_figures(repeats, shown), spread.count(repeats))
        for one, repeats in own.items()
    )
    table = Table("others", Say("others.caption"), columns, rows, merged=3, note=Say("others.note"))
    return Section("others", Say("others.title"), (table,))


def _subject(one: Configuration, names: labels.Labels) -> tuple[Value, Value, Value, Value]:
    size = one.get("size_bytes")
    return (
        names.name(one.workload, one.without("size_bytes")),
        labels.short(len(one.hosts), one.slots),
        labels.variant(one),
        Number(size, "B") if isinstance(size, int) else NOTHING,
    )


def _figures(repeats: Repeats, metrics: list[str]) -> tuple[Value, ...]:
    return tuple(spread.both(spread.of(repeats, name), METRICS[name].unit) for name in metrics)
