"""Serial training, Horovod, and Horovod with compressed gradients: the table of lab sheet 4."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hvlab.lab.backends import SERIAL
from hvlab.report import labels, spread
from hvlab.report.blocks import (
    NOTHING,
    Block,
    Code,
    Column,
    Heading,
    Number,
    Paragraph,
    Points,
    Say,
    Section,
    Several,
    Table,
    Value,
)
from hvlab.report.data import ReportData
from hvlab.report.words import clock
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics.interval import Interval, mean

ORDER = ("none", "naive8", "8bit", "fp16", "bf16")
_TIMES = ("real", "user", "sys")
# Configurations that differ only in these belong in one table.
_APART = ("compression", "scaling", "batch")
Configurations = Mapping[Configuration, Repeats]


@dataclass(frozen=True)
class CompressionStudy:
    """One workload with and without compression. ``rows`` are sorted as the lab sheet has them."""

    workload: str
    params: labels.Params
    rows: tuple[tuple[Configuration, Repeats], ...]

    @property
    def epochs(self) -> object:
        """Return how many epochs every row trained; None where that differs."""
        epochs = {configuration.get("epochs") for configuration, _ in self.rows}
        return epochs.pop() if len(epochs) == 1 else None


def comparisons(data: ReportData) -> list[CompressionStudy]:
    """Return every group of trainings in which more than one compression was tried."""
    groups: dict[tuple[str, labels.Params], dict[Configuration, Repeats]] = {}
    for configuration, repeats in data.training.items():
        groups.setdefault((configuration.workload, configuration.without(*_APART)), {})[configuration] = (
            repeats
        )
    studies = []
    for (workload, params), configurations in groups.items():
        if len({configuration.get("compression", "none") for configuration in configurations}) > 1:
            studies.append(
                CompressionStudy(workload, params, tuple(sorted(configurations.items(), key=_sorted)))
            )
    return studies


def section(data: ReportData) -> Section | None:
    """Return the part of the report on compression; None where nothing was compressed."""
    studies = comparisons(data)
    if not studies:
        return None
    names = labels.Labels((one.workload, one.params) for one in studies)
    blocks: list[Block] = [Paragraph(Say("compression.intro"))]
    for number, one in enumerate(studies, 1):
        if len(studies) > 1:
            blocks.append(Heading(names.name(one.workload, one.params)))
        remarked = list(remarks(one))
        blocks += [
            sheet(one, number),
            *(Paragraph(text, "warning") for verdict, text in remarked if verdict == "lost"),
        ]
        rest = tuple(text for verdict, text in remarked if verdict != "lost")
        blocks += [*([Points(rest)] if rest else []), details(one, number)]
    return Section("compression", Say("compression.title"), tuple(blocks))


def sheet(one: CompressionStudy, number: int = 1) -> Table:
    """Return the table of the lab sheet: algorithm, devices, time as the shell prints it, accuracy."""
    columns = (
        Column(Say("compression.algorithm")),
        Column(""),
        Column(Say("compression.time")),
        Column(Say("compression.accuracy"), numeric=True),
        Column(Say("scaling.repeats"), numeric=True),
    )
    rows = tuple(
        (
            algorithm(configuration),
            _devices(configuration, one),
            _times(repeats),
            _accuracy(repeats),
            spread.count(repeats),
        )
        for configuration, repeats in one.rows
    )
    caption = Say("compression.caption", {"epochs": str(one.epochs) if one.epochs else NOTHING})
    faint = frozenset(row for row, (_, repeats) in enumerate(one.rows) if not repeats.ok)
    return Table(f"compression-{number}", caption, columns, rows, merged=1, faint=faint)


def details(one: CompressionStudy, number: int = 1) -> Table:
    """Return what compression changes: bytes, step time and accuracy with their spread."""
    columns = (
        Column(Say("compression.algorithm")),
        Column(Say("compression.layout")),
        Column(Say("compression.sent"), numeric=True),
        Column(Say("scaling.step"), numeric=True),
        Column(Say("compression.step_spread"), numeric=True),
        Column(Say("compression.accuracy_spread"), numeric=True),
        Column(Say("compression.points"), numeric=True),
    )
    rows = tuple(_detail(configuration, repeats, one) for configuration, repeats in one.rows)
    faint = frozenset(row for row, (_, repeats) in enumerate(one.rows) if not repeats.ok)
    caption, note = Say("compression.details"), Say("compression.details_note")
    return Table(
        f"compression-details-{number}", caption, columns, rows, merged=1, note=note, faint=faint,
        folded=caption,
    )  # fmt: skip


def remarks(one: CompressionStudy) -> Iterator[tuple[str, Value]]:
    """Yield what each compression does to accuracy: kept, lost, gained or open, with a sentence."""
    changes: dict[tuple[str, str], list[tuple[Configuration, Interval]]] = {}
    for configuration, repeats in one.rows:
        change = _change(configuration, repeats, one)
        if change is not None:
            changes.setdefault((_verdict(change), str(configuration.get("compression"))), []).append(
                (configuration, change)
            )
    for (verdict, _), configurations in changes.items():
        points = tuple(
            Say(
                "compression.at",
                {"points": _signed(change.mid), "span": _between(change), "devices": configuration.ranks},
            )
            for configuration, change in configurations
        )
        values: dict[str, Value] = {"algorithm": algorithm(configurations[0][0]), "points": Several(points)}
        yield verdict, Say(f"compression.{verdict}", values)


_HALF_A_POINT = 0.5


def _verdict(change: Interval) -> str:
    """Return lost or gained only where the interval of the change excludes 0."""
    if abs(change.mid) <= _HALF_A_POINT:
        return "kept"
    return "lost" if change.high < 0 else "gained" if change.low > 0 else "open"


def _between(change: Interval) -> Value:
    """Return the bounds of a change; one repeat has none."""
    known = math.isfinite(change.low)
    return (
        Say("compression.span", {"low": _signed(change.low), "high": _signed(change.high)})
        if known
        else NOTHING
    )


def _signed(points: float) -> Value:
    return Say("signed.minus" if points < 0 else "signed.plus", {"value": Number(abs(points), "", 2)})


def algorithm(configuration: Configuration) -> Value:
    """Return the name of a row of the table."""
    if configuration.backend == SERIAL:
        return Say("compression.serial")
    return Say(f"compression.{configuration.get('compression') or 'none'}")


def written(configuration: Configuration) -> str:
    """Return what a lab sheet's row of a configuration is known by: serial, or its compression."""
    return SERIAL if configuration.backend == SERIAL else str(configuration.get("compression") or "none")


