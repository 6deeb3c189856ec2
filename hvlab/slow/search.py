"""The search: all hosts at once, then each suspect alone, until every one is decided. Pure."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hvlab.errors import UsageError
from hvlab.slow import steps, suspects, trials
from hvlab.slow.judge import Judgement, judge
from hvlab.slow.steps import Cell, ProbeStep, Rates
from hvlab.slow.suspects import MOST
from hvlab.slow.trials import TrialOutcome

ALPHA = 0.01
RATIO = 1.2
LOOKS = 3
# So many hosts have 552 links, and one after another they take two minutes.
MOST_ALONE = 24
FEWEST = 3

Measure = Callable[[Sequence[ProbeStep]], Sequence[Rates]]


@dataclass(frozen=True)
class SlowSearch:
    """What a search says of ``hosts`` hosts.

    ``judgements`` has each suspect, hosts and ends first, without pairs that a slow end may explain;
    ``untried`` counts suspects beyond those. ``together`` counts the links that were suspects while all hosts
    sent at once, where those were too many, and each link was then measured alone. ``launches`` and
    ``rounds`` (steps that move data) are what it took; ``pair_launches`` is what every pair in a launch of
    its own takes. ``links`` is how many times as long each link takes as the median link, ``computing`` the
    same of each host. ``median_rate`` is that of the links, in bytes per second.
    """

    hosts: int
    judgements: tuple[Judgement, ...]
    untried: int
    together: int
    launches: int
    rounds: int
    links: Mapping[Cell, float]
    computing: tuple[float, ...]
    median_rate: float

    @property
    def pair_launches(self) -> int:
        """Return how many launches measure each pair of hosts once."""
        return self.hosts * (self.hosts - 1) // 2

    def of(self, state: str) -> list[Judgement]:
        """Return the judgements of one kind."""
        return [judgement for judgement in self.judgements if judgement.state == state]


def search(
    count: int, measure: Measure, *, ratio: float = RATIO, alpha: float = ALPHA, seed: int | None = None
) -> SlowSearch:
    """Return what is slow among ``count`` hosts: what takes ``ratio`` times as long as the others, or more.

    ``measure`` is one launch. The first launch measures everything with all hosts at once. If it points at
    more than can be tried, the hosts share what is too narrow for all, and a launch measures each link alone.
    What is suspected then is tried in further launches, at most LOOKS, each time alone beside others. If
    nothing is slower by the ratio, at most the share ``alpha`` of searches says that something is: the trials
    know nothing of the launches before, and each look at each suspect gets the same part of alpha
    (Bonferroni).

    Raises UsageError with fewer than three hosts, of which none could be told from the others.
    """
    if count < FEWEST:
        raise UsageError(
            f"find-slow compares hosts with one another, and {count} are too few",
            remedy=f"choose {FEWEST} hosts or more; `hvlab bench --hosts pairs` measures two",
        )
    draw = random.Random(seed)  # noqa: S311 - an order of measuring
    first = steps.all_hosts(count, draw)
    readings = measure(first)
    values = suspects.relative(first, readings)
    pointed_at = suspects.suspects(values, count, ratio=ratio)
    launches, rounds, together = 1, steps.rounds(first), 0
    if len(pointed_at) > MOST and count <= MOST_ALONE:
        together = sum(suspect.kind != "host" for suspect in pointed_at)
        links = steps.each_link(count, draw)
        values |= suspects.relative_alone(measure(links))
        pointed_at = suspects.suspects(values, count, ratio=ratio)
        launches, rounds = launches + 1, rounds + steps.rounds(links)
    tried = pointed_at[:MOST]
    judgements: dict[suspects.Suspect, Judgement] = {}
    outcomes: dict[suspects.Suspect, list[TrialOutcome]] = {suspect: [] for suspect in tried}
    level = alpha / (LOOKS * max(1, len(tried)))
    for _ in range(LOOKS):
        pending = [suspect for suspect in tried if _open(suspect, tried, judgements)]
        if not pending:
            break
        planned, chosen = trials.plan(pending, tried, count, draw)
        again = measure(planned)
        launches, rounds = launches + 1, rounds + steps.rounds(planned)
        for suspect, found in trials.outcomes(chosen, again).items():
            outcomes[suspect] += found
            judgements[suspect] = judge(suspect, outcomes[suspect], ratio=ratio, level=level)
    rates = [
        rate
        for step, each in zip(first, readings, strict=True)
        if not step.computes
        for rate in each.values()
    ]
    middle = {cell: math.exp(statistics.fmean(each)) for cell, each in values.items()}
    return SlowSearch(
        hosts=count,
        judgements=tuple(judgements[suspect] for suspect in tried if suspect in judgements),
        untried=len(pointed_at) - len(tried),
        together=together,
        launches=launches,
        rounds=rounds,
        links={cell: value for cell, value in middle.items() if cell[0] != cell[1]},
        computing=tuple(middle[host, host] for host in range(count)),
        median_rate=statistics.median(rates),
    )


def _open(
    suspect: suspects.Suspect,
    tried: Sequence[suspects.Suspect],
    judgements: Mapping[suspects.Suspect, Judgement],
) -> bool:
    """Return whether a suspect is to be tried: it is not decided, and nothing else explains it.

    A slow end disturbs all that its host sends and receives meanwhile. So a pair waits until the suspected
    ends of both its hosts are fine.
    """
    if suspect in judgements and judgements[suspect].state != "open":
        return False
    ends = [end for end in tried if end.kind in ("up", "down") and end.host in suspect.cell]
    return suspect.kind != "pair" or all(
        end in judgements and judgements[end].state == "fine" for end in ends
    )
