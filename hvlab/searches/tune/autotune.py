"""How long a training is, and Horovod's own autotune: its choice is among the first that are raced.

While a training runs, autotune changes fusion threshold, cycle time and cache, and scores some twenty choices
in the time of a few launches. Its figures count for nothing here; its choice is measured as any other. Source
of its variables, schedule and log: common/parameter_manager.cc of Horovod 0.28.1.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hvlab.base.errors import UsageError
from hvlab.bench.matrix import Block, Spec
from hvlab.bench.settings import SettingsFile, with_settings
from hvlab.lab.backends import BACKENDS, HOROVOD
from hvlab.searches.tune.space import Space
from hvlab.searches.tune.trials import Launches
from hvlab.workloads import parameters, samples

_LENGTHS = ("steps", "epochs")
# A training becomes at most this many times as long as it is by default.
_MOST = 20
# No training is made longer than fits into so much of a case's time limit: slow settings take longer.
SHARE_OF_TIMEOUT = 0.5


@dataclass(frozen=True)
class TrainingLength:
    """What a launch of a training showed: how many steps it has, of how many seconds each."""

    steps: int
    step_s: float

    @property
    def seconds(self) -> float:
        """Return the total time of the steps."""
        return self.steps * self.step_s


def trains(block: Block) -> bool:
    """Return whether the cases of a block are trainings of a length that can be set."""
    return any(item.name in _LENGTHS for item in parameters(block.workload))


def length_of(folders: Sequence[Path]) -> TrainingLength | None:
    """Parse the files of a launch; None where it was no training, or failed."""
    for each in (one for folder in folders for one in samples.read(folder) if one.metric == "step_time"):
        return TrainingLength(each.warmup + len(each.times), statistics.fmean(each.times))
    return None


def balanced(block: Block, trained: TrainingLength, launch_s: float, *, timeout: float) -> Block:
    """Return a block that trains for as long as the rest of a launch takes, unless its length was asked for.

    ``timeout`` is the time limit of a case, in seconds.
    A training of half a second costs a launch of five, and so few steps spread widely.
    """
    if any(name in block.axes for name in _LENGTHS):
        return block
    rest = launch_s - trained.seconds
    seconds = min(rest, timeout * SHARE_OF_TIMEOUT - rest)
    return longer(block, min(_MOST, seconds / trained.seconds))


def longer(block: Block, times: float) -> Block:
    """Return a block with a training this many times as long, and never shorter."""
    for item in parameters(block.workload):
        [now] = block.axes.get(item.name, (item.default,)) if item.name in _LENGTHS else (None,)
        if isinstance(now, int):
            return replace(block, axes={**block.axes, item.name: (math.ceil(now * max(1.0, times)),)})
    return block


# Ranks run in the case's folder, whose files come back to this machine.
_LOG = "autotune.csv"
# Some 25 choices, after three for warming up, are scored five times each, every time over as many steps as a
# variable says: ten, unless time is too short for ten.
_SCORED, _MOST_STEPS, _WARM_UP = 5 * 28, 10, 3
_THRESHOLD, _CYCLE, _CACHE = "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY"
_HIERARCHICAL = "HOROVOD_HIERARCHICAL_ALLREDUCE"
_MIB = 1 << 20


def choice(
    spec: Spec, launches: Launches, space: Space, trained: TrainingLength | None, seconds: float
) -> SettingsFile | None:
    """Return the settings that autotune prefers to today's, after about ``seconds`` of training.

    These are no more than a share of a case's time limit.
    ``trained`` is what a launch as ``spec`` asks for showed. None where there is no choice: for a backend,
    a workload or a space without autotune's settings, or with too few steps in that time.
    """
    [block] = spec.blocks
    searched = {item.variable for item in space.parameters} & {_THRESHOLD, _CYCLE, _CACHE}
    if trained is None or not searched or BACKENDS[block.backends[0]].framework != HOROVOD:
        return None
    seconds = min(seconds, spec.timeout * SHARE_OF_TIMEOUT)
    for_each = min(_MOST_STEPS, math.floor(seconds / trained.step_s / _SCORED))
    if for_each < 1:
        return None
    # What is set by a variable stays as it is.
    today = space.today
    free = {key: value for key, value in today.env.items() if key not in (_THRESHOLD, _CYCLE, _CACHE)}
    tuning: dict[str, str | int | float] = {
        "HOROVOD_AUTOTUNE": 1,
        "HOROVOD_AUTOTUNE_LOG": _LOG,
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": for_each,
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": _WARM_UP,
    }
    settings = today.model_copy(update={"env": free | tuning})
    lengthened = longer(block, for_each * _SCORED / trained.steps)
    run = launches.measure(
        replace(spec, blocks=(with_settings(lengthened, settings),), suite="tune-autotune")
    )
    for folder in launches.folders(run):
        log = folder / _LOG
        chosen = best_of(log.read_text("utf-8", errors="replace")) if log.is_file() else None
        if chosen is not None:
            return today.model_copy(update={"env": free | dict(chosen.env)})
    return None


def best_of(log: str) -> SettingsFile | None:
    """Return the settings that autotune scored best in its log; None where it is no such log."""
    try:
        rows = list(csv.DictReader(log.splitlines(), skipinitialspace=True))
        best = max(rows, key=lambda row: float(row["score"]))
        env: dict[str, str | int | float] = {
            _CYCLE: float(best["cycle_time_ms"]),
            _THRESHOLD: int(float(best["tensor_fusion_threshold"]) * _MIB),
        }
        if best["cache_enabled"] == "0":
            env[_CACHE] = 0
        if best["hierarchical_allreduce"] == "1":
            env[_HIERARCHICAL] = 1
        settings = SettingsFile(env=env)
        _ = settings.parameters
    except (ValueError, KeyError, TypeError, OverflowError, csv.Error, UsageError):
        return None
    return settings
