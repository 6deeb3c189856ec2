"""Scalability curves: speed-up and efficiency over ranks, with their spread and the ideal line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from hvlab.report import labels
from hvlab.report.blocks import Axis, Block, Heading, Paragraph, Plot, Say, Section, Series
from hvlab.report.spread import Spread
from hvlab.report.study import Study, StudyRow

_LINES: tuple[tuple[str, Literal["solid", "dot"]], ...] = (("across", "solid"), ("inside", "dot"))
_ONE = Spread(1.0, 1.0, 1.0)
Points = list[tuple[int, Spread]]


def section(studies: Sequence[Study]) -> Section:
    """Return the part of the report with the curves of every training."""
    names = labels.Labels((study.workload, study.params) for study in studies)
    blocks: list[Block] = []
    for number, study in enumerate(studies, 1):
        name = labels.study(names.name(study.workload, study.params), study.scaling)
        blocks += _plots(study, name, number)
    none = Paragraph(Say("scaling.no_curves"), "note")
    return Section("curves", Say("scaling.curves"), tuple(blocks or [none]))


def _plots(study: Study, name: Say, number: int) -> list[Block]:
    lines = list(_lines(study))
    if not lines:
        return []
    ranks = sorted({value for line in lines for value in line.x})
    over = Axis(Say("axis.ranks"), ticks=tuple((value, f"{value:g}") for value in ranks))
    ends = (1.0, ranks[-1])
    ideal = Series(Say("scaling.ideal"), "ideal", ends, ends, line="dash", marks=False)
    shares = tuple(_lines(study, efficiency=True))
    return [
        Heading(name),
        _plot(f"speedup-{number}", "speedup", name, over, (ideal, *lines)),
        _plot(f"efficiency-{number}", "efficiency", name, over, shares),
    ]


def _plot(key: str, what: str, name: Say, over: Axis, lines: tuple[Series, ...]) -> Plot:
    title, scale = Say(f"scaling.plot_{what}", {"name": name}), Axis(Say(f"axis.{what}"), zero=True)
    return Plot(key, title, over, scale, lines)


def _lines(study: Study, *, efficiency: bool = False) -> Iterator[Series]:
    variants = dict.fromkeys(
        (row.configuration.backend, row.configuration.launcher, row.compression) for row in study.rows
    )
    for variant in variants:
        for kind, style in _LINES:
            rows = [
                row
                for row in study.rows
                if (row.configuration.backend, row.configuration.launcher, row.compression) == variant
                and getattr(row.configuration, kind)
                and not row.named
            ]
            points = _points(rows)
            if len(points) > 1:
                name = Say(f"scaling.line_{kind}", {"backend": labels.variant(rows[0].configuration)})
                yield _line(points, name, rows[0], style, efficiency=efficiency)


def _points(rows: Sequence[StudyRow]) -> Points:
    """Return speed-up over ranks; at one rank it is 1, whichever backend that rank was measured with."""
    points = sorted(((row.ranks, row.speedup) for row in rows if row.speedup), key=lambda point: point[0])
    return [(1, _ONE), *points] if points and points[0][0] > 1 else points


def _line(
    points: Points, name: Say, row: StudyRow, style: Literal["solid", "dot"], *, efficiency: bool
) -> Series:
    values = [speedup.times(100 / ranks) if efficiency else speedup for ranks, speedup in points]
    return Series(
        name,
        row.configuration.backend if row.compression == "none" else row.compression,
        tuple(float(ranks) for ranks, _ in points),
        tuple(each.mid for each in values),
        tuple(each.low for each in values),
        tuple(each.high for each in values),
        line=style,
    )
