"""The measurements of a model: sweeps of allreduce, and training steps by the subject of a prediction."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from hvlab.lab.backends import SERIAL
from hvlab.results.configurations import Configuration, Param, Repeats
from hvlab.workloads.operations import COLLECTIVES

Topology = Literal["inside", "across", "both"]
ALLREDUCE = "allreduce"
TOPOLOGIES: tuple[Topology, ...] = ("inside", "across", "both")


@dataclass(frozen=True)
class SweepPoint:
    """The median over the repeats of one configuration, in seconds; ``launches`` has each repeat's."""

    ranks: int
    size_bytes: int
    seconds: float
    launches: Mapping[int, float] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Sweep:
    """Points that differ only in ranks and size; ``params`` are without the size.

    ``topology`` is inside (one host, several ranks), across (several hosts, a rank on each) or both (several
    hosts, ``slots`` ranks on each); points of a single rank belong to inside and across.
    """

    backend: str
    launcher: str
    topology: Topology
    params: tuple[tuple[str, Param], ...]
    points: tuple[SweepPoint, ...]
    failed: int = 0
    slots: int = 1

    @property
    def ranks(self) -> tuple[int, ...]:
        """Numbers of ranks measured, except 1."""
        return tuple(sorted({point.ranks for point in self.points if point.ranks > 1}))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes measured on several ranks, in bytes."""
        return tuple(sorted({point.size_bytes for point in self.points if point.ranks > 1}))

    @property
    def deviations(self) -> list[list[float]]:
        """For each number of ranks, the deviations of its launches' logarithms.

        All sizes of a launch share its noise: its deviation is the mean over them.
        """
        launches: dict[int, dict[int, list[float]]] = {}
        for point in self.points:
            for repeat, seconds in point.launches.items():
                by_repeat = launches.setdefault(point.ranks, {})
                by_repeat.setdefault(repeat, []).append(math.log(seconds / point.seconds))
        return [[statistics.fmean(logs) for logs in by_repeat.values()] for by_repeat in launches.values()]

    def repeats(self, ranks: int) -> int:
        """Return the number of launches at that number of ranks."""
        return max((len(point.launches) for point in self.points if point.ranks == ranks), default=0) or 1

    def below(self, ranks: int) -> Sweep:
        """Return the sweep without the points of that many ranks or more."""
        return replace(self, points=tuple(point for point in self.points if point.ranks < ranks))


def topologies(configuration: Configuration) -> tuple[Topology, ...]:
    """Return the topologies of a configuration: one rank begins those inside and those across."""
    if configuration.ranks == 1:
        return ("inside", "across")
    if configuration.inside:
        return ("inside",)
    return ("across",) if configuration.slots == 1 else ("both",)


def slots(configuration: Configuration, topology: Topology) -> int:
    """Return the constant number of ranks on each host, else 1."""
    return configuration.slots if topology == "both" else 1


def sweeps(configurations: Mapping[Configuration, Repeats]) -> list[Sweep]:
    """Return every sweep, in order; failures count for backends without any figures in their topology."""
    points: dict[tuple[str, str, Topology, tuple[tuple[str, Param], ...], int], list[SweepPoint]] = {}
    failed: dict[tuple[str, str, Topology], int] = {}
    for configuration, repeats in configurations.items():
        if configuration.workload != ALLREDUCE:
            continue
        point = _point(configuration, repeats)
        for topology in topologies(configuration):
            place = (configuration.backend, configuration.launcher, topology)
            if point:
                key = (*place, configuration.without("size_bytes"), slots(configuration, topology))
                points.setdefault(key, []).append(point)
            elif repeats.errors:
                failed[place] = failed.get(place, 0) + 1
    whole = [Sweep(*key[:4], tuple(points), slots=key[4]) for key, points in points.items()]
    known = {key[:3] for key in points}
    return whole + [Sweep(*place, (), (), number) for place, number in failed.items() if place not in known]


def _point(configuration: Configuration, repeats: Repeats) -> SweepPoint | None:
    size = configuration.get("size_bytes")
    times = repeats.values.get("time_median") or repeats.values.get("time") or {}
    seconds = {repeat: time * 1e-6 for repeat, time in times.items() if math.isfinite(time) and time > 0}
    if not isinstance(size, int) or size <= 0 or not seconds:
        return None
    return SweepPoint(configuration.ranks, size, statistics.median(seconds.values()), seconds)


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
        for training in _read_group(key, group, serial)
    ]


def _read_group(
    key: _Key, group: Mapping[Configuration, Repeats], serial: Mapping[_Key, Mapping[Configuration, Repeats]]
) -> Iterator[Training]:
    singles = {configuration: repeats for configuration, repeats in group.items() if configuration.ranks == 1}
    base = _step(singles) if singles else None
    serial_base = base is None
    if base is None:
        base = next(
            (_step(members) for other, members in serial.items() if _is_same_program(key, other)), None
        )
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


def _is_same_program(key: _Key, other: _Key) -> bool:
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
