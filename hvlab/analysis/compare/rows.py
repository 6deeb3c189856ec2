"""A comparison as rows and sentences to read, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict
from typing import Any

from hvlab.analysis.compare.comparison import Comparison, ComparisonRow, Measurements
from hvlab.results.configurations import Configuration
from hvlab.statistics.interval import Interval
from hvlab.statistics.verdict import PERHAPS, Kind
from hvlab.workloads.sizes import format_size

COLUMNS = (
    *("workload", "backend", "hosts", "slots", "case", "metric"),
    *("ok A", "A", "ok B", "B", "A/B", "95 %", "verdict", "why"),
)
NOTE = (
    "The repeats of one run share the conditions of their time: network load, temperature, other work. "
    "Two runs may differ, or be the same, merely because they were measured at different times. To compare "
    "two settings, measure both in one run; to find a regression, check against a baseline of five runs or "
    "more."
)
_KINDS: Mapping[Kind, str] = {
    "differs": f"different, {PERHAPS}, in",
    "same": f"the same, {PERHAPS}, in",
    "unclear": "not distinguishable in",
    "too_few": "too few repeats in",
}


def table(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a row for each configuration, those of only one run last; see COLUMNS."""
    one_sided = {**dict.fromkeys(comparison.only_a, "A"), **dict.fromkeys(comparison.only_b, "B")}
    names = case_names([*(row.configuration for row in comparison.rows), *one_sided])
    rows = [
        {
            **place(row.configuration, names),
            "metric": f"{row.metric} {row.unit}",
            "ok A": f"{row.a.ok} of {row.a.tried}",
            "A": row.a.median.mid if row.a.median else None,
            "ok B": f"{row.b.ok} of {row.b.tried}",
            "B": row.b.median.mid if row.b.median else None,
            **ratio(row.verdict.ratio),
            "verdict": word(row),
            "why": why(row),
        }
        for row in comparison.rows
    ]
    return rows + [{**place(one, names), "verdict": f"only in {side}"} for one, side in one_sided.items()]


def notes(comparison: Comparison) -> list[str]:
    """Return the notes that belong to the rows, a sentence each."""
    counts = [f"{text} {comparison.count(kind)}" for kind, text in _KINDS.items() if comparison.count(kind)]
    total = f"{_count(comparison.rows)}: {', '.join(counts)}."
    sentences = [total if counts else "No configuration is in both."]
    for side, configurations in (("A", comparison.only_a), ("B", comparison.only_b)):
        if configurations:
            sentences.append(f"Only in {side}: {_count(configurations)}.")
    if comparison.without:
        sentences.append(f"Without that metric in both: {_count(comparison.without)}.")
    return [*sentences, *(f"Differs: {difference}." for difference in comparison.differences), NOTE]


def _count(configurations: Sized) -> str:
    return f"{len(configurations)} configuration{'s' if len(configurations) > 1 else ''}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return a complete comparison, JSON-ready."""
    return {
        "a": run_json(comparison.a),
        "b": run_json(comparison.b),
        "differences": list(comparison.differences),
        "rows": [row_json(row) for row in comparison.rows],
        "only_a": [configuration_json(configuration) for configuration in comparison.only_a],
        "only_b": [configuration_json(configuration) for configuration in comparison.only_b],
        "without_metric": [configuration_json(configuration) for configuration in comparison.without],
        "note": NOTE,
    }


def row_json(row: ComparisonRow) -> dict[str, Any]:
    """Return one row, JSON-ready."""
    return {**configuration_json(row.configuration), "unit": row.unit, **figures_json(row)}


def figures_json(row: ComparisonRow) -> dict[str, Any]:
    """Return metric, sides and verdict of a row."""
    return {name: value for name, value in asdict(row).items() if name != "configuration"}


def configuration_json(configuration: Configuration) -> dict[str, Any]:
    """Return a configuration, its parameters by name."""
    return {**asdict(configuration), "params": dict(configuration.params)}


def run_json(run: Measurements) -> dict[str, Any]:
    """Return the identity of a run."""
    stack = {part: list(values) for part, values in run.stack.items()}
    return {"run_id": run.run_id, "lab": run.lab, "started_at": run.started_at, "stack": stack}


def word(row: ComparisonRow) -> str:
    """Return the verdict on A against B in a word or two."""
    words = {"too_few": "too few", "unclear": "not distinguishable"}
    return words.get(row.verdict.kind, row.verdict.kind)


def why(row: ComparisonRow, *, a: str = "A", b: str = "B") -> str:
    """Return the reason of the verdict, and all failures; ``a`` and ``b`` name the runs."""
    failed = {name: side for name, side in ((a, row.a), (b, row.b)) if side.failed}
    if len(failed) > 1 and row.a == row.b:
        failed = {"both": row.a}
    failures = [
        f"{side.tried - side.ok} of {side.tried} failed in {name}: {'; '.join(side.failed)}"
        for name, side in failed.items()
    ]
    return "; ".join((row.verdict.reason, *failures))


def ratio(interval: Interval | None) -> dict[str, str]:
    """Return the columns of a ratio; none without one."""
    if interval is None:
        return {}
    return {"A/B": f"{interval.mid:.3f}", "95 %": f"{interval.low:.3f}..{interval.high:.3f}"}


_SIZE = "size_bytes"


def place(configuration: Configuration, names: Mapping[Configuration, str]) -> dict[str, Any]:
    """Return the columns that identify a configuration."""
    return {
        "workload": configuration.workload,
        "backend": configuration.backend,
        "hosts": len(configuration.hosts),
        "slots": configuration.slots,
        "case": names[configuration],
    }


def case_names(configurations: Iterable[Configuration]) -> dict[Configuration, str]:
    """Name each configuration by its size, and by hosts and parameters that vary within its workload."""
    members: dict[str, list[Configuration]] = {}
    for configuration in configurations:
        members.setdefault(configuration.workload, []).append(configuration)
    return {configuration: name for alike in members.values() for configuration, name in _names(alike)}


def _names(configurations: Sequence[Configuration]) -> list[tuple[Configuration, str]]:
    params = {configuration: dict(configuration.params) for configuration in configurations}
    known = sorted({name for given in params.values() for name in given} - {_SIZE})
    varied = [name for name in known if len({given.get(name) for given in params.values()}) > 1]
    shapes = {one: (one.backend, one.slots, len(one.hosts)) for one in configurations}
    placed = Counter(shape for shape, _ in {(shape, one.hosts) for one, shape in shapes.items()})
    return [(one, " ".join(_parts(one, varied, several=placed[shapes[one]] > 1))) for one in configurations]


def _parts(configuration: Configuration, varied: Sequence[str], *, several: bool) -> Iterator[str]:
    if configuration.get(_SIZE) is not None:
        yield format_size(configuration.get(_SIZE))
    if several:
        yield "+".join(configuration.hosts)
    yield from (f"{name}={configuration.get(name)}" for name in varied if configuration.get(name) is not None)
