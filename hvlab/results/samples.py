"""The iterations behind the figures of a run, from its raw files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from hvlab.results.configurations import Configuration, gather
from hvlab.results.store import Record, Store
from hvlab.statistics.distribution import Distribution, distribution
from hvlab.workloads import samples
from hvlab.workloads.metrics import METRICS

COLUMNS = (
    *("workload", "backend", "hosts", "slots", "size_bytes", "params", "metric", "unit", "repeats"),
    *("iterations", "mean", "median", "p95", "p99", "lowest", "highest"),
)
TABLE = (
    *("workload", "backend", "hosts", "slots", "case", "repeats", "iterations"),
    *("unit", "mean", "median", "p95", "p99", "histogram"),
)
_BARS = "▁▂▃▄▅▆▇█"


def samples_of(store: Store, records: Sequence[Record]) -> dict[Configuration, dict[int, samples.Iterations]]:
    """Return the iterations of each configuration with raw files, by repeat, without the warm-up.

    ``records`` are of one or several runs. An iteration is the mean over the ranks, in its metric's unit: us
    for a collective, s for a training step.
    """

    @cache
    def read(raw_path: str) -> Mapping[int | None, samples.Iterations]:
        return {each.size_bytes: each for each in samples.read(store.folder / raw_path)}

    first: dict[tuple[str, Any], Record] = {}
    for record in records:
        if record.status == "ok" and record.metric and "host" not in record.params:
            first.setdefault((record.case_id, record.params.get("size_bytes")), record)
    sampled: dict[Configuration, dict[int, samples.Iterations]] = {}
    for (_, size), record in first.items():
        each = read(record.raw_path).get(size)
        if each is not None:
            (configuration,) = gather([record])
            sampled.setdefault(configuration, {})[record.repeat] = each
    return sampled


def pool(repeats: Mapping[int, samples.Iterations]) -> Distribution:
    """Return the distribution of all repeats' iterations together, in the metric's own unit."""
    return distribution([seconds for repeat in sorted(repeats) for seconds in repeats[repeat].times])


def rows(sampled: Mapping[Configuration, Mapping[int, samples.Iterations]]) -> list[dict[str, Any]]:
    """Return a JSON-ready row for each configuration: COLUMNS, and ``histogram`` with edges and counts."""
    return [_row(configuration, repeats) for configuration, repeats in sampled.items()]


def table(
    sampled: Mapping[Configuration, Mapping[int, samples.Iterations]], names: Mapping[Configuration, str]
) -> list[dict[str, Any]]:
    """Return the rows for people (TABLE); ``names`` tell alike configurations apart."""
    return [
        {
            **row,
            "hosts": len(row["hosts"]),
            "case": names[configuration],
            "histogram": bars(row["histogram"]["counts"]),
        }
        for configuration, row in zip(sampled, rows(sampled), strict=True)
    ]


def _row(configuration: Configuration, repeats: Mapping[int, samples.Iterations]) -> dict[str, Any]:
    spread, metric = pool(repeats), next(iter(repeats.values())).metric
    figures = asdict(spread)
    return {
        "workload": configuration.workload,
        "backend": configuration.backend,
        "hosts": list(configuration.hosts),
        "slots": configuration.slots,
        "size_bytes": configuration.get("size_bytes"),
        "params": dict(configuration.without("size_bytes")),
        "metric": metric,
        "unit": METRICS[metric].unit,
        "repeats": len(repeats),
        "iterations": spread.count,
        **{name: figures[name] for name in ("mean", "median", "p95", "p99", "lowest", "highest")},
        "histogram": {"edges": list(spread.edges), "counts": list(spread.counts)},
    }


def bars(counts: Sequence[int]) -> str:
    """Return a histogram as one line of block characters; an empty bin is a space."""
    most = max(counts, default=0)
    last = len(_BARS) - 1
    return "".join(_BARS[-(-count * last // most)] if count else " " for count in counts)
