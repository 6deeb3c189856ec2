"""How long a run will take: from the times of earlier runs, else from the amount of work."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.base.answers import AnswerError
from hvlab.base.masking import mask
from hvlab.results.store import Store
from hvlab.workloads import WORKLOADS
from hvlab.workloads.case import Case
from hvlab.workloads.outcome import ending, start_outcome

# What hvlab itself costs, once and for each case (benchmarks/README.md).
_FIRST_S, _EACH_S = 2.0, 0.1
_MINUTE_S, _HOUR_S = 90, 5400


@dataclass(frozen=True)
class Estimate:
    """``seconds`` for ``cases``; ``known`` of them were measured before."""

    cases: int
    known: int
    seconds: float

    @property
    def time(self) -> str:
        """Return the time as text."""
        return f"about {format_duration(self.seconds)}"

    @property
    def text(self) -> str:
        """Return it as text, with its source."""
        if self.known == self.cases:
            source = "from earlier runs"
        elif self.known:
            source = f"{self.known} from earlier runs, {self.cases - self.known} from a rough model"
        else:
            source = "from a rough model: none was measured before"
        return f"{self.cases} case{'s' * (self.cases != 1)}, {self.time} ({source})"


def estimate(cases: Sequence[Case], store: Store) -> Estimate:
    """Estimate the time to measure ``cases``."""
    return estimates([cases], store)[0]


def estimates(groups: Sequence[Sequence[Case]], store: Store) -> list[Estimate]:
    """Estimate the time to measure each group of cases."""
    measured = _find_measured((case for cases in groups for case in cases), store)
    estimated = []
    for cases in groups:
        seconds = [(measured.get(_key(case)) or rough(case)) + _EACH_S for case in cases]
        known = sum(_key(case) in measured for case in cases)
        estimated.append(Estimate(len(cases), known, _FIRST_S + sum(seconds)))
    return estimated


def _find_measured(cases: Iterable[Case], store: Store) -> dict[str, float]:
    keys = {_key(case) for case in cases}
    seconds_of: dict[str, float] = {}
    for record, sizes in store.latest():
        params = {
            name: value for name, value in record.params.items() if name not in ("size_bytes", "host", "side")
        }
        own = (record.workload, record.backend, record.launcher, record.hosts, record.slots_per_host)
        key = _format_key(own, params, sizes)
        if key in keys:
            try:
                seconds = start_outcome(ending(record.hosts, store.folder / record.raw_path)).seconds
            except (FileNotFoundError, AnswerError):
                continue
            if seconds > 0:
                seconds_of[key] = seconds
    return seconds_of


def _key(case: Case) -> str:
    params = {name: value for name, value in case.params.items() if name not in ("sizes", "copy", "side")}
    if case.container:
        params["container"] = case.container
    own = (case.workload, case.backend, case.launcher, case.hosts, case.slots)
    return _format_key(own, mask(params), sorted(set(case.params.get("sizes", ()))))


def _format_key(own: tuple[Any, ...], params: Mapping[str, Any], sizes: Sequence[int]) -> str:
    return json.dumps([own, params, sizes], sort_keys=True)


def format_duration(seconds: float) -> str:
    """Return a time as text."""
    if seconds < _MINUTE_S:
        return f"{max(10, round(seconds, -1)):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < _HOUR_S else f"{seconds / 3600:.1f} h"


# The launch, the imports, and the check at the end; a training also loads its data and measures accuracy.
_START_S, _START_TRAINING_S = 4.0, 9.0
# Overhead of a step or a call, beside its work.
_STEP_S, _CALL_S = 0.01, 0.001
# Multiply-adds a second of one thread of a CPU, and of a GPU; bytes a second from rank to rank.
_RATE = {"cpu": 2e10, "cuda": 5e12}
_BYTES_PER_S = {"cpu": 3e8, "cuda": 1e10}
_PASSES = 3
# Steps of computing alone, which follow a training.
_ALONE = 6
# Nothing is known of the user's own training; a minute is a guess.
_COMMAND_S = 60.0
# Training samples; other data sets are taken for MNIST.
_SAMPLES = {"digits": 1297}
_MNIST_SAMPLES = 60_000


def rough(case: Case) -> float:
    """Return the seconds that a case may take, at most its time limit."""
    if case.command:
        return min(float(case.timeout), _COMMAND_S)
    if "sizes" not in case.params:
        return min(float(case.timeout), _START_TRAINING_S + _training(case))
    sizes, device = case.params["sizes"], case.params["device"]
    once: float = len(sizes) * _CALL_S + 2 * sum(sizes) / _BYTES_PER_S[device]
    return min(float(case.timeout), _START_S + float(case.params["iterations"]) * once)


def _training(case: Case) -> float:
    params, device = case.params, case.params["device"]
    work, parameters = WORKLOADS[case.workload].model(params)
    batch = params["batch"] / (case.world_size if params["scaling"] == "strong" else 1)
    if "steps" in params:
        steps = params["steps"]
    else:
        samples = _SAMPLES.get(params["data"], _MNIST_SAMPLES)
        steps = params["epochs"] * samples / (batch * case.world_size)
    rate = _RATE[device] * (params["threads"] if device == "cpu" else 1)
    computing = _STEP_S + _PASSES * work * batch / rate
    sending = 2 * 4 * parameters / _BYTES_PER_S[device] if case.world_size > 1 else 0.0
    return float(steps * (computing + sending) + _ALONE * computing)
