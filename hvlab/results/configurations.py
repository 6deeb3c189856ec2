"""Records gathered by configuration, a case without its repeat. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvlab.results.store import Record
from hvlab.workloads.metrics import METRICS

Param = str | int | float | bool | None


@dataclass(frozen=True)
class Configuration:
    """What makes two records repeats of the same measurement; ``params`` are sorted by name."""

    workload: str
    backend: str
    launcher: str
    hosts: tuple[str, ...]
    slots: int
    params: tuple[tuple[str, Param], ...] = ()

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return len(self.hosts) * self.slots

    @property
    def inside(self) -> bool:
        """Return whether all ranks share one host."""
        return len(self.hosts) == 1

    @property
    def across(self) -> bool:
        """Return whether the ranks are on several hosts."""
        return len(self.hosts) > 1

    def get(self, name: str, default: Any = None) -> Any:
        """Return a parameter."""
        return dict(self.params).get(name, default)

    def unit(self, metric: str) -> str:
        """Return a metric's unit; that of a command's throughput is the user's."""
        own = self.get("unit") if metric == "throughput" else None
        return str(own or METRICS[metric].unit)

    def without(self, *names: str) -> tuple[tuple[str, Param], ...]:
        """Return the parameters but these."""
        return tuple(item for item in self.params if item[0] not in names)


@dataclass
class Repeats:
    """The repeats of one configuration: for each metric, the value of each repeat that succeeded.

    ``hosts`` holds, for each host, the metrics of that host alone. ``errors`` and ``skipped`` say why a
    repeat has no figures.
    """

    values: dict[str, dict[int, float]] = field(default_factory=dict)
    hosts: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    proved: set[str | None] = field(default_factory=set)
    ok: set[int] = field(default_factory=set)
    errors: dict[int, str] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)

    def of(self, metric: str) -> tuple[float, ...]:
        """Return a metric's values, one a repeat; none where it was not measured."""
        values = self.values.get(metric, {})
        return tuple(values[repeat] for repeat in sorted(values))

    @property
    def timed(self) -> str:
        """Return the metric that says how long a training takes: a step, else a sample, else the launch."""
        return next((name for name in ("step_time", "throughput") if self.values.get(name)), "real")

    def times(self, metric: str = "") -> dict[int, float]:
        """Return the seconds of each repeat of a training by ``metric``, else by that of `timed`."""
        metric = metric or self.timed
        values = self.values.get(metric, {})
        if metric != "throughput":
            return values
        return {repeat: 1 / rate for repeat, rate in values.items() if rate > 0}

    @property
    def tried(self) -> int:
        """Return how many repeats there are, skipped ones too."""
        return len(self.ok | self.errors.keys() | self.skipped.keys())


def configuration_of(record: Record) -> Configuration:
    """Return the configuration that a record is a repeat of."""
    params = {name: _plain(value) for name, value in record.params.items() if name != "host"}
    return Configuration(
        record.workload,
        record.backend,
        record.launcher,
        record.hosts,
        record.slots_per_host,
        tuple(sorted(params.items())),
    )


def gather(records: Iterable[Record]) -> dict[Configuration, Repeats]:
    """Return every configuration with its repeats, in the order of the records.

    A case of several sizes makes a configuration for each size; one that failed before any figure makes one
    without a size.
    """
    gathered: dict[Configuration, Repeats] = {}
    for record in records:
        repeats = gathered.setdefault(configuration_of(record), Repeats())
        if record.status == "failed":
            repeats.errors[record.repeat] = record.error or "no reason given"
        elif record.status == "skipped":
            repeats.skipped[record.repeat] = record.error or "no reason given"
        elif record.metric is not None and record.value is not None:
            repeats.ok.add(record.repeat)
            repeats.proved.add(record.proved_backend)
            host = record.params.get("host")
            table = repeats.values if host is None else repeats.hosts.setdefault(str(host), {})
            table.setdefault(record.metric, {})[record.repeat] = record.value
    return gathered


def _plain(value: Any) -> Param:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def where(configurations: Mapping[Configuration, Repeats], **values: Any) -> dict[Configuration, Repeats]:
    """Return the configurations whose attributes, or else parameters, have these values."""
    return {
        configuration: repeats
        for configuration, repeats in configurations.items()
        if all(
            (
                getattr(configuration, name)
                if name in Configuration.__dataclass_fields__
                else configuration.get(name)
            )
            == value
            for name, value in values.items()
        )
    }
