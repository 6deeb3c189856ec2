"""The proof: the best setting and today's measured again, in turn, in a run of their own."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hvlab.analysis.compare.comparison import measurements
from hvlab.analysis.compare.decisions import Decisions, decide
from hvlab.bench import sides
from hvlab.bench.matrix import Spec
from hvlab.bench.measure import measure
from hvlab.bench.schedule import Schedule
from hvlab.bench.settings import SettingsFile
from hvlab.bench.sides import A, B
from hvlab.lab.inventory import Lab
from hvlab.results.store import Record, Store
from hvlab.results.summary import failures
from hvlab.statistics.looks import LOOKS
from hvlab.workloads import training
from hvlab.workloads.collective import COLLECTIVES

# Relative change of a loss by the order of sums alone, if all repeats have one seed.
_ROUNDING = 1e-3
# The loss of each epoch, by repeat.
Curves = Mapping[int, Sequence[float]]


@dataclass(frozen=True)
class Confirmation:
    """The result of the run: comparisons in which the new settings (B) are better, and worse.

    ``loss`` describes a change of a training's loss, if any; ``loss_checked`` is None if nothing is trained;
    ``failed`` counts failed cases.
    """

    run_id: str
    better: int
    worse: int
    decisions: Decisions
    loss: str = ""
    failed: int = 0
    loss_checked: bool | None = None

    @property
    def cut_off(self) -> bool:
        """Time ended before there were enough repeats for a verdict."""
        return not (self.failed or self.worse) and self.decisions.count("too_few") > 0

    @property
    def against(self) -> Literal["", "failed", "worse", "loss"]:
        """The reason against the new settings, if any."""
        return "failed" if self.failed else "worse" if self.worse else "loss" if self.loss else ""

    @property
    def reason(self) -> str:
        """The same in words."""
        worse = f"worse in {self.worse} comparisons, better in {self.better}"
        words = {"failed": f"{self.failed} cases of the proof failed", "worse": worse, "loss": self.loss}
        return words.get(self.against, "")

    @property
    def holds(self) -> bool:
        """The new settings may replace today's."""
        return self.better > 0 and not (self.against or self.cut_off)


def confirm(
    spec: Spec, lab: Lab, store: Store, today: SettingsFile, best: SettingsFile, *, seconds: int
) -> Confirmation:
    """Measure both settings in turn within ``seconds``; the caller locks the lab by `measuring`."""
    chosen = {A: today.parameters, B: best.parameters}
    both = replace(
        spec,
        blocks=sides.with_sides(spec.blocks, chosen, lab),
        sides=sides.values(chosen, spec.blocks),
        auto=True,
        repeats=LOOKS[-1].repeats,
        time_limit=seconds,
    )
    run_id = measure(Schedule.of(both, lab), store, locked=True)
    records = store.records(run_id)
    _, stored = store.spec(run_id)
    decisions = decide(measurements(store.run(run_id), records), stored)
    curves = {side: losses(records, side, store.folder) for side in (A, B)}
    trains = spec.blocks[0].workload not in {one.name for one in COLLECTIVES}
    return Confirmation(
        run_id,
        decisions.count("slower"),  # A is slower
        decisions.count("faster"),
        decisions,
        describe_loss_change(curves[A], curves[B]),
        len(failures(records)),
        bool(curves[A]) if trains else None,
    )


def losses(records: Iterable[Record], side: str, folder: Path) -> dict[int, tuple[float, ...]]:
    """Return the loss of each epoch on one side, by repeat; only the last if the files lack the others."""
    return {
        record.repeat: training.losses(folder / record.raw_path) or (record.value,)
        for record in records
        if record.metric == "loss" and record.value is not None and record.params.get("side") == side
    }


def describe_loss_change(today: Curves, best: Curves) -> str:
    """Describe how the second of two losses differs from the first; empty if they agree.

    Both sides train from the same seed in each repeat, so each epoch's change is that of the median repeat.
    The spread is that of today's repeats in that epoch.
    """
    both = sorted(today.keys() & best.keys())
    if not both:
        return "the new settings yield no loss" if today else ""
    epochs = min(len(curve) for curve in (*today.values(), *best.values()))
    # From the last epoch, which all curves have.
    for epoch in range(-epochs, 0):
        every = [curve[epoch] for curve in today.values()]
        moved = statistics.median(abs(best[repeat][epoch] - today[repeat][epoch]) for repeat in both)
        spread = max(every) - min(every)
        if moved > max(spread, _ROUNDING * max(map(abs, every))):
            where = f" of epoch {epochs + 1 + epoch}" if epochs > 1 else ""
            return f"the loss{where} changed by {moved:.3g}, and today's repeats are within {spread:.3g}"
    return ""
