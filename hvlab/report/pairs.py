"""Collectives on every two hosts, as a heat map: which pair is slower than the others."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from hvlab.analysis.compare.measurements import folded
from hvlab.report import labels, spread
from hvlab.report.blocks import NOTHING, Block, Column, Heading, Number, Say, Table, Value
from hvlab.report.data import ReportData

# The hosts of a pair, in the order of their names.
_Pair: TypeAlias = tuple[str, str]
# Workload, parameters, backend and slots: what only the pair differs in.
_Key: TypeAlias = tuple[str, labels.Params, str, int]
_TWO, _FEWEST = 2, 3


def blocks(data: ReportData) -> list[Block]:
    """Return a heat map for each collective, backend and layout that was measured on all pairs of hosts.

    A cell is the time of a pair over that of the median pair, at the largest size.
    """
    collected: dict[_Key, dict[int, dict[_Pair, float]]] = {}
    for configuration, repeats in folded(data.collectives).items():
        size, time = configuration.get("size_bytes"), spread.of(repeats, "time")
        if len(configuration.hosts) == _TWO and isinstance(size, int) and time:
            plane = labels.plane(configuration)
            key = (configuration.workload, configuration.without("size_bytes"), plane, configuration.slots)
            one, other = configuration.hosts
            collected.setdefault(key, {}).setdefault(size, {})[one, other] = time.mid
    names = labels.Labels((workload, params) for workload, params, _, _ in collected)
    tables = [
        _table(names.name(key[0], key[1]), key, size, times, number)
        for number, (key, size, times) in enumerate(_largest(collected), 1)
    ]
    return [Heading(Say("pairs.title")), *tables] if tables else []


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


def _table(name: Value, key: _Key, size: int, times: Mapping[_Pair, float], number: int) -> Table:
    hosts, median = _hosts(times), statistics.median(times.values())

    def cell(one: str, other: str) -> Value:
        time = times.get((one, other)) or times.get((other, one))
        return Number(time / median, "times") if time else NOTHING

    given = {
        "name": name,
        "backend": labels.backend(key[2]),
        "layout": labels.layout(2, key[3]),
        "size": Number(size, "B"),
    }
    return Table(
        f"pairs-{number}",
        Say("pairs.caption", given),
        (Column(Say("pairs.host")), *(Column(host, numeric=True) for host in hosts)),
        tuple((one, *(cell(one, other) for other in hosts)) for one in hosts),
        note=Say("pairs.note", {"time": Number(median, "us")}),
        heat=True,
    )
