"""Plots as PNG files, drawn by matplotlib, which is imported late because it loads slowly."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hvlab.report.plots import Axis, Plot, Series, dodge, tone

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.font_manager import FontManager

_CHINESE = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC",
    "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei",
    "Noto Sans CJK JP", "AR PL UMing CN",
)  # fmt: skip
_WIDTH_INCHES, _HEIGHT_INCHES = 7.2, 4.4
_BAR_INCHES = 0.32
_DPI = 150
_MARKS: Mapping[str, str] = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "x", "line-ew": "", "star": "*",
    "hexagon": "h", "triangle-down": "v", "pentagon": "p", "cross": "P",
    "circle-open": "o", "square-open": "s", "diamond-open": "D",
}  # fmt: skip
_LINES: Mapping[str, str] = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "none": ""}
_INK, _GRID, _PREDICTED = "#1c2024", "#e6e9ed", "#6b3fa0"
_STYLE: dict[Any, Any] = {
    "font.size": 10, "axes.edgecolor": _INK, "axes.labelcolor": _INK, "text.color": _INK, "axes.grid": True,
    "axes.spines.top": False, "axes.spines.right": False, "grid.color": _GRID, "axes.axisbelow": True,
}  # fmt: skip


def _text(text: str) -> str:
    """Return a text that matplotlib shows literally: text between $ would be mathematics."""
    return text.replace("$", r"\$")


def chinese_font() -> str | None:
    """Return an installed font with Chinese glyphs, if any."""
    from matplotlib import font_manager  # noqa: PLC0415 - see above

    return _chinese_among(font_manager.fontManager) or _chinese_among(_add_new(font_manager.fontManager))


def _chinese_among(manager: FontManager) -> str | None:
    known = {font.name for font in manager.ttflist}
    return next((name for name in _CHINESE if name in known), None)


def _add_new(manager: FontManager) -> FontManager:
    """Return the fonts with those installed since matplotlib listed them."""
    from matplotlib import font_manager  # noqa: PLC0415 - see above

    known = {font.fname for font in manager.ttflist}
    for path in sorted(set(font_manager.findSystemFonts()) - known):
        with suppress(RuntimeError, OSError):  # a font that cannot be read
            manager.addfont(path)
    return manager


def write(plots: Iterable[Plot], folder: Path, font: str | None = None) -> None:
    """Write ``<key>.png`` for each plot, in this font if it has the glyph."""
    import matplotlib as mpl  # noqa: PLC0415 - see above

    # It warns of a font that has one weight only, as Chinese ones do.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    families: dict[Any, Any] = {"font.family": [*([font] if font else []), "DejaVu Sans"]}
    with mpl.rc_context({**_STYLE, **families}):
        for plot in plots:
            _draw(plot, folder / f"{plot.key}.png")


def _draw(plot: Plot, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see above
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    height = 1.6 + _BAR_INCHES * len(plot.categories) if plot.categories else _HEIGHT_INCHES
    figure = Figure(figsize=(_WIDTH_INCHES, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for series, places in zip(plot.series, dodge(plot), strict=True):
        if not series.folded:
            _draw_line(axes, replace(series, x=places), lying=bool(plot.categories))
    if plot.bars:
        _draw_bars(axes, plot)
    elif plot.categories:
        axes.set_yticks(range(len(plot.categories)), [_text(category) for category in plot.categories])
        axes.set_ylim(len(plot.categories) - 0.5, -0.5)
    for place in plot.x.lines:
        axes.axvline(place, color=_INK, linewidth=0.8, linestyle=":")
    _label_axes(axes, plot)
    if len(plot.series) + len(plot.bars) > 1:
        figure.legend(loc="outside upper left", frameon=False, fontsize="small", ncols=4)
    if plot.predicted:
        axes.text(
            0.99, 0.98, plot.predicted, transform=axes.transAxes, va="top", ha="right", color=_PREDICTED
        )
    figure.savefig(file, metadata={"Software": "hvlab"})


def _draw_line(axes: Axes, series: Series, *, lying: bool) -> None:
    colour, mark = tone(series.tone)
    shape, hollow = mark.removesuffix("-open"), mark.endswith("-open")
    shown: dict[str, Any] = {
        "color": colour,
        "linestyle": _LINES[series.line],
        "marker": _MARKS[shape] if series.marks and not series.predicted else "",
        "markerfacecolor": "white" if hollow else colour,
        "label": _text(series.name),
        "linewidth": 1.6,
        "markersize": 5,
    }
    if series.low and not series.predicted:
        mids = series.x if lying else series.y
        below = [mid - low for low, mid in zip(series.low, mids, strict=True)]
        above = [high - mid for high, mid in zip(series.high, mids, strict=True)]
        spread: dict[str, Any] = {"xerr" if lying else "yerr": (below, above)}
        axes.errorbar(series.x, series.y, **spread, capsize=3, elinewidth=1.2, **shown)
        return
    axes.plot(series.x, series.y, **shown)
    if series.low:
        axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.13, linewidth=0)


def _draw_bars(axes: Axes, plot: Plot) -> None:
    places = list(range(len(plot.categories)))
    begin = [0.0] * len(places)
    for part in plot.bars:
        axes.barh(places, part.lengths, left=begin, color=tone(part.tone)[0], label=_text(part.name))
        begin = [before + length for before, length in zip(begin, part.lengths, strict=True)]
    axes.set_yticks(places, [_text(category) for category in plot.categories])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def _label_axes(axes: Axes, plot: Plot) -> None:
    axes.set_xlabel(_text(plot.x.title))
    axes.set_ylabel(_text(plot.y.title))
    if plot.x.log:
        axes.set_xscale("log")
    if plot.y.log:
        axes.set_yscale("log")
    _draw_ticks(axes.xaxis, plot.x)
    _draw_ticks(axes.yaxis, plot.y)
    if plot.y.zero:
        axes.set_ylim(bottom=0)


def _draw_ticks(axis: Any, spec: Axis) -> None:
    from matplotlib.ticker import NullLocator  # noqa: PLC0415 - see above

    if spec.ticks:
        low, high = axis.get_view_interval()
        shown = [(value, label) for value, label in spec.ticks if low <= value <= high]
        axis.set_ticks([value for value, _ in shown], labels=[_text(label) for _, label in shown])
        axis.set_minor_locator(NullLocator())
