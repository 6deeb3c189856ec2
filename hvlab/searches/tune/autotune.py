"""The length of a training, and Horovod's own autotune, whose choice joins the first race.

While a training runs, autotune changes fusion threshold, cycle time and cache, and scores some twenty choices
in the time of a few launches. Its figures do not count; its choice is measured as any other. Source of its
variables, schedule and log: common/parameter_manager.cc of Horovod 0.28.1.
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
# Largest factor on a training's default length.
_MOST = 20
# Share of a case's time limit that a longer training may take: slow settings take longer.
SHARE_OF_TIMEOUT = 0.5


@dataclass(frozen=True)
class TrainingLength:
    """The steps of a launch of a training, and the seconds of each."""

    steps: int
    step_s: float

    @property
    def seconds(self) -> float:
        """Total time of the steps."""
        return self.steps * self.step_s


def trains(block: Block) -> bool:
    """Whether the cases of a block are trainings of adjustable length."""
    return any(item.name in _LENGTHS for item in parameters(block.workload))


def read_length(folders: Sequence[Path]) -> TrainingLength | None:
    """Parse the files of a launch; None if it was no training, or failed."""
    for each in (one for folder in folders for one in samples.read(folder) if one.metric == "step_time"):
        return TrainingLength(each.warmup + len(each.times), statistics.fmean(each.times))
    return None


def balance(block: Block, trained: TrainingLength, launch_s: float, *, timeout: float) -> Block:
    """Return a block whose training lasts as long as the rest of a launch, unless its length was requested.

    ``timeout`` is the time limit of a case, in seconds. A training of half a second costs a launch of five,
    and so few steps scatter widely.
    """
    if any(name in block.axes for name in _LENGTHS):
        return block
    rest = launch_s - trained.seconds
    seconds = min(rest, timeout * SHARE_OF_TIMEOUT - rest)
    return lengthen(block, min(_MOST, seconds / trained.seconds))


def lengthen(block: Block, times: float) -> Block:
    """Return a block with a training this many times as long, never shorter."""
    for item in parameters(block.workload):
        [now] = block.axes.get(item.name, (item.default,)) if item.name in _LENGTHS else (None,)
        if isinstance(now, int):
            return replace(block, axes={**block.axes, item.name: (math.ceil(now * max(1.0, times)),)})
    return block


# Ranks run in the case's folder, whose files are fetched.
_LOG = "autotune.csv"
# Some 25 choices, after three for warming up, are scored five times each, each time over ten steps, or fewer
# if time is short.
_SCORED, _MOST_STEPS, _WARM_UP = 5 * 28, 10, 3
_THRESHOLD, _CYCLE, _CACHE = "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY"
_HIERARCHICAL = "HOROVOD_HIERARCHICAL_ALLREDUCE"
_MIB = 1 << 20


def run_autotune(
    spec: Spec, launches: Launches, space: Space, trained: TrainingLength | None, seconds: float
) -> SettingsFile | None:
    """Return the settings that autotune prefers after about ``seconds`` of training.

    A share of the case's time limit is the most. ``trained`` is the result of a launch by ``spec``. None for
    a backend, workload or space without autotune's settings, or with too few steps in that time.
    """
    [block] = spec.blocks
    searched = {item.variable for item in space.parameters} & {_THRESHOLD, _CYCLE, _CACHE}
    if trained is None or not searched or BACKENDS[block.backends[0]].framework != HOROVOD:
        return None
    seconds = min(seconds, spec.timeout * SHARE_OF_TIMEOUT)
    for_each = min(_MOST_STEPS, math.floor(seconds / trained.step_s / _SCORED))
    if for_each < 1:
        return None
    # Variables that are set exclude autotune.
    today = space.today
    free = {key: value for key, value in today.env.items() if key not in (_THRESHOLD, _CYCLE, _CACHE)}
    tuning: dict[str, str | int | float] = {
        "HOROVOD_AUTOTUNE": 1,
        "HOROVOD_AUTOTUNE_LOG": _LOG,
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": for_each,
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": _WARM_UP,
    }
    settings = today.model_copy(update={"env": free | tuning})
    lengthened = lengthen(block, for_each * _SCORED / trained.steps)
    run = launches.measure(
        replace(spec, blocks=(with_settings(lengthened, settings),), suite="tune-autotune")
    )
    logs = [folder / _LOG for folder in launches.folders(run) if (folder / _LOG).is_file()]
    texts = (log.read_text("utf-8", errors="replace") for log in logs)
    best = next(filter(None, map(read_best, texts)), None)
    return best and today.model_copy(update={"env": free | dict(best.env)})


def read_best(log: str) -> SettingsFile | None:
    """Return the settings with the best score in autotune's log; None for any other text."""
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
