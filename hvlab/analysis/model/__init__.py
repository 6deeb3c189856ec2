"""A latency and bandwidth model of communication: fitted to sweeps, used to predict and to explain. Pure.

In: configurations with their repeats. Out: fits of collectives with their errors,
predicted training steps at other numbers of ranks, and explanations as keys with numbers, which a report puts
into words. A prediction is a type of its own, never a configuration: nothing in it was measured.

Read `costs` first: what a message costs, and what each algorithm sends. `sweep` and `training` pick the
measurements, `problem` says how far they scatter, and with `fit` finds alpha and beta; `step` says what a
training step is made of, `predict` puts both together, and `prediction` says where it ends. `dominant` and
`versus` explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Explanation:
    """One statement; ``names`` say what it is about, ``numbers`` what it rests on.

    ``key`` is the phrase ``why.<key>`` of a report, or the largest part of a whole (``step.compute``).
    Numbers are SI unless their name ends in a unit; shares are of 1, ratios are slower over faster.
    """

    key: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
