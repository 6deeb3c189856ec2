"""Two ways to propose settings: Optuna's TPE, and coordinate descent. Pure."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Protocol

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial

from hvlab.searches.tune.space import Candidate, Space

optuna.logging.set_verbosity(optuna.logging.WARNING)
# Random trials before the model takes over; failed proposals before the search counts as exhausted.
_RANDOM, _ASKED = 8, 30


class Proposals(Protocol):
    """What proposes settings; ``tell`` is how much longer one took than today's settings, as a logarithm."""

    def ask(self, most: int) -> list[Candidate]:
        """Return new candidates, none where there is nothing more to try."""
        ...

    def tell(self, results: Mapping[Candidate, float]) -> None:
        """Take the results of what was asked."""
        ...


class Tpe:
    """The tree-structured Parzen estimator of Optuna."""

    def __init__(self, space: Space, *, seed: int) -> None:
        self.distributions = distributions(space)
        self.start = space.start
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=_RANDOM, multivariate=True, constant_liar=True
            )
        self.study = optuna.create_study(sampler=sampler)
        self.known: dict[Candidate, float] = {}
        self.asked: dict[Candidate, optuna.Trial] = {}
        self.study.add_trial(frozen(self.start, 0.0, self.distributions))
        self.known[self.start] = 0.0

    def ask(self, most: int) -> list[Candidate]:
        """Return new candidates."""
        for _ in range(_ASKED):
            if len(self.asked) >= most:
                break
            trial = self.study.ask(self.distributions)
            candidate = tuple(trial.params[name] for name in self.distributions)
            if candidate in self.known:
                self.study.tell(trial, self.known[candidate])
            elif candidate in self.asked:
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                self.asked[candidate] = trial
        return list(self.asked)

    def tell(self, results: Mapping[Candidate, float]) -> None:
        """Take results, also of what others proposed."""
        for candidate, value in results.items():
            self.known[candidate] = value
            if trial := self.asked.pop(candidate, None):
                self.study.tell(trial, value)
            else:
                self.study.add_trial(frozen(candidate, value, self.distributions))


class Coordinate:
    """One parameter after another: each of its values, with the best so far of the others."""

    def __init__(self, space: Space, *, seed: int) -> None:
        self.space = space
        self.order = list(range(len(space.parameters)))
        # Which comes first is arbitrary.
        self.next = seed % len(self.order)
        self.best, self.value = space.start, 0.0
        self.known: dict[Candidate, float] = {space.start: 0.0}
        self.unchanged = 0
        self.asked: list[Candidate] = []

    def ask(self, most: int) -> list[Candidate]:
        """Return the values of the next parameter that were not tried; none where no parameter helps."""
        while self.unchanged < len(self.order):
            place = self.order[self.next]
            values = range(len(self.space.parameters[place].values))
            row = [(*self.best[:place], value, *self.best[place + 1 :]) for value in values]
            self.asked = [candidate for candidate in row if candidate not in self.known][:most]
            if self.asked:
                return self.asked
            self.next = (self.next + 1) % len(self.order)
            self.unchanged += 1
        return []

    def tell(self, results: Mapping[Candidate, float]) -> None:
        """Take the results of what was asked; the best of them is where the next parameter starts."""
        self.known |= results
        better = min(results, key=lambda candidate: results[candidate], default=self.best)
        if results and results[better] < self.value:
            self.best, self.value = better, results[better]
            self.unchanged = 0


SEARCHES: Mapping[str, Callable[..., Proposals]] = {"tpe": Tpe, "coordinate": Coordinate}


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return what Optuna has to know of a space; a value is its place in the list of values."""
    return {
        item.name: IntDistribution(0, len(item.values) - 1)
        if item.ordered
        else CategoricalDistribution(tuple(range(len(item.values))))
        for item in space.parameters
    }


def frozen(candidate: Candidate, value: float, known: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """Return a candidate with its value as Optuna keeps it."""
    params = dict(zip(known, candidate, strict=True))
    return optuna.trial.create_trial(params=params, distributions=dict(known), value=value)
