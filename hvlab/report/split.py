"""Where a step slows down: inside a server, or between servers; and which host is a straggler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hvlab.report import hosts, labels, spread
from hvlab.report.blocks import Block, Column, Heading, Number, Paragraph, Points, Say, Section, Table, Value
from hvlab.report.data import ReportData
from hvlab.report.spread import Spread
from hvlab.report.study import Study
from hvlab.scaling import HostCheck, Slowdown, slowdowns
from hvlab.statistics import ratio


def section(data: ReportData, studies: Sequence[Study], checks: Sequence[HostCheck]) -> Section | None:
    """Return the part of the report on slow-down; None where no training has figures.

    ``checks`` are the checks for stragglers.
    """
    if not any(row.step for study in studies for row in study.rows):
        return None
    losses = list(_losses(data, studies))
    blocks: list[Block] = [Paragraph(Say("split.intro")), _table(losses)] if losses else []
    remarks = [remark for loss in losses for remark in _remark(loss)]
    if remarks:
        blocks.append(Points(tuple(remarks)))
    return Section("split", Say("split.title"), (*blocks, Heading(Say("hosts.title")), *hosts.blocks(checks)))


@dataclass(frozen=True)
class _Loss:
    """The slow-down of one training over one backend; ``alone`` is its step at one rank."""

    name: Value
    backend: Value
    alone: Spread | None
    slowdown: Slowdown


def _losses(data: ReportData, studies: Sequence[Study]) -> Iterator[_Loss]:
    names = labels.Labels((study.workload, study.params) for study in studies)
    for study in studies:
        for curve in sorted(study.curves, key=lambda curve: labels.order(curve.backend)):
            # In strong scaling each rank has less to do: the same split would say little new.
            if study.scaling != "weak" or curve.base is None:
                continue
            alone = spread.of(data.configurations[curve.base], "step_time")
            name = names.name(study.workload, study.params)
            for slowdown in slowdowns(curve, data.configurations):
                yield _Loss(name, labels.variant(curve.points[0].configuration), alone, slowdown)


def _table(losses: Sequence[_Loss]) -> Table:
    columns = (
        Column(Say("workloads.name")),
        Column(Say("scaling.backend")),
        Column(Say("split.one"), numeric=True),
        Column(Say("axis.ranks"), numeric=True),
        Column(Say("split.inside_factor"), numeric=True),
        Column(Say("split.between_factor"), numeric=True),
    )
    rows = tuple(
        (
            loss.name, loss.backend, spread.number(loss.alone, "s"), loss.slowdown.ranks,
            spread.both(spread.from_interval(loss.slowdown.inside), "times"),
            spread.both(spread.from_interval(loss.slowdown.between), "times"),
        )
        for loss in losses
    )  # fmt: skip
    return Table("split", Say("split.caption"), columns, rows, merged=2, note=Say("split.note"))


def _remark(loss: _Loss) -> Iterator[Value]:
    """Yield which of the two costs more, where their intervals are apart and the repeats are enough."""
    inside, between = loss.slowdown.inside, loss.slowdown.between
    if loss.slowdown.repeats < ratio.ENOUGH:
        return
    if inside and between and (inside.low > between.high or between.low > inside.high):
        larger = "inside" if inside.mid > between.mid else "between"
        yield Say(f"split.larger_{larger}", {
            "name": loss.name, "backend": loss.backend, "ranks": loss.slowdown.ranks,
            "inside": Number(inside.mid, "times"), "between": Number(between.mid, "times"),
        })  # fmt: skip
