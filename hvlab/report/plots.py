"""Plots as data, and in plotly's form: plain dicts, ready for JSON, since its own objects load slowly."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hvlab.base.paths import project_dir
from hvlab.base.yaml_files import read_shipped
from hvlab.lab.backends import BACKENDS, LIBRARIES, SERIAL
from hvlab.results.configurations import Repeats
from hvlab.statistics.interval import Interval, median

Line: TypeAlias = Literal["solid", "dash", "dot", "dashdot", "none"]


def _backends(library: str) -> list[str]:
    return [name for name, backend in BACKENDS.items() if backend.framework == library]


_KNOWN = read_shipped(project_dir() / "templates/report/tones.yml")
_LISTED = {
    **{
        name: tone
        for library in LIBRARIES
        for name, tone in zip(_backends(library), _KNOWN[library], strict=False)
    },
    SERIAL: _KNOWN["alone"],
    **_KNOWN["named"],
}
TONES: Mapping[str, tuple[str, str]] = {name: (colour, mark) for name, (colour, mark) in _LISTED.items()}
# In a plot of verdicts, these alone are hollow.
_OPEN = ("same", "unclear", "too_few", "differs")
_DASH = {"solid": "solid", "dash": "dash", "dot": "dot", "dashdot": "dashdot", "none": "solid"}
_LEGEND = {
    "orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "traceorder": "normal",
}  # fmt: skip
_ROOM = 0.04
# The distance between the intervals of two series at the same place, as a share of the axis; the largest
# share of the gap between two places that all of them take.
_APART, _OF_GAP = 0.018, 0.3


@dataclass(frozen=True)
class Axis:
    """An axis; only ``ticks``, if given, have labels; ``zero`` makes it begin there.

    ``lines`` cross the plot at these places, such as the ratio of 1.
    """

    title: str
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    zero: bool = False
    lines: tuple[float, ...] = ()


@dataclass(frozen=True)
class Series:
    """A line with its spread. ``tone`` names its colour and mark, the same for a backend in every plot.

    ``low`` and ``high`` are of ``y``; in a plot of ``categories`` they are of ``x``, and ``y`` numbers the
    categories. A ``folded`` line shows in the legend only, until it is asked for; in a picture it is not
    there. A line that was ``predicted`` has a band in place of marks.
    """

    name: str
    tone: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    line: Line = "solid"
    marks: bool = True
    folded: bool = False
    predicted: bool = False

    @classmethod
    def through(
        cls, name: str, tone: str, points: Sequence[tuple[float, Interval]], **options: Any
    ) -> Series:
        """Return a line through figures over ``x``."""
        xs, ys = zip(*points, strict=True)
        low, mid, high = (tuple(getattr(one, part) for one in ys) for part in ("low", "mid", "high"))
        return cls(name, tone, xs, mid, low, high, **options)


@dataclass(frozen=True)
class Bars:
    """A part of every bar: its length for each category. The parts of a bar follow one another."""

    name: str
    tone: str
    lengths: tuple[float, ...]


@dataclass(frozen=True)
class Plot:
    """A drawing: lines over ``x``, or lying bars or marks, one for each of ``categories``, along ``x``.

    ``predicted`` is the mark of a drawing with something that was not measured.
    """

    key: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    bars: tuple[Bars, ...] = ()
    categories: tuple[str, ...] = ()
    predicted: str = ""
    note: str | None = None


def _text(text: str) -> str:
    """Return a text that plotly shows literally: it would interpret tags."""
    return html.escape(text, quote=False)


def tone(name: str) -> tuple[str, str]:
    """Return the colour and the mark of a tone; an unknown name has its own, always the same."""
    others = _KNOWN["others"]
    colour, mark = TONES.get(name) or others[sum(map(ord, name)) % len(others)]
    return colour, mark


def figure(plot: Plot) -> dict[str, Any]:
    """Return a plot as plotly's ``data`` and ``layout``; colours of text and grid are the page's."""
    lines = [
        trace for series, shown in zip(plot.series, dodge(plot), strict=True)
        for trace in _line(series, shown, plot)
    ]  # fmt: skip
    bars = [_bars(one, plot) for one in plot.bars]
    layout: dict[str, Any] = {
        "xaxis": _axis(plot.x, [value for one in plot.series for value in (*one.x, *_ends(one, plot))]),
        "yaxis": _axis(plot.y, []),
        "margin": {"l": 64, "r": 16, "t": 12, "b": 56},
        "legend": _LEGEND,
        "hovermode": "closest",
        "showlegend": len(plot.series) + len(bars) > 1,
    }
    if plot.x.lines:
        line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1, "dash": "dot"}}
        layout["shapes"] = [{**line, "x0": place, "x1": place} for place in plot.x.lines]
    if bars:
        layout["barmode"] = "stack"
        layout["yaxis"] |= {"type": "category", "autorange": "reversed"}
    elif plot.categories:
        layout["yaxis"] |= {
            "tickmode": "array", "tickvals": list(range(len(plot.categories))), "zeroline": False,
            "ticktext": [_text(category) for category in plot.categories],
            "range": [len(plot.categories) - 0.5, -0.5],
        }  # fmt: skip
    return {"data": [*lines, *bars], "layout": layout}


def dodge(plot: Plot) -> list[tuple[float, ...]]:
    """Return the places of each series' points on the x axis.

    Series with intervals at the same place are drawn slightly apart, so that none hides another.
    """
    places = [series.x for series in plot.series]
    spread = [number for number, series in enumerate(plot.series) if series.low and not series.predicted]
    values = {value for number in spread for value in places[number]}
    shared = sum(len(set(places[number])) for number in spread) > len(values)
    if plot.categories or not shared or len(values) == 1 or (plot.x.log and min(values) <= 0):
        return places
    scaled = sorted(map(math.log, values) if plot.x.log else values)
    gap = min(high - low for low, high in itertools.pairwise(scaled))
    step = min(_APART * (scaled[-1] - scaled[0]), _OF_GAP * gap / len(spread))
    for order, number in enumerate(spread):
        shift = (order - (len(spread) - 1) / 2) * step
        moved = (value * math.exp(shift) if plot.x.log else value + shift for value in places[number])
        places[number] = tuple(moved)
    return places


def _ends(series: Series, plot: Plot) -> tuple[float, ...]:
    return (*series.low, *series.high) if plot.categories else ()


def _line(series: Series, places: tuple[float, ...], plot: Plot) -> list[dict[str, Any]]:
    colour, mark = tone(series.tone)
    if plot.categories and series.tone not in _OPEN:
        mark = mark.removesuffix("-open")
    marked = series.marks and not series.predicted
    mode = "+".join(part for part, shown in (("lines", series.line != "none"), ("markers", marked)) if shown)
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": mode,
        "name": _text(series.name),
        "x": list(places),
        "y": list(series.y),
        "line": {"color": colour, "dash": _DASH[series.line], "width": 2},
        "marker": {"color": colour, "symbol": mark, "size": 8},
    }
    if series.folded:
        trace["visible"] = "legendonly"
    if series.predicted:
        return [*_band(series, colour), trace]
    if plot.categories:
        trace["text"] = [_text(plot.categories[int(place)]) for place in series.y]
        trace["hovertemplate"] = "%{text}<br>%{x:.3g}<extra>%{fullData.name}</extra>"
    elif places != series.x:
        trace["customdata"] = list(series.x)
        trace["hovertemplate"] = "%{customdata}, %{y:.3g}<extra>%{fullData.name}</extra>"
    if series.low and series.high:
        mids = series.x if plot.categories else series.y
        above = [high - mid for high, mid in zip(series.high, mids, strict=True)]
        below = [mid - low for low, mid in zip(series.low, mids, strict=True)]
        trace["error_x" if plot.categories else "error_y"] = {
            "type": "data", "symmetric": False, "array": above, "arrayminus": below, "color": colour,
            "width": 4, "thickness": 1.5,
        }  # fmt: skip
    return [trace]


def _band(series: Series, colour: str) -> list[dict[str, Any]]:
    if not series.low:
        return []
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    edge: dict[str, Any] = {
        "type": "scatter", "mode": "lines", "x": list(series.x), "line": {"width": 0}, "hoverinfo": "skip",
        "showlegend": False,
    }  # fmt: skip
    area = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.13)"}
    return [{**edge, "y": list(series.low)}, {**edge, **area, "y": list(series.high)}]


def _bars(bars: Bars, plot: Plot) -> dict[str, Any]:
    colour, _ = tone(bars.tone)
    return {
        "type": "bar",
        "name": _text(bars.name),
        "orientation": "h",
        "x": list(bars.lengths),
        "y": [_text(category) for category in plot.categories],
        "marker": {"color": colour},
    }


def _axis(axis: Axis, values: list[float]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "title": {"text": _text(axis.title), "standoff": 8, "font": {"size": 13}},
        "type": "log" if axis.log else "linear",
        "ticks": "outside",
        "automargin": True,
    }
    if axis.ticks:
        options |= {
            "tickmode": "array",
            "tickvals": [value for value, _ in axis.ticks],
            "ticktext": [_text(label) for _, label in axis.ticks],
        }
    if axis.zero:
        options["rangemode"] = "tozero"
    if axis.log and values:
        low, high = math.log10(min(values)), math.log10(max(values))
        room = max(_ROOM * (high - low), _ROOM)
        options["range"] = [low - room, high + room]
    return options


def spread_of(repeats: Repeats, metric: str) -> Interval | None:
    """Return a metric's median and interval over the repeats, if measured."""
    values = tuple(value for value in repeats.of(metric) if math.isfinite(value))
    return median(values) if values else None
