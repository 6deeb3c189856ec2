"""Measured training steps, grouped by the subject of a prediction."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from hvlab.analysis.model.sweep import TOPOLOGIES, Topology, slots, topologies
from hvlab.lab.backends import SERIAL
from hvlab.results.configurations import Configuration, Param, Repeats
from hvlab.workloads.operations import COLLECTIVES

Scaling = Literal["weak", "strong"]
SCALINGS: tuple[Scaling, ...] = get_args(Scaling)


@dataclass(frozen=True)
class Step:
    """A training step on some ranks, times in seconds; ``repeats`` holds the step time of each repeat.

    ``compute_s`` is forward, backward and update on the slowest host, ``mean_compute_s`` on all of them.
    ``sent_bytes`` is a rank's contribution to the allreduces of a step. ``jitter_s`` is the standard
    deviation of single steps: at one rank that of the work alone.
    """

    ranks: int
    repeats: tuple[float, ...]
    compute_s: float | None = None
    mean_compute_s: float | None = None
    sent_bytes: float | None = None
    flops_per_sample: float | None = None
    samples_per_s: float | None = None
    startup_s: float | None = None
    training_s: float | None = None
    jitter_s: float | None = None

    @property
    def seconds(self) -> float:
        """Median over the repeats."""
        return statistics.median(self.repeats)


@dataclass(frozen=True)
class Training:
    """A workload on one backend and topology, at several numbers of ranks.

    ``params`` are those of the configurations except ``scaling``; ``steps`` are sorted by ranks. ``base`` is
    the step at one rank: of this backend, else of the program without Horovod (``serial_base``). ``slots`` is
    the number of ranks on each of several hosts.
    """

    workload: str
    backend: str
    launcher: str
    topology: Topology
    scaling: Scaling
    params: tuple[tuple[str, Param], ...]
    steps: tuple[Step, ...]
    base: Step | None
    serial_base: bool = False
    slots: int = 1

    def get(self, name: str, default: Any = None) -> Any:
        """Value of a parameter."""
        return dict(self.params).get(name, default)

    @property
    def sent_bytes(self) -> float | None:
        """Bytes that a rank contributes to the allreduces of a step, at the largest number of ranks."""
        sizes = [step.sent_bytes for step in (self.base, *self.steps) if step and step.sent_bytes]
        return sizes[-1] if sizes else None

    def efficiency(self, step: Step) -> float | None:
        """Return speed-up over ranks of a measured step; None without a step at one rank."""
        if self.base is None:
            return None
        return self.base.seconds / step.seconds / (step.ranks if self.scaling == "strong" else 1)

    def below(self, ranks: int) -> Training:
        """Return the training without the steps of that many ranks or more."""
        return replace(self, steps=tuple(step for step in self.steps if step.ranks < ranks))


_Params = tuple[tuple[str, Param], ...]
_Key = tuple[str, str, str, _Params]


def trainings(configurations: Mapping[Configuration, Repeats]) -> list[Training]:
    """Return every training of several ranks, for each topology and scaling that was measured."""
    groups: dict[_Key, dict[Configuration, Repeats]] = {}
    for configuration, repeats in configurations.items():
        if configuration.workload not in COLLECTIVES and _positive((repeats,), "step_time"):
            place = configuration.workload, configuration.backend, configuration.launcher
            groups.setdefault((*place, configuration.without("scaling")), {})[configuration] = repeats
    serial = {key: group for key, group in groups.items() if key[1] == SERIAL}
    return [
        training
        for key, group in groups.items()
        if key[1] != SERIAL
        for training in _of_group(key, group, serial)
    ]


def _of_group(
    key: _Key, group: Mapping[Configuration, Repeats], serial: Mapping[_Key, Mapping[Configuration, Repeats]]
) -> Iterator[Training]:
    singles = {configuration: repeats for configuration, repeats in group.items() if configuration.ranks == 1}
    base = _step(singles) if singles else None
    serial_base = base is None
    if base is None:
        base = next((_step(members) for other, members in serial.items() if _alike(key, other)), None)
    groups: dict[tuple[Topology, int, Scaling], dict[int, dict[Configuration, Repeats]]] = {
        (topology, 1, scaling): {} for topology in TOPOLOGIES for scaling in SCALINGS
    }
    for configuration, repeats in group.items():
        for topology in topologies(configuration) if configuration.ranks > 1 else ():
            scaling: Scaling = "strong" if configuration.get("scaling") == "strong" else "weak"
            by_ranks = groups.setdefault((topology, slots(configuration, topology), scaling), {})
            by_ranks.setdefault(configuration.ranks, {})[configuration] = repeats
    for (topology, ranks_a_host, scaling), by_ranks in groups.items():
        steps = tuple(_step(by_ranks[ranks]) for ranks in sorted(by_ranks))
        if steps:
            yield Training(*key[:3], topology, scaling, key[3], steps, base, serial_base, ranks_a_host)


def _alike(key: _Key, other: _Key) -> bool:
    """Whether two groups run the same program, whatever the tuning and compression."""
    ours, theirs = dict(key[3]), dict(other[3])
    shared = (ours.keys() & theirs.keys()) - {"compression"}
    return key[0] == other[0] and all(ours[name] == theirs[name] for name in shared)


def _step(configurations: Mapping[Configuration, Repeats]) -> Step:
    """Return one step from configurations that differ only in their hosts, all repeats together."""
    members = configurations.values()
    slowest, mean = _compute(members)
    return Step(
        ranks=next(iter(configurations)).ranks,
        repeats=_positive(members, "step_time"),
        compute_s=slowest,
        mean_compute_s=mean,
        sent_bytes=_middle(members, "sent_bytes") or _middle(members, "gradient_bytes"),
        flops_per_sample=_middle(members, "flops"),
        samples_per_s=_middle(members, "throughput"),
        startup_s=_middle(members, "startup"),
        training_s=_middle(members, "training_time"),
        jitter_s=_middle(members, "step_time_sd"),
    )


def _positive(members: Iterable[Repeats], metric: str) -> tuple[float, ...]:
    values = (value for repeats in members for value in repeats.of(metric))
    return tuple(value for value in values if math.isfinite(value) and value > 0)


def _middle(members: Iterable[Repeats], metric: str) -> float | None:
    values = _positive(members, metric)
    return statistics.median(values) if values else None


def _compute(members: Iterable[Repeats]) -> tuple[float | None, float | None]:
    """Return the compute time of a step on the slowest host and on all, medians over the configurations."""
    slowest, means = [], []
    for repeats in members:
        by_host = [
            statistics.median(values["host_compute_time"].values())
            for values in repeats.hosts.values()
            if values.get("host_compute_time")
        ]
        overall = _middle((repeats,), "compute_time")
        hosts = by_host or ([] if overall is None else [overall])
        if hosts:
            slowest.append(max(hosts))
            means.append(statistics.fmean(hosts))
    return (statistics.median(slowest), statistics.median(means)) if slowest else (None, None)
