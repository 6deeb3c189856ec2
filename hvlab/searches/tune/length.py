"""How long a training is: long enough to measure, or for Horovod's autotune."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hvlab.bench.matrix import Block
from hvlab.workloads import parameters, samples

_LENGTHS = ("steps", "epochs")
# A training is made no more than so many times as long as it is by default.
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
        """Return how long the steps take together."""
        return self.steps * self.step_s


def trains(block: Block) -> bool:
    """Return whether the cases of a block are trainings of a length that can be set."""
    return any(item.name in _LENGTHS for item in parameters(block.workload))


def length_of(folders: Sequence[Path]) -> TrainingLength | None:
    """Return what the files of a launch say; None where it was no training, or failed."""
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
    """Return a block with a training so many times as long, and never shorter."""
    for item in parameters(block.workload):
        [now] = block.axes.get(item.name, (item.default,)) if item.name in _LENGTHS else (None,)
        if isinstance(now, int):
            return replace(block, axes={**block.axes, item.name: (math.ceil(now * max(1.0, times)),)})
    return block
