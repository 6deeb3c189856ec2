"""The proof: the best setting and today's measured again, in turn, in a run of their own."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hvlab.bench import sides
from hvlab.bench.matrix import Spec
from hvlab.bench.measure import measure
from hvlab.bench.schedule import Schedule
from hvlab.bench.settings import SettingsFile
from hvlab.bench.sides import A, B
from hvlab.compare.decisions import Decisions, decide
from hvlab.compare.measurements import measurements
from hvlab.lab.inventory import Lab
from hvlab.results.store import Store
from hvlab.results.summary import failures
from hvlab.statistics.looks import LOOKS

# Losses that differ by less are the same in 32 bits.
_SAME = 1e-6


@dataclass(frozen=True)
class Confirmation:
    """What the run says: in how many comparisons the new settings (B) are better, and worse.

    ``loss`` says how the loss of a training changed; empty where it did not, or there is none. ``failed`` is
    how many cases failed.
    """

    run_id: str
    better: int
    worse: int
    decisions: Decisions
    loss: str = ""
    failed: int = 0

    @property
    def cut_off(self) -> bool:
        """Return whether time ended before there were enough repeats for a verdict."""
        return not (self.failed or self.worse) and self.decisions.count("too_few") > 0

    @property
    def holds(self) -> bool:
        """Return whether the new settings may replace today's."""
        return self.better > 0 and not (self.worse or self.loss or self.failed or self.cut_off)


def confirm(
    spec: Spec, lab: Lab, store: Store, today: SettingsFile, best: SettingsFile, *, seconds: int
) -> Confirmation:
    """Measure both settings in turn, with as many repeats as it takes within ``seconds``.

    The caller is ``measuring`` the lab into ``store``.
    """
    chosen = {A: today.parameters, B: best.parameters}
    both = replace(
        spec,
        blocks=sides.sided(spec.blocks, chosen, lab),
        sides=sides.values(chosen, spec.blocks),
        auto=True,
        repeats=LOOKS[-1].repeats,
        time_limit=seconds,
    )
    run_id = measure(Schedule.of(both, lab), store, locked=True)
    records = store.records(run_id)
    _, stored = store.spec(run_id)
    decisions = decide(measurements(store.run(run_id), records), stored)
    return Confirmation(
        run_id,
        decisions.count("slower"),  # A is slower
        decisions.count("faster"),
        decisions,
        loss(decisions),
        len(failures(records)),
    )


def loss(decisions: Decisions) -> str:
    """Return how the loss of a training changed; empty where it stayed within the spread of repeats.

    Both sides train from the same seed in each repeat, so the change is that of the median repeat; the
    spread is that of today's repeats, each from a seed of its own.
    """
    for each in decisions.rows:
        today, best = (decisions.run.configurations[side].values.get("loss", {}) for side in (each.a, each.b))
        if change := changed(today, best):
            return change
    return ""


def changed(today: Mapping[int, float], best: Mapping[int, float]) -> str:
    """Return how the second of two losses differs from the first; empty where it does not."""
    both = sorted(today.keys() & best.keys())
    if not both:
        return "there is no loss with the new settings" if today else ""
    moved = statistics.median(abs(best[number] - today[number]) for number in both)
    spread = max(today.values()) - min(today.values())
    allowed = max(spread, _SAME * max(map(abs, today.values())))
    if moved <= allowed:
        return ""
    return f"the loss moved by {moved:.3g}, and today's repeats lie within {spread:.3g}"
