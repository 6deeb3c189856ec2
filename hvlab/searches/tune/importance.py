"""Which setting mattered: PED-ANOVA over what was tried, with intervals by bootstrap. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from hvlab.searches.tune.proposals import distributions, frozen
from hvlab.searches.tune.search import Board
from hvlab.searches.tune.space import Candidate, Space
from hvlab.statistics.interval import Interval

# With fewer settings, a share says nothing.
FEWEST = 12
_DRAWS = 40
# The best of what was tried: its settings are held against all.
_BEST = 0.2


def importance(space: Space, board: Board, *, seed: int = 0) -> dict[str, Interval]:
    """Return for each parameter its share in what sets the best apart, the largest first.

    The interval is that of the middle 95 % of bootstrap samples of the settings. Empty where too few were
    tried, or none differ.
    """
    values = {one: board.mean(one) for one in board.values if one not in board.failed}
    if len(values) < FEWEST or len(set(values.values())) == 1:
        return {}
    draw = random.Random(seed)  # noqa: S311 - samples of figures
    names = list(values)
    shares: dict[str, list[float]] = {item.name: [] for item in space.parameters}
    for _ in range(_DRAWS):
        chosen = draw.choices(names, k=len(names))
        for name, share in _shares(space, chosen, values).items():
            shares[name].append(share)
    middle = {
        name: Interval(_at(drawn, 0.025), statistics.median(drawn), _at(drawn, 0.975))
        for name, drawn in shares.items()
        if drawn
    }
    return dict(sorted(middle.items(), key=lambda item: -item[1].mid))


def _shares(space: Space, chosen: list[Candidate], values: Mapping[Candidate, float]) -> dict[str, float]:
    known = distributions(space)
    study = optuna.create_study()
    study.add_trials([frozen(one, values[one], known) for one in chosen])
    evaluator = PedAnovaImportanceEvaluator(target_quantile=_BEST)
    try:
        return get_param_importances(study, evaluator=evaluator)
    except (RuntimeError, ValueError):  # a sample without any difference
        return {}


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[round(share * (len(ordered) - 1))]
