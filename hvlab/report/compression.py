"""Serial training, Horovod, and Horovod with compressed gradients: the table of lab sheet 4."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from hvlab.lab.backends import SERIAL
from hvlab.report import labels
from hvlab.report.data import ReportData
from hvlab.report.labels import Code, Lines, Value
from hvlab.report.words import Words, clock
from hvlab.results.configurations import Configuration, Repeats
from hvlab.statistics.interval import Interval, mean

ORDER = ("none", "naive8", "8bit", "fp16", "bf16")
_TIMES = ("real", "user", "sys")
# Configurations that differ only in these belong in one table.
_APART = ("compression", "scaling", "batch")


@dataclass(frozen=True)
class CompressionStudy:
    """One workload with and without compression; ``rows`` are in the lab sheet's order."""

    workload: str
    params: labels.Params
    rows: tuple[tuple[Configuration, Repeats], ...]

    @property
    def epochs(self) -> object:
        """Epochs of every row; None if they differ."""
        epochs = {configuration.get("epochs") for configuration, _ in self.rows}
        return epochs.pop() if len(epochs) == 1 else None


def comparisons(data: ReportData) -> list[CompressionStudy]:
    """Return every group of trainings in which more than one compression was tried."""
    groups: dict[tuple[str, labels.Params], dict[Configuration, Repeats]] = {}
    for configuration, repeats in data.training.items():
        key = configuration.workload, configuration.without(*_APART)
        groups.setdefault(key, {})[configuration] = repeats
    return [
        CompressionStudy(workload, params, tuple(sorted(configurations.items(), key=_sort_key)))
        for (workload, params), configurations in groups.items()
        if len(set(map(_compression, configurations))) > 1
    ]


def remarks(one: CompressionStudy, words: Words) -> list[tuple[str, str]]:
    """Return the effect of each compression, a sentence each: kept, lost, gained, open, or only timed."""
    effects: dict[tuple[str, str], list[str]] = {}
    for configuration, repeats in one.rows:
        base = _base(configuration, one)
        found, own = change(configuration, repeats, one), middle(repeats, "real")
        before = middle(base, "real") if base else None
        times = words.number(own / before, "times") if own and before else None
        if found or times:
            verdict = _verdict(found) if found else "timed"
            point = _point(configuration.ranks, found, times, words)
            effects.setdefault((verdict, format_key(configuration)), []).append(point)
    return [
        (verdict, words.say(
            f"compression.{verdict}", algorithm=words.say(f"compression.{name}"),
            points=words.join(points, "semicolon"),
        ))
        for (verdict, name), points in effects.items()
    ]  # fmt: skip


def _point(ranks: int, found: Interval | None, times: str | None, words: Words) -> str:
    """Return a change of accuracy with its bounds, if repeated, and the training time."""
    if not found:
        return words.say("compression.at_time", times=times, devices=ranks)
    bounds = ""
    if math.isfinite(found.low):
        low, high = (words.format_change(end, "", 2) for end in (found.low, found.high))
        bounds = words.say("compression.span", low=low, high=high)
    key = "compression.at_both" if times else "compression.at"
    return words.say(
        key, points=words.format_change(found.mid, "", 2), span=bounds, times=times, devices=ranks
    )


_HALF_A_POINT = 0.5


def _verdict(change: Interval) -> str:
    if abs(change.mid) <= _HALF_A_POINT:
        return "kept"
    return "lost" if change.high < 0 else "gained" if change.low > 0 else "open"


def cards(one: CompressionStudy, words: Words) -> list[tuple[str, str, str]]:
    """Return the time and the accuracy of each algorithm on the most devices, as tiles."""
    largest = {format_key(own): (own, repeats) for own, repeats in one.rows if repeats.ok}
    tiles = []
    for configuration, repeats in largest.values():
        alone = configuration.backend == SERIAL
        on = [] if alone else [words.say("card.devices", count=configuration.ranks)]
        tiles.append((
            words.join((algorithm(configuration, words), *on)), words.number(middle(repeats, "real"), "s"),
            words.say("card.accuracy", accuracy=words.number(middle(repeats, "accuracy"), "%")),
        ))  # fmt: skip
    return tiles


def algorithm(configuration: Configuration, words: Words) -> str:
    """Return the name of a row of the table."""
    name = format_key(configuration)
    return words.phrases.get(f"compression.{name}", name)


def _compression(configuration: Configuration) -> str:
    return str(configuration.get("compression") or "none")


def format_key(configuration: Configuration) -> str:
    """Return the key of a configuration's row in a lab sheet: serial, or its compression."""
    return SERIAL if configuration.backend == SERIAL else _compression(configuration)


def _sort_key(item: tuple[Configuration, Repeats]) -> tuple[bool, int, int, tuple[int, str], str]:
    configuration = item[0]
    known = _compression(configuration)
    place = ORDER.index(known) if known in ORDER else len(ORDER)
    order = labels.order(configuration.backend)
    return configuration.backend != SERIAL, place, configuration.ranks, order, str(configuration)


def devices(configuration: Configuration, one: CompressionStudy, words: Words) -> Value:
    """Return the number of devices, with layout and backend if those differ."""
    if configuration.backend == SERIAL:
        return ""
    several = {other.backend for other, _ in one.rows if other.backend != SERIAL}
    alike = {(len(other.hosts), other.slots) for other, _ in one.rows if other.ranks == configuration.ranks}
    parts = [words.say("compression.devices", count=configuration.ranks)]
    parts += [words.shape(configuration)] if len(alike) > 1 else []
    parts += [words.backend(configuration.backend)] if len(several) > 1 else []
    return tuple(parts)


def times(repeats: Repeats) -> Lines | None:
    """Return the times of a launch as the shell's ``time`` prints them, if measured."""
    medians = [(name, middle(repeats, name)) for name in _TIMES]
    return Lines(Code(f"{name} {clock(seconds)}") for name, seconds in medians if seconds is not None) or None


def middle(repeats: Repeats, metric: str) -> float | None:
    """Return the median of a metric."""
    values = repeats.of(metric)
    return statistics.median(values) if values else None


def accuracy_change(
    configuration: Configuration, repeats: Repeats, one: CompressionStudy, words: Words
) -> str:
    """Return the change of accuracy."""
    found = change(configuration, repeats, one)
    return words.format_change(found.mid if found else None, "", 2)


def change(configuration: Configuration, repeats: Repeats, one: CompressionStudy) -> Interval | None:
    """Return the accuracy against the same training without compression, in percentage points.

    Repeats of the same number are compared, because they had the same seed.
    """
    base = _base(configuration, one)
    values, whole = (each.values.get("accuracy", {}) if each else {} for each in (repeats, base))
    changes = [values[repeat] - whole[repeat] for repeat in sorted(values.keys() & whole.keys())]
    return mean(changes) if changes else None


def _base(configuration: Configuration, one: CompressionStudy) -> Repeats | None:
    """Return the same training without compression; None for that one itself, and the serial one."""
    if format_key(configuration) in (SERIAL, "none"):
        return None
    place = ("none", configuration.backend, configuration.hosts, configuration.slots)
    rows = (((_compression(base), base.backend, base.hosts, base.slots), own) for base, own in one.rows)
    return next((own for where, own in rows if where == place), None)
