"""Collectives: time and bus bandwidth over sizes, and every pair of hosts, for each backend and layout."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hvlab.analysis.compare.comparison import add_failures
from hvlab.report import labels
from hvlab.report.data import ReportData
from hvlab.report.labels import Value
from hvlab.report.plots import Axis, Plot, Series, spread_of
from hvlab.report.words import Words
from hvlab.results.configurations import Configuration, Repeats

Layout = tuple[int, int]
_TICK_STEP = 4
# The hosts of a pair, in the order of their names.
_Pair: TypeAlias = tuple[str, str]
# Workload, parameters, backend and slots, which all pairs of a map share.
_Key: TypeAlias = tuple[str, labels.Params, str, int]
_TWO, _FEWEST = 2, 3
# Ratios to the median from which a cell of a heat map is shaded darker.
_HEAT = (1.2, 1.5, 2.5, 5.0)


@dataclass(frozen=True)
class SweepGroup:
    """A collective with its parameters; ``lines`` has the repeats of each size by backend and layout."""

    workload: str
    params: labels.Params
    name: Value
    sizes: tuple[int, ...]
    lines: Mapping[tuple[str, Layout], Mapping[int, Repeats]]

    @property
    def backends(self) -> list[str]:
        """Backends in the lab sheet's order."""
        return sorted({backend for backend, _ in self.lines}, key=labels.order)

    @property
    def layouts(self) -> list[Layout]:
        """Layouts, those inside one host first."""
        return sorted({layout for _, layout in self.lines})

    @property
    def telling(self) -> set[Layout]:
        """Main layouts: the most slots of one host, the most hosts, any unknown one."""
        inside = [layout for layout in self.layouts if layout[0] == 1]
        across = [layout for layout in self.layouts if layout[0] > 1 and layout[1]]
        most = [max(across, key=lambda layout: (layout[0], -layout[1]))] if across else []
        return {*inside[-1:], *most, *(layout for layout in self.layouts if not layout[1])}


def sweeps(data: ReportData) -> list[SweepGroup]:
    """Return every collective with figures, by its parameters; of equal layouts the first hosts' counts.

    Repeats that failed before any size count at every size of their layout.
    """
    collected: dict[tuple[str, labels.Params], dict[tuple[str, Layout], dict[int, Repeats]]] = {}
    for configuration, repeats in add_failures(data.collectives).items():
        size = configuration.get("size_bytes")
        if isinstance(size, int) and repeats.ok and configuration.ranks != 1:
            lines = collected.setdefault((configuration.workload, configuration.without("size_bytes")), {})
            layout = len(configuration.hosts), configuration.slots
            lines.setdefault((labels.plane(configuration), layout), {}).setdefault(size, repeats)
    names = labels.Names(collected)
    return [
        SweepGroup(
            workload, params, names.name(workload, params),
            tuple(sorted({size for line in lines.values() for size in line})), lines,
        )
        for (workload, params), lines in collected.items()
    ]  # fmt: skip


def rows(group: SweepGroup, words: Words) -> list[tuple[Layout, int, list[tuple[str, Value, str]]]]:
    """Return every size at a layout: each backend's time, with repeats if some failed, and bandwidth."""
    return [
        (layout, size, [
            (backend, *_cell(group.lines.get((backend, layout), {}).get(size), words))
            for backend in group.backends
        ])
        for layout in group.layouts for size in group.sizes
    ]  # fmt: skip


def _cell(repeats: Repeats | None, words: Words) -> tuple[Value, str]:
    if repeats is None:
        return words.both(None, "us"), words.middle(None, "GB/s")
    time = words.both(spread_of(repeats, "time"), "us")
    failed = len(repeats.ok) < repeats.tried
    width = words.middle(spread_of(repeats, "busbw"), "GB/s")
    return (time, words.count(repeats)) if failed else time, width


def widest(swept: Sequence[SweepGroup]) -> tuple[float, str, str, Layout] | None:
    """Return the highest bus bandwidth, with its collective, backend and layout."""
    widths = [
        (width.mid, group.workload, backend, layout)
        for group in swept
        for (backend, layout), line in group.lines.items()
        for repeats in line.values()
        if (width := spread_of(repeats, "busbw"))
    ]
    return max(widths, default=None)


def ends(data: ReportData, swept: Sequence[SweepGroup]) -> list[Configuration]:
    """Return the smallest and the largest message of each sweep, at the main layouts."""
    groups = {(group.workload, group.params): group for group in swept}
    grouped = ((one, groups.get((one.workload, one.without("size_bytes")))) for one in data.collectives)
    return [
        one for one, group in grouped
        if group and one.get("size_bytes") in (group.sizes[0], group.sizes[-1])
        and (len(one.hosts), one.slots) in group.telling
    ]  # fmt: skip


