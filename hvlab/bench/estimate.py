"""How long a run will take: from the times of earlier runs, else from the amount of work."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.base.answers import AnswerError
from hvlab.base.masking import masked
from hvlab.results.store import Store
from hvlab.workloads import duration
from hvlab.workloads.case import Case
from hvlab.workloads.outcome import ending, started

# What hvlab itself costs, once and for each case (benchmarks/README.md).
_FIRST_S, _EACH_S = 2.0, 0.1
_MINUTE_S, _HOUR_S = 90, 5400


@dataclass(frozen=True)
class Estimate:
    """``seconds`` for ``cases``, of which ``known`` were measured before."""

    cases: int
    known: int
    seconds: float

    @property
    def time(self) -> str:
        """Return the time as text."""
        return f"about {shown(self.seconds)}"

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
    """Return how long it takes to measure ``cases``."""
    return estimates([cases], store)[0]


def estimates(groups: Sequence[Sequence[Case]], store: Store) -> list[Estimate]:
    """Return how long it takes to measure each group of cases."""
    measured = _measured((case for cases in groups for case in cases), store)
    return [_estimate(cases, measured) for cases in groups]


def _estimate(cases: Sequence[Case], measured: Mapping[str, float]) -> Estimate:
    known = [measured[_key(case)] for case in cases if _key(case) in measured]
    rough = [duration.rough(case) for case in cases if _key(case) not in measured]
    return Estimate(len(cases), len(known), _FIRST_S + sum(known) + sum(rough) + _EACH_S * len(cases))


def _measured(cases: Iterable[Case], store: Store) -> dict[str, float]:
    """Return how long each of these configurations took the last time it succeeded, in seconds."""
    keys = {_key(case) for case in cases}
    seconds_of: dict[str, float] = {}
    for record, sizes in store.latest():
        params = {
            name: value for name, value in record.params.items() if name not in ("size_bytes", "host", "side")
        }
        own = (record.workload, record.backend, record.launcher, record.hosts, record.slots_per_host)
        key = _named(own, params, sizes)
        if key in keys:
            try:
                seconds = started(ending(record.hosts, store.folder / record.raw_path)).seconds
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
    return _named(own, masked(params), sorted(set(case.params.get("sizes", ()))))


def _named(own: tuple[Any, ...], params: Mapping[str, Any], sizes: Sequence[int]) -> str:
    return json.dumps([own, params, sizes], sort_keys=True)


def shown(seconds: float) -> str:
    """Return a time as text."""
    if seconds < _MINUTE_S:
        return f"{max(10, round(seconds, -1)):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < _HOUR_S else f"{seconds / 3600:.1f} h"
