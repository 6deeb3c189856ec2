"""What a fit, and a prediction, cannot say."""

from __future__ import annotations

from hvlab.model.costs import Cost
from hvlab.model.explanation import Explanation
from hvlab.model.sweep import Sweep
from hvlab.model.training import Training

_MANY_RANKS = 8
_WIDE_SIZES = 100
_SURE = 0.9
_GOOD = 0.25


def of_fit(
    sweep: Sweep,
    cost: Cost,
    *,
    error: float,
    check: float | None,
    share: float | None,
    start_known: bool,
    virtual: bool,
) -> tuple[Explanation, ...]:
    """Return the warnings that belong to a fit.

    ``error`` is the median relative error, ``check`` that of what was left out, ``share`` in which of the
    draws the algorithm was chosen.
    """
    found: list[Explanation] = []
    most = sweep.ranks[-1]
    span = sweep.sizes[-1] / sweep.sizes[0]
    if most < _MANY_RANKS:
        found.append(Explanation("few_hosts" if sweep.topology == "across" else "few_ranks", {"ranks": most}))
    if span < _WIDE_SIZES:
        found.append(Explanation("narrow_sizes", {"factor": span}))
    if not start_known:
        found.append(Explanation("start_or_latency"))
    elif not cost.alpha_s:
        found.append(Explanation("no_alpha"))
    if not cost.beta_s_per_byte:
        found.append(Explanation("no_beta"))
    if share is not None and share < _SURE:
        found.append(Explanation("algorithm_unsure", {"share": share}, {"algorithm": cost.algorithm}))
    if error > _GOOD:
        found.append(Explanation("poor_fit", {"error": error}))
    if check is None:
        found.append(Explanation("not_checked"))
    elif check > _GOOD:
        found.append(Explanation("poor_check", {"error": check}))
    if virtual:
        found.append(Explanation("virtual"))
    return tuple(found)


def of_prediction(
    training: Training,
    *,
    source: Training,
    size_factor: float,
    overhead_s: float,
    check: float | None,
    seen: bool,
    virtual: bool,
) -> tuple[Explanation, ...]:
    """Return the warnings that belong to a prediction.

    ``source`` holds the steps that told how much is hidden, ``size_factor`` is the bytes of a step over the
    largest size of the sweep, ``check`` the relative error of the largest step, whose
    number of ranks the sweep has ``seen`` or not.
    """
    found: list[Explanation] = []
    if training.serial_base:
        found.append(Explanation("serial_base"))
    if not source.steps:
        found.append(Explanation("hidden_unknown"))
    elif source is not training:
        found.append(Explanation("hidden_borrowed", names={"scaling": source.scaling}))
    if overhead_s:
        found.append(Explanation("overhead", {"overhead_ms": overhead_s * 1e3}))
    if size_factor > 1:
        found.append(Explanation("beyond_size", {"factor": size_factor}))
    if training.scaling == "strong" and training.get("batch"):
        found.append(Explanation("batch_limit", {"batch": training.get("batch")}))
    if seen:
        found.append(Explanation("check_seen"))
    if check is not None and check > _GOOD:
        found.append(Explanation("poor_check", {"error": check}))
    if virtual:
        found.append(Explanation("virtual"))
    return tuple(found)
