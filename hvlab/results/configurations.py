"""Records gathered by configuration: a case without its repeat. Pure."""

from __future__ import annotations

from collections.abc import Iterable
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
        """Number of ranks."""
        return len(self.hosts) * self.slots

    @property
    def inside(self) -> bool:
        """All ranks share one host."""
        return len(self.hosts) == 1

    @property
    def across(self) -> bool:
        """The ranks are on several hosts."""
        return len(self.hosts) > 1

    def get(self, name: str, default: Any = None) -> Any:
        """Value of a parameter."""
        return dict(self.params).get(name, default)

    def unit(self, metric: str) -> str:
        """Unit of a metric; a command's throughput has the user's own."""
        own = self.get("unit") if metric == "throughput" else None
        return str(own or METRICS[metric].unit)

    def without(self, *names: str) -> tuple[tuple[str, Param], ...]:
        """Parameters other than these."""
        return tuple(item for item in self.params if item[0] not in names)


@dataclass
class Repeats:
    """The repeats of one configuration: for each metric, the value of each repeat that succeeded.

    ``hosts`` has metrics of single hosts; ``errors`` and ``skipped`` the reasons for repeats without figures.
    """

    values: dict[str, dict[int, float]] = field(default_factory=dict)
    hosts: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    proved: set[str | None] = field(default_factory=set)
    ok: set[int] = field(default_factory=set)
    errors: dict[int, str] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)

    def of(self, metric: str) -> tuple[float, ...]:
        """Values of a metric, one for each repeat that measured it."""
        values = self.values.get(metric, {})
        return tuple(values[repeat] for repeat in sorted(values))

    @property
    def timed(self) -> str:
        """Metric that tells a training's duration: its steps, else its samples, else the launch."""
        return next((name for name in ("step_time", "throughput") if self.values.get(name)), "real")

    def times(self, metric: str = "") -> dict[int, float]:
        """Seconds of each repeat of a training, by ``metric`` or else by `timed`."""
        metric = metric or self.timed
        values = self.values.get(metric, {})
        if metric != "throughput":
            return values
        return {repeat: 1 / rate for repeat, rate in values.items() if rate > 0}

    @property
    def tried(self) -> int:
        """Number of repeats, skipped ones included."""
        return len(self.ok | self.errors.keys() | self.skipped.keys())


def configuration_of(record: Record) -> Configuration:
    """Return the configuration of which a record is a repeat."""
    params = {name: _to_plain(value) for name, value in record.params.items() if name != "host"}
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

    Each size of a case is a configuration; a case that failed before any figure has one without a size.
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


def _to_plain(value: Any) -> Param:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
