"""What a fit or a prediction cannot tell, as warnings."""

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
    warnings: list[Explanation] = []
    most = sweep.ranks[-1]
    span = sweep.sizes[-1] / sweep.sizes[0]
    if most < _MANY_RANKS:
        warnings.append(
            Explanation("few_hosts" if sweep.topology == "across" else "few_ranks", {"ranks": most})
        )
    if span < _WIDE_SIZES:
        warnings.append(Explanation("narrow_sizes", {"factor": span}))
    if not start_known:
        warnings.append(Explanation("start_or_latency"))
    elif not cost.alpha_s:
        warnings.append(Explanation("no_alpha"))
    if not cost.beta_s_per_byte:
        warnings.append(Explanation("no_beta"))
    if share is not None and share < _SURE:
        warnings.append(Explanation("algorithm_unsure", {"share": share}, {"algorithm": cost.algorithm}))
    if error > _GOOD:
        warnings.append(Explanation("poor_fit", {"error": error}))
    if check is None:
        warnings.append(Explanation("not_checked"))
    elif check > _GOOD:
        warnings.append(Explanation("poor_check", {"error": check}))
    if virtual:
        warnings.append(Explanation("virtual"))
    return tuple(warnings)


def of_prediction(
    training: Training,
    *,
    source: Training,
    size_factor: float,
    overhead_s: float,
    check: float | None,
    ranks_in_sweep: bool,
    virtual: bool,
) -> tuple[Explanation, ...]:
    """Return the warnings that belong to a prediction.

    ``source`` holds the steps that show how much is hidden, ``size_factor`` is the bytes of a step over the
    largest size of the sweep, ``check`` the relative error of the largest step, whose
    number of ranks the sweep has ``ranks_in_sweep`` or not.
    """
    warnings: list[Explanation] = []
    if training.serial_base:
        warnings.append(Explanation("serial_base"))
    if not source.steps:
        warnings.append(Explanation("hidden_unknown"))
    elif source is not training:
        warnings.append(Explanation("hidden_borrowed", names={"scaling": source.scaling}))
    if overhead_s:
        warnings.append(Explanation("overhead", {"overhead_ms": overhead_s * 1e3}))
    if size_factor > 1:
        warnings.append(Explanation("beyond_size", {"factor": size_factor}))
    if training.scaling == "strong" and training.get("batch"):
        warnings.append(Explanation("batch_limit", {"batch": training.get("batch")}))
    if ranks_in_sweep:
        warnings.append(Explanation("check_seen"))
    if check is not None and check > _GOOD:
        warnings.append(Explanation("poor_check", {"error": check}))
    if virtual:
        warnings.append(Explanation("virtual"))
    return tuple(warnings)
