"""Trials on the hosts: settings measured in turn, each round a run in the search's own store.

A search draws the same settings from the same figures, so repeating an interrupted one continues it: figures
in its store are not measured again.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hvlab.analysis.compare.comparison import primary
from hvlab.base.files import write_file
from hvlab.bench.matrix import Spec
from hvlab.bench.measure import measure
from hvlab.bench.schedule import Schedule
from hvlab.bench.settings import with_settings
from hvlab.lab.inventory import Lab
from hvlab.results.configurations import gather
from hvlab.results.store import Record, Store
from hvlab.searches.tune.space import Candidate, Space
from hvlab.workloads.metrics import METRICS

# Launches of the last race, and of the proof: six repeats of each side, and a quarter more, since times vary.
_LAST_LAUNCHES, PROOF_LAUNCHES = 12, 15
# A trial's time limit as a multiple of the first round's launches, and its minimum in seconds.
_LONGER, _LEAST_S = 6, 60


@dataclass
class Launches:
    """Runs in the search's own store. A finished one is not measured again, but its time counts.

    ``seconds`` holds the time of each run, by the key of its specification.
    """

    lab: Lab
    store: Store
    seconds: dict[str, float] = field(default_factory=dict)
    spent: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        self._file = self.store.folder / "seconds.json"
        if self._file.is_file():
            self.seconds = json.loads(self._file.read_text("utf-8"))

    def measure(self, spec: Spec, ready: Callable[[], None] = lambda: None) -> str:
        """Return the run of ``spec``, measured now unless it exists; ``ready`` is called before."""
        schedule = Schedule.of(spec, self.lab)
        key = schedule.spec.key(self.lab)
        run_id = self.store.find_finished(key)
        if run_id is None:
            begun_before = self.store.unfinished(key)
            records = self.store.records(begun_before.run_id) if begun_before else []
            before = len({record.case_id for record in records})
            begun = time.monotonic()
            ready()
            run_id = measure(schedule, self.store)
            # Cases that an interrupted run had measured count like the rest.
            whole = len(schedule.cases) / max(1, len(schedule.cases) - before)
            self.seconds[key] = (time.monotonic() - begun) * whole
            write_file(self._file, json.dumps(self.seconds, indent=1))
        self.spent += self.seconds.get(key, 0.0)
        self.count += len(schedule.cases)
        return run_id

    def folders(self, run_id: str) -> list[Path]:
        """Return the folders with the files of a run's cases."""
        return sorted({self.store.folder / record.raw_path for record in self.store.records(run_id)})


@dataclass
class Trials:
    """Measures candidates of a space. ``spec`` is one configuration; ``budget`` is in seconds."""

    spec: Spec
    launches: Launches
    space: Space
    budget: float
    spent: float = 0.0
    count: int = 0
    rounds: int = 0
    _launch: float = 0.0

    def __call__(self, batch: Sequence[Candidate]) -> list[float | None]:
        """Return the logarithm of the time that each candidate takes; None if it failed."""
        self.rounds += 1
        costs = self._round(batch)
        if self.rounds == 1:
            self._launch = self.spent / max(1, self.count)
        return costs

    def has_time(self) -> bool:
        """Whether there is time for another round, the last race and the proof."""
        return not self.count or self._after(self.spent / self.rounds + _LAST_LAUNCHES * self.launch_s) > 0

    def fits(self, launches: int) -> bool:
        """Whether there is time for this many launches, and the proof."""
        return self._after(launches * self.launch_s) >= 0

    @property
    def launch_s(self) -> float:
        """Duration of a launch, in seconds."""
        return self.spent / self.count if self.count else 0.0

    @property
    def proof_s(self) -> float:
        """Minimum duration of the proof, in seconds."""
        return PROOF_LAUNCHES * self.launch_s

    @property
    def rest_s(self) -> float:
        """Rest of the budget, in seconds; negative if overspent."""
        return self.budget - self.launches.spent

    def format_progress(self, text: str) -> str:
        """Return a line of progress with the spent part of the budget."""
        return f"{text} ({self.launches.spent / 60:.1f} of {self.budget / 60:g} min)"

    def _after(self, seconds: float) -> float:
        return self.rest_s - seconds - self.proof_s

    def _round(self, batch: Sequence[Candidate]) -> list[float | None]:
        costs = figures(self._records(self._spec(batch)))
        return [costs.get(str(number)) for number in range(len(batch))]

    def _records(self, spec: Spec, ready: Callable[[], None] = lambda: None) -> list[Record]:
        spent, count = self.launches.spent, self.launches.count
        run_id = self.launches.measure(spec, ready)
        self.spent += self.launches.spent - spent
        self.count += self.launches.count - count
        return self.launches.store.records(run_id)

    def _spec(self, batch: Sequence[Candidate]) -> Spec:
        timeout = self.spec.timeout
        if self._launch:
            timeout = min(timeout, max(_LEAST_S, math.ceil(_LONGER * self._launch)))
        [block] = self.spec.blocks
        settings = [self.space.settings(candidate) for candidate in batch]
        blocks = tuple(
            replace(with_settings(block, one), side=str(number)) for number, one in enumerate(settings)
        )
        return replace(self.spec, blocks=blocks, suite=f"tune-{self.rounds}", timeout=timeout)


def figures(records: Sequence[Record]) -> Mapping[str, float]:
    """Return the logarithm of the time of each successful candidate of a run, by its number.

    Several sizes count by the mean of their logarithms, a throughput as its reciprocal.
    """
    values: dict[str, list[float]] = {}
    failed = set()
    for configuration, repeats in gather(records).items():
        side = str(configuration.get("side"))
        if repeats.errors or repeats.skipped:
            failed.add(side)
            continue
        metric = primary(configuration, repeats)
        sign = -1 if METRICS[metric].better == "high" else 1
        values.setdefault(side, []).extend(
            sign * math.log(value) for value in repeats.of(metric) if value > 0
        )
    return {side: statistics.fmean(logs) for side, logs in values.items() if logs and side not in failed}
