"""Collectives over sizes: time and bus bandwidth, for each backend and layout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hvlab.analysis.compare.measurements import folded
from hvlab.report import iterations, labels, pairs, spread
from hvlab.report.blocks import (
    NOTHING,
    Axis,
    Block,
    Column,
    Heading,
    Number,
    Paragraph,
    Plot,
    Say,
    Section,
    Series,
    Several,
    Table,
    Value,
)
from hvlab.report.data import ReportData
from hvlab.results.configurations import Configuration, Repeats

Layout = tuple[int, int]
_TICK_STEP = 4


@dataclass(frozen=True)
class SweepGroup:
    """A collective with its parameters; ``lines`` has the repeats of each size by backend and layout."""

    workload: str
    params: labels.Params
    sizes: tuple[int, ...]
    lines: Mapping[tuple[str, Layout], Mapping[int, Repeats]]

    @property
    def backends(self) -> list[str]:
        """Return the backends in the lab sheet's order."""
        return sorted({backend for backend, _ in self.lines}, key=labels.order)

    @property
    def layouts(self) -> list[Layout]:
        """Return the layouts, those inside one host first."""
        return sorted({layout for _, layout in self.lines})

    @property
    def telling(self) -> set[Layout]:
        """Return the layouts to look at first: the most slots of one host, the most hosts, one not known."""
        inside = [layout for layout in self.layouts if layout[0] == 1]
        across = [layout for layout in self.layouts if layout[0] > 1 and layout[1]]
        most = [max(across, key=lambda layout: (layout[0], -layout[1]))] if across else []
        return {*inside[-1:], *most, *(layout for layout in self.layouts if not layout[1])}


def groups(data: ReportData) -> list[SweepGroup]:
    """Return every collective that has figures, by its parameters; of like layouts the first hosts' is taken.

    Repeats that failed before any size count at every size of their layout.
    """
    collected: dict[tuple[str, labels.Params], dict[tuple[str, Layout], dict[int, Repeats]]] = {}
    for configuration, repeats in folded(data.collectives).items():
        size = configuration.get("size_bytes")
        if isinstance(size, int) and repeats.ok and configuration.ranks != 1:
            lines = collected.setdefault((configuration.workload, configuration.without("size_bytes")), {})
            line = lines.setdefault(
                (labels.plane(configuration), (len(configuration.hosts), configuration.slots)), {}
            )
            line.setdefault(size, repeats)
    return [
        SweepGroup(workload, params, tuple(sorted({size for line in lines.values() for size in line})), lines)
        for (workload, params), lines in collected.items()
    ]


def section(data: ReportData) -> Section | None:
    """Return the part of the report on collectives; None where none was measured."""
    swept = groups(data)
    if not swept:
        return None
    names = labels.Labels((group.workload, group.params) for group in swept)
    blocks: list[Block] = [Paragraph(Say("sweeps.intro"))]
    for number, group in enumerate(swept, 1):
        name = names.name(group.workload, group.params)
        if len(swept) > 1:
            blocks.append(Heading(name))
        blocks += [*_plots(group, name, number), table(group, name, number)]
    single = iterations.table(data, _ends(data, swept), "operations")
    return Section(
        "sweeps", Say("sweeps.title"), (*blocks, *([single] if single else []), *pairs.blocks(data))
    )


def _ends(data: ReportData, swept: Sequence[SweepGroup]) -> list[Configuration]:
    """Return the smallest and the largest message of each sweep, at the layouts to look at first."""
    sizes = {(group.workload, group.params): {group.sizes[0], group.sizes[-1]} for group in swept}
    telling = {(group.workload, group.params): group.telling for group in swept}
    keys = ((one, (one.workload, one.without("size_bytes"))) for one in data.collectives)
    return [
        one for one, key in keys
        if one.get("size_bytes") in sizes.get(key, ()) and (len(one.hosts), one.slots) in telling[key]
    ]  # fmt: skip


def table(group: SweepGroup, name: Value, number: int) -> Table:
    """Return time and bus bandwidth of every size, backends side by side."""
    columns = [Column(Say("sweeps.layout")), Column(Say("sweeps.size"), numeric=True)]
    for backend in group.backends:
        values: dict[str, Value] = {"backend": labels.backend(backend)}
        columns += [
            Column(Say("sweeps.time_of", values), numeric=True),
            Column(Say("sweeps.busbw_of", values), numeric=True),
        ]
    caption, note = Say("sweeps.caption", {"name": name}), Say("sweeps.note")
    return Table(
        f"sweep-{number}", caption, tuple(columns), tuple(_rows(group)), merged=1, note=note, folded=caption
    )


def _rows(group: SweepGroup) -> Iterator[tuple[Value, ...]]:
    for layout in group.layouts:
        for size in group.sizes:
            row: list[Value] = [labels.short(*layout), Number(size, "B")]
            for backend in group.backends:
                repeats = group.lines.get((backend, layout), {}).get(size)
                if repeats is None:
                    row += [NOTHING, NOTHING]
                    continue
                count: tuple[Value, ...] = (
                    () if len(repeats.ok) == repeats.tried else (spread.count(repeats),)
                )
                row.append(Several((spread.both(spread.of(repeats, "time"), "us"), *count)))
                row.append(spread.number(spread.of(repeats, "busbw"), "GB/s"))
            yield tuple(row)


def _plots(group: SweepGroup, name: Value, number: int) -> Iterator[Plot]:
    sizes = Axis(Say("axis.size"), log=True, ticks=tuple(_sizes(group.sizes)))
    times = list(_series(group, "time"))
    ends = [value for line in times for value in line.y]
    yield Plot(
        f"sweep-time-{number}", Say("sweeps.plot_time", {"name": name}), sizes,
        Axis(Say("axis.time"), log=True, ticks=tuple(_decades(ends, "us"))), tuple(times),
    )  # fmt: skip
    widths = list(_series(group, "busbw"))
    ends = [value for line in widths for value in line.y]
    yield Plot(
        f"sweep-busbw-{number}", Say("sweeps.plot_busbw", {"name": name}), sizes,
        Axis(Say("axis.busbw"), log=True, ticks=tuple(_decades(ends, "GB/s"))), tuple(widths),
    )  # fmt: skip


def _series(group: SweepGroup, metric: str) -> Iterator[Series]:
    for backend in group.backends:
        for layout in group.layouts:
            line = group.lines.get((backend, layout), {})
            spreads = {size: spread.of(line[size], metric) for size in sorted(line)}
            points = [(size, each) for size, each in spreads.items() if each and each.mid > 0]
            if not points:
                continue
            yield Series(
                Say("sweeps.line", {"backend": labels.backend(backend), "layout": labels.short(*layout)}),
                labels.tone(backend),
                x=tuple(float(size) for size, _ in points),
                y=tuple(each.mid for _, each in points),
                low=tuple(each.low for _, each in points),
                high=tuple(each.high for _, each in points),
                line="dot" if layout[0] == 1 else "solid",
                folded=layout not in group.telling,
            )


def _sizes(sizes: Iterable[int]) -> Iterator[tuple[float, Value]]:
    """Yield labels at powers of 16, or of 4 where the sizes are few."""
    powers = [math.log2(size) for size in sizes]
    low, high = math.ceil(min(powers)), math.floor(max(powers))
    step = _TICK_STEP if high - low > _TICK_STEP * 2 else 2
    for power in range(low + (-low) % step, high + 1, step):
        yield float(2**power), Number(2**power, "B")


def _decades(values: list[float], unit: str) -> Iterator[tuple[float, Value]]:
    if values:
        for power in range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1):
            yield 10.0**power, Number(10.0**power, unit, 1)