def plots(group: SweepGroup, number: int, words: Words) -> list[Plot]:
    """Return time and bus bandwidth over sizes."""
    sizes = Axis(words.say("axis.size"), log=True, ticks=tuple(_sizes(group.sizes, words)))
    drawn = []
    for metric, unit in (("time", "us"), ("busbw", "GB/s")):
        lines = tuple(_series(group, metric, words))
        if not lines:
            continue
        logs = [math.log10(value) for line in lines for value in line.y]
        decades = range(math.floor(min(logs)), math.ceil(max(logs)) + 1)
        ticks = tuple((10.0**power, words.number(10.0**power, unit, 1)) for power in decades)
        title = words.say(f"sweeps.plot_{metric}", name=group.name)
        scale = Axis(words.say(f"axis.{metric}"), log=True, ticks=ticks)
        drawn.append(Plot(f"sweep-{metric}-{number}", title, sizes, scale, lines))
    return drawn


def _series(group: SweepGroup, metric: str, words: Words) -> Iterator[Series]:
    for backend, layout in itertools.product(group.backends, group.layouts):
        line = group.lines.get((backend, layout), {})
        spreads = [(float(size), spread_of(line[size], metric)) for size in sorted(line)]
        points = [(size, each) for size, each in spreads if each and each.mid > 0]
        if points:
            name = words.say("sweeps.line", backend=words.backend(backend), layout=words.short(*layout))
            style = "dot" if layout[0] == 1 else "solid"
            yield Series.through(
                name, labels.tone(backend), points, line=style, folded=layout not in group.telling
            )


def _sizes(sizes: Iterable[int], words: Words) -> Iterator[tuple[float, str]]:
    powers = [math.log2(size) for size in sizes]
    low, high = math.ceil(min(powers)), math.floor(max(powers))
    step = _TICK_STEP if high - low > _TICK_STEP * 2 else 2
    for power in range(low + (-low) % step, high + 1, step):
        yield float(2**power), words.number(2**power, "B")


@dataclass(frozen=True)
class PairMap:
    """A collective on every two hosts: for each host a row with each other host, the ratio and its class."""

    name: Value
    backend: str
    slots: int
    size: int
    median_us: float
    rows: tuple[tuple[str, tuple[tuple[str, float | None, str], ...]], ...]


def pairs(data: ReportData) -> list[PairMap]:
    """Return a heat map, at the largest size, of each collective and backend measured on all pairs."""
    collected: dict[_Key, dict[int, dict[_Pair, float]]] = {}
    for configuration, repeats in add_failures(data.collectives).items():
        size, time = configuration.get("size_bytes"), spread_of(repeats, "time")
        if len(configuration.hosts) == _TWO and isinstance(size, int) and time:
            plane = labels.plane(configuration)
            key = (configuration.workload, configuration.without("size_bytes"), plane, configuration.slots)
            one, other = configuration.hosts
            collected.setdefault(key, {}).setdefault(size, {})[one, other] = time.mid
    names = labels.Names((workload, params) for workload, params, _, _ in collected)
    return [
        _map(names.name(workload, params), plane, slots, size, times)
        for (workload, params, plane, slots), size, times in _largest(collected)
    ]


def _map(name: Value, plane: str, slots: int, size: int, times: Mapping[_Pair, float]) -> PairMap:
    hosts, median = _hosts(times), statistics.median(times.values())

    def cell(one: str, other: str) -> tuple[str, float | None, str]:
        time = times.get((one, other)) or times.get((other, one))
        ratio = time / median if time else None
        heat = sum(limit <= (ratio or 0) for limit in _HEAT)
        return other, ratio, f"number heat-{heat}" if heat else "number"

    rows = tuple((one, tuple(cell(one, other) for other in hosts)) for one in hosts)
    return PairMap(name, plane, slots, size, median, rows)


def _largest(
    collected: Mapping[_Key, Mapping[int, Mapping[_Pair, float]]],
) -> Iterator[tuple[_Key, int, Mapping[_Pair, float]]]:
    """Yield the largest size of each that has every pair of three hosts or more."""
    for key, sizes in collected.items():
        for size in sorted(sizes, reverse=True):
            hosts = _hosts(sizes[size])
            if len(hosts) >= _FEWEST and len(sizes[size]) == len(hosts) * (len(hosts) - 1) // 2:
                yield key, size, sizes[size]
                break


def _hosts(times: Mapping[_Pair, float]) -> list[str]:
    return list(dict.fromkeys(itertools.chain.from_iterable(times)))