def _sorted(item: tuple[Configuration, Repeats]) -> tuple[bool, int, int, tuple[int, str], str]:
    configuration = item[0]
    known = configuration.get("compression") or "none"
    place = ORDER.index(known) if known in ORDER else len(ORDER)
    return (
        configuration.backend != SERIAL,
        place,
        configuration.ranks,
        labels.order(configuration.backend),
        str(configuration),
    )


def _devices(configuration: Configuration, one: CompressionStudy) -> Value:
    if configuration.backend == SERIAL:
        return ""
    several = {other.backend for other, _ in one.rows if other.backend != SERIAL}
    alike = {(len(other.hosts), other.slots) for other, _ in one.rows if other.ranks == configuration.ranks}
    parts: list[Value] = [Say("compression.devices", {"count": configuration.ranks})]
    if len(alike) > 1:
        parts.append(labels.short(len(configuration.hosts), configuration.slots))
    if len(several) > 1:
        parts.append(labels.backend(configuration.backend))
    return Several(tuple(parts))


def _times(repeats: Repeats) -> Value:
    times = []
    for name in _TIMES:
        values = repeats.of(name)
        if values:
            times.append(Code(f"{name} {clock(statistics.median(values))}"))
    return Several(tuple(times), "list.line") if times else NOTHING


def _accuracy(repeats: Repeats) -> Value:
    values = repeats.of("accuracy")
    return Number(statistics.median(values), "%") if values else NOTHING


def _detail(configuration: Configuration, repeats: Repeats, one: CompressionStudy) -> tuple[Value, ...]:
    steps, accuracies, sent = (repeats.of(name) for name in ("step_time", "accuracy", "sent_bytes"))
    change = _change(configuration, repeats, one)
    return (
        algorithm(configuration),
        Several(
            (
                labels.backend(configuration.backend),
                labels.short(len(configuration.hosts), configuration.slots),
            )
        ),
        Number(statistics.median(sent), "B") if sent else NOTHING,
        Number(statistics.median(steps), "s") if steps else NOTHING,
        spread.interval(steps, "s"),
        spread.interval(accuracies, "%"),
        _signed(change.mid) if change else NOTHING,
    )


def _change(configuration: Configuration, repeats: Repeats, one: CompressionStudy) -> Interval | None:
    """Return the accuracy against the same training without compression, in points of percent.

    Repeats of the same number are compared, because they had the same seed.
    """
    if configuration.backend == SERIAL or (configuration.get("compression") or "none") == "none":
        return None
    place = (configuration.backend, configuration.hosts, configuration.slots)
    whole = next(
        (
            other.values.get("accuracy", {})
            for base, other in one.rows
            if (base.backend, base.hosts, base.slots) == place
            and (base.get("compression") or "none") == "none"
        ),
        {},
    )  # fmt: skip
    values = repeats.values.get("accuracy", {})
    changes = [values[repeat] - whole[repeat] for repeat in sorted(values.keys() & whole.keys())]
    return mean(changes) if changes else None
