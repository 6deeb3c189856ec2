"""A latency and bandwidth model of communication, fitted to sweeps, to predict and to explain. Pure.

In: configurations with their repeats. Out: fits of collectives with their errors, predicted training steps at
other numbers of ranks, and explanations as keys with numbers, which a report puts into words. A prediction is
never a configuration: nothing in it was measured.

Read `costs` first: the cost of a message, and the messages of each algorithm. `training` selects the
measurements, `problem` and `fit` find alpha, beta and their scatter; `step` splits a training step, `predict`
combines both, and `prediction` has its limits. `dominant` explains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Explanation:
    """One statement; ``names`` are its subjects, ``numbers`` its grounds.

    ``key`` is the phrase ``why.<key>`` of a report, or the largest part of a whole (``step.compute``).
    Numbers are SI unless their name ends in a unit; shares are of 1, ratios are slower over faster.
    """

    key: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
