"""The search: settings are proposed, and raced against today's in rounds. Pure.

Two ways propose: Optuna's TPE, and coordinate descent. A round measures each setting still in the race once,
in turn with today's; the ratio to today's of the same round counts. A setting that is clearly worse than the
best leaves the race.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial

from hvlab.base.errors import CheckError
from hvlab.searches.tune.space import Candidate, Space

optuna.logging.set_verbosity(optuna.logging.WARNING)
# Random trials before the model takes over; failed proposals before the search counts as exhausted.
_RANDOM, _ASKED = 8, 30


class Tpe:
    """Optuna's tree-structured Parzen estimator; its values are logarithms of times over today's."""

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
        self.study.add_trial(freeze(self.start, 0.0, self.distributions))
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
        """Take results, including those proposed by others."""
        for candidate, value in results.items():
            self.known[candidate] = value
            if trial := self.asked.pop(candidate, None):
                self.study.tell(trial, value)
            else:
                self.study.add_trial(freeze(candidate, value, self.distributions))


class Coordinate:
    """One parameter after another: each of its values, with the best so far of the others."""

    def __init__(self, space: Space, *, seed: int) -> None:
        self.space = space
        self.order = list(range(len(space.parameters)))
        self.next = seed % len(self.order)
        self.best, self.value = space.start, 0.0
        self.known: dict[Candidate, float] = {space.start: 0.0}
        self.unchanged = 0
        self.asked: list[Candidate] = []

    def ask(self, most: int) -> list[Candidate]:
        """Return the untried values of the next parameter; none if no parameter helps."""
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
        """Take the results; the best of them is where the next parameter starts."""
        self.known |= results
        better = min(results, key=lambda candidate: results[candidate], default=self.best)
        if results and results[better] < self.value:
            self.best, self.value = better, results[better]
            self.unchanged = 0


SEARCHES: Mapping[str, Callable[..., Tpe | Coordinate]] = {"tpe": Tpe, "coordinate": Coordinate}


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Describe a space to Optuna; a value is its index in the list of values."""
    return {
        item.name: IntDistribution(0, len(item.values) - 1)
        if item.ordered
        else CategoricalDistribution(tuple(range(len(item.values))))
        for item in space.parameters
    }


