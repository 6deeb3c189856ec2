"""A metric over all runs of a lab, with the changes of its stack: a page of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.base.groups import grouped
from hvlab.report import labels
from hvlab.report.labels import Code, Names
from hvlab.report.page import Document, Opening
from hvlab.report.plots import Axis, Plot, Series, spread_of
from hvlab.report.words import Words
from hvlab.results.configurations import Configuration, Repeats, gather
from hvlab.results.store import Record, Run, Store
from hvlab.statistics.interval import Interval

_SEVERAL = 2
# Maximum number of dates under a plot.
_LABELS = 8
# Changes of tables in a stack, such as a host's devices, are not shown.
_PLAIN = (str, int, float, bool)


@dataclass(frozen=True)
class HistoryRun:
    """A run of a lab: its figures and the stack in its records."""

    run: Run
    configurations: Mapping[Configuration, Repeats]
    stack: Mapping[str, Any]

    @property
    def date(self) -> str:
        """Start of the run, UTC."""
        return self.run.started_at[:16].replace("T", " ")


def read(store: Store, metric: str, run_id: str | None = None) -> list[HistoryRun]:
    """Return the runs of a lab that have the metric, the oldest first.

    The lab is that of the run, by default of the last. Raises UsageError if fewer than two runs have it.
    """
    lab = store.run(run_id).lab
    runs = []
    for run in store.runs():
        records = store.records(run.run_id) if run.lab == lab else []
        if any(record.metric == metric and record.value is not None for record in records):
            runs.append(HistoryRun(run, gather(records), _stack(records)))
    if len(runs) < _SEVERAL:
        count = f"{len(runs)} run" if len(runs) == 1 else f"{len(runs)} runs"
        problem = f"lab {lab} has {count} with {metric}, and a history needs two"
        raise UsageError(problem, remedy="measure again with `hvlab bench`, or name another metric")
    return runs


def _stack(records: Sequence[Record]) -> dict[str, Any]:
    return {
        name: value for record in records for name, value in record.stack.items() if isinstance(value, _PLAIN)
    }


@dataclass(frozen=True)
class History:
    """Runs with a metric."""

    runs: Sequence[HistoryRun]
    metric: str

    def changes(self, words: Words) -> dict[int, str]:
        """Return the changes of the stack by the number of the run after them."""
        changed = {}
        for place, (before, after) in enumerate(itertools.pairwise(self.runs), 1):
            parts = [
                words.say("history.part", name=name, old=before.stack.get(name), new=after.stack.get(name))
                for name in {**before.stack, **after.stack}
                if before.stack.get(name) != after.stack.get(name)
            ]
            if parts:
                changed[place] = words.join(parts, "semicolon")
        return changed


def document(runs: Sequence[HistoryRun], metric: str) -> Document:
    """Return the page: a plot of each workload over the runs, and the changes of the stack between them."""
    return Document(History(runs, metric), _opening, {"history": _figures, "changes": _table})


def _opening(history: History, words: Words) -> Opening:
    runs = history.runs
    return Opening(
        title=words.say("history.title"),
        head=(
            (words.say("head.lab"), runs[-1].run.lab),
            (words.say("history.metric"), Code(history.metric)),
            (words.say("history.runs"), words.say(
                "history.from", count=len(runs), first=runs[0].date, last=runs[-1].date,
            )),
        ),
        findings=[
            words.say("history.change", date=runs[place].date, what=what)
            for place, what in history.changes(words).items()
        ],
    )  # fmt: skip


def _figures(history: History, words: Words) -> dict[str, Any]:
    title = words.say("history.figures", metric=history.metric)
    return {"title": title, "drawn": list(_plots(history, words))}


def _table(history: History, words: Words) -> dict[str, Any]:
    changed = history.changes(words)
    return {"runs": [(number + 1, one, changed.get(number)) for number, one in enumerate(history.runs)]}


def _plots(history: History, words: Words) -> Iterator[Plot]:
    """Yield a plot for each workload, and for the smallest and largest size of a collective."""
    runs, metric = history.runs, history.metric
    groups: dict[tuple[str, labels.Params], dict[Configuration, list[tuple[int, Interval]]]] = {}
    for place, one in enumerate(runs, 1):
        for configuration, repeats in one.configurations.items():
            figure = spread_of(repeats, metric)
            if figure:
                key = (configuration.workload, configuration.params)
                groups.setdefault(key, {}).setdefault(configuration, []).append((place, figure))
    names = Names((workload, _drop_size(params)) for workload, params in groups)
    step = -(-len(runs) // _LABELS)
    ticks = tuple((float(place), runs[place - 1].date[5:]) for place in range(1, len(runs) + 1, step))
    lines = tuple(place + 0.5 for place in history.changes(words))
    axis = Axis(words.say("history.axis"), ticks=ticks, lines=lines)
    for number, key in enumerate(_thin_out(groups), 1):
        series = tuple(_series(groups[key], words))
        if series:
            name, size = names.name(key[0], _drop_size(key[1])), dict(key[1]).get("size_bytes")
            if isinstance(size, int):
                name = words.say("comparison.sized", name=name, size=words.number(size, "B"))
            title = words.say("history.plot", name=name, metric=metric)
            unit = next(iter(groups[key])).unit(metric)
            yield Plot(f"history-{number}", title, axis, Axis(words.join((metric, unit))), series)


def _thin_out(groups: Mapping[tuple[str, labels.Params], Any]) -> list[tuple[str, labels.Params]]:
    sizes = grouped(
        ((workload, _drop_size(params)), size)
        for workload, params in groups
        if isinstance(size := dict(params).get("size_bytes"), int)
    )
    return [
        (workload, params)
        for workload, params in groups
        if (size := dict(params).get("size_bytes")) is None
        or size in (min(sizes[workload, _drop_size(params)]), max(sizes[workload, _drop_size(params)]))
    ]


def _drop_size(params: labels.Params) -> labels.Params:
    return tuple(item for item in params if item[0] != "size_bytes")


def _series(
    figures: Mapping[Configuration, Sequence[tuple[int, Interval]]], words: Words
) -> Iterator[Series]:
    """Yield a line for each backend and layout that several runs measured; the largest layouts unfolded."""
    several = {one: points for one, points in figures.items() if len(points) >= _SEVERAL}
    most = {place: max((one.ranks for one in several if getattr(one, place)), default=0) for place in _PLACES}
    for one, points in sorted(several.items(), key=lambda item: _order(item[0])):
        shown = any(getattr(one, place) and one.ranks == most[place] for place in _PLACES)
        name = words.say("sweeps.line", backend=words.variant(one), layout=words.shape(one))
        style = "dot" if one.inside else "solid"
        tone = labels.tone(one.backend)
        yield Series.through(
            name, tone, [(float(place), each) for place, each in points], line=style, folded=not shown
        )


_PLACES = ("inside", "across")


def _order(configuration: Configuration) -> tuple[tuple[int, str], int, int]:
    return labels.order(configuration.backend), len(configuration.hosts), configuration.slots
