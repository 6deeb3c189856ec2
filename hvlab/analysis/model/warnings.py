"""What a fit or a prediction cannot tell, as warnings."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hvlab.analysis.model.explanation import Explanation
from hvlab.analysis.model.sweep import Sweep
from hvlab.analysis.model.training import Training

# How many numbers of ranks a prediction needs beside one: a constant, a slope, and one that checks them.
NEEDED = 3
_WIDE_SIZES = 100
# How likely an algorithm has to be to be called the one, and which relative error is too large.
SURE = 0.9
GOOD = 0.25


def of_fit(
    sweep: Sweep,
    algorithm: str,
    *,
    error: float,
    check: float | None,
    share: float,
    identifiable: AbstractSet[str],
    start_known: bool,
    virtual: bool,
) -> tuple[Explanation, ...]:
    """Return the warnings that belong to a fit.

    ``error`` is the median relative error, ``check`` that of what was left out, ``share`` how likely the
    algorithm is.
    """
    warnings: list[Explanation] = []
    span = sweep.sizes[-1] / sweep.sizes[0]
    if len(sweep.ranks) < NEEDED:
        warnings.append(Explanation("few_counts", {"points": len(sweep.ranks), "needed": NEEDED}))
    if span < _WIDE_SIZES:
        warnings.append(Explanation("narrow_sizes", {"factor": span}))
    if not start_known:
        warnings.append(Explanation("start_or_latency"))
    elif "alpha" not in identifiable:
        warnings.append(Explanation("no_alpha"))
    if "bandwidth" not in identifiable:
        warnings.append(Explanation("no_beta"))
    if share < SURE:
        warnings.append(Explanation("algorithm_unsure", {"share": share}, {"algorithm": algorithm}))
    if error > GOOD:
        warnings.append(Explanation("poor_fit", {"error": error}))
    if check is None:
        warnings.append(Explanation("not_checked"))
    elif check > GOOD:
        warnings.append(Explanation("poor_check", {"error": check}))
    if virtual:
        warnings.append(Explanation("virtual"))
    return tuple(warnings)


def of_prediction(
    training: Training, *, overhead_s: float, check: float, jitter_known: bool, virtual: bool
) -> tuple[Explanation, ...]:
    """Return the warnings that belong to a prediction; ``check`` is the relative error of the largest
    step.
    """
    warnings: list[Explanation] = []
    if training.serial_base:
        warnings.append(Explanation("serial_base"))
    if not jitter_known:
        warnings.append(Explanation("no_jitter"))
    if overhead_s > 0:
        warnings.append(Explanation("overhead", {"overhead_ms": overhead_s * 1e3}))
    if check > GOOD:
        warnings.append(Explanation("poor_check", {"error": check}))
    if virtual:
        warnings.append(Explanation("virtual"))
    return tuple(warnings)