def freeze(candidate: Candidate, value: float, known: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """Return a candidate with its value in Optuna's form."""
    params = dict(zip(known, candidate, strict=True))
    return optuna.trial.create_trial(params=params, distributions=dict(known), value=value)


# Settings of a race, and its rounds; the winners of all races meet once more.
_SETTINGS, _ROUNDS = 6, 3
_LAST, _LAST_ROUNDS = 3, 3
# A setting leaves the race when it is this many standard errors worse than the best.
_WORSE = 2.5
# The first guess of a measurement's spread, as a logarithm, and its minimum.
_SPREAD, _LEAST_SPREAD = 0.1, 0.01
# Weight of that first guess, in degrees of freedom.
_GUESSED = 3
# Failures count as a hundred times as long.
_FAILED = math.log(100)

# Measures each once, in turn; returns the logarithm of each time, None for failures.
Measure = Callable[[Sequence[Candidate]], Sequence[float | None]]
Left = Callable[[], bool]
# Whether there is time for a number of launches and the proof afterwards.
Fits = Callable[[int], bool]


@dataclass
class Board:
    """Measurements of each candidate: logarithms of its time over today's, one for each round."""

    values: dict[Candidate, list[float]] = field(default_factory=dict)
    failed: set[Candidate] = field(default_factory=set)
    rounds: int = 0
    launches: int = 0

    def mean(self, candidate: Candidate) -> float:
        """Return the time of a candidate over that of today's settings."""
        return _FAILED if candidate in self.failed else statistics.fmean(self.values[candidate])

    @property
    def spread(self) -> float:
        """Standard deviation of a single value, from all repeats and a first guess."""
        squares = _GUESSED * _SPREAD**2
        freedom = float(_GUESSED)
        for values in self.values.values():
            if len(values) > 1:
                squares += statistics.variance(values) * (len(values) - 1)
                freedom += len(values) - 1
        return max(_LEAST_SPREAD, math.sqrt(squares / freedom))

    def error(self, candidate: Candidate) -> float:
        """Return the standard error of a candidate's mean."""
        return self.spread / math.sqrt(len(self.values[candidate]))

    def best(self, among: Iterable[Candidate] | None = None) -> Candidate | None:
        """Return the best of the candidates that have run."""
        ran = [one for one in (self.values if among is None else among) if self.values.get(one)]
        return min((one for one in ran if one not in self.failed), key=self.mean, default=None)

    def worse(self, candidate: Candidate, best: Candidate) -> bool:
        """Whether a candidate is clearly worse than the best."""
        if candidate in self.failed:
            return True
        gap = self.mean(candidate) - self.mean(best)
        return gap > _WORSE * math.hypot(self.error(candidate), self.error(best))


@dataclass(frozen=True)
class SearchResult:
    """The end of a search. ``best`` is None if nothing was better than today's settings."""

    best: Candidate | None
    board: Board
    exhausted: bool


def search(
    space: Space,
    measure: Measure,
    left: Left,
    *,
    kind: str = "tpe",
    seed: int = 0,
    first: Sequence[Candidate] = (),
    fits: Fits = lambda _: True,
    note: Callable[[str], None] = lambda _: None,
) -> SearchResult:
    """Return the best candidate, after rounds for as long as ``left`` allows.

    The candidates of ``first`` join the first race. The last race has as many rounds as ``fits`` allows; if
    none, the figures of the other races choose. Raises CheckError if today's settings fail in the first
    round, or twice.
    """
    board = Board()
    proposals = SEARCHES[kind](space, seed=seed)
    exhausted = False
    given = [one for one in first if one != space.start]
    while left():
        proposed = proposals.ask(_SETTINGS - len(given))
        asked, given = [*given, *(one for one in proposed if one not in given)], []
        if not asked:
            exhausted = True
            break
        # Against themselves, today's settings would win by noise, unprovably.
        same = dict.fromkeys((one for one in asked if space.as_today(one)), 0.0)
        asked = [one for one in asked if one not in same]
        if asked:
            _race(asked, space, measure, left, board, rounds=_ROUNDS)
            note(_standing(space, board))
        ran = (one for one in asked if one in board.values or one in board.failed)
        proposals.tell(same | {one: board.mean(one) for one in ran})
    last = sorted(
        (one for one in board.values if one not in board.failed and board.mean(one) < 0), key=board.mean
    )
    # The best of many noisy figures is too good: these are measured once more.
    again = Board(rounds=board.rounds, launches=board.launches)
    meet = last[:_LAST]
    for rounds in range(_LAST_ROUNDS, 0, -1):
        if fits(rounds * (1 + len(meet))):
            _race(meet, space, measure, lambda: True, again, rounds=rounds)
            break
    board.rounds, board.launches = again.rounds, again.launches
    decides = again if again.values or again.failed else board
    best = decides.best()
    gain = 0.0 if best is None else decides.mean(best)
    for candidate, values in again.values.items():
        board.values[candidate] = [*board.values[candidate], *values]
    board.failed |= again.failed
    return SearchResult(best if best is not None and gain < 0 else None, board, exhausted)


def _race(
    asked: Sequence[Candidate], space: Space, measure: Measure, left: Left, board: Board, *, rounds: int
) -> None:
    running = list(asked)
    for number in range(rounds):
        if not running or (number and not left()):
            return
        today, values = _measure([space.start, *running], measure, board)
        for candidate, value in zip(running, values, strict=True):
            if value is None:
                board.failed.add(candidate)
            else:
                board.values.setdefault(candidate, []).append(value - today)
        best = board.best()
        running = [one for one in running if one not in board.failed]
        if best is not None:
            running = [one for one in running if one == best or not board.worse(one, best)]


def _measure(
    batch: Sequence[Candidate], measure: Measure, board: Board
) -> tuple[float, Sequence[float | None]]:
    for _ in range(2 if board.rounds else 1):
        today, *values = measure(batch)
        board.rounds += 1
        board.launches += len(batch)
        if today is not None:
            return today, values
    raise CheckError(
        "today's settings fail, so nothing can be compared with them",
        remedy="See the failed cases above; `hvlab bench` with the same options shows why. When it is "
        "repaired, --restart begins a new search.",
    )


def _standing(space: Space, board: Board) -> str:
    best = board.best()
    tried = len(board.values.keys() | board.failed)
    if best is None:
        return f"{tried} settings tried: none of them runs"
    text = f"{tried} setting{'s' * (tried != 1)} tried (rounds: {board.rounds})"
    if board.mean(best) >= 0:
        return f"{text}; none of them faster than today's"
    percent = -100 * math.expm1(board.mean(best))
    return f"{text}; best so far, in {percent:.1f} % less time: {space.words(best)}"
