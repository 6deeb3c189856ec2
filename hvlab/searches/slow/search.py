"""The search: all hosts at once, then each suspect alone, until every one is decided. Pure."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hvlab.base.errors import CheckError, UsageError
from hvlab.searches.slow import steps, suspects, trials
from hvlab.searches.slow.steps import Cell, ProbeStep, Rates
from hvlab.searches.slow.suspects import MOST, Groups, Suspect
from hvlab.searches.slow.trials import Judgement, TrialOutcome, judge

ALPHA = 0.01
RATIO = 1.2
LOOKS = 3
# 24 hosts have 552 links; measured one at a time they take two minutes.
MOST_ALONE = 24
FEWEST = 3
_NO_DATA = (
    "open all TCP ports between the hosts on the ranks' network (firewall). Check that lab_interface names "
    "the interface to that network on each host"
)

Measure = Callable[[Sequence[ProbeStep]], Sequence[Rates]]


@dataclass(frozen=True)
class SlowSearch:
    """The outcome of a search among ``hosts`` hosts.

    ``judgements`` has each suspect, hosts and ends first, without pairs that a slow end may explain.
    ``untried`` counts the suspects without a judgement, among them slow links that do not stand out because
    links vary so much, and are too many to be measured alone. ``groups`` are hosts that are far from each
    other, by place; links between them are no suspects. ``together`` counts suspected links while all hosts
    sent at once, if there were too many or links varied too much; each link was then measured alone, and
    ``sharing`` are the groups that are slow to each other only while all send. ``rounds`` counts the steps
    that move data. ``links`` is each link's time over the median link's (infinite: nothing arrived),
    ``computing`` the same for each host. ``median_rate`` is that of the links, in bytes per second.
    """

    hosts: int
    judgements: tuple[Judgement, ...]
    untried: int
    groups: Groups
    sharing: Groups
    together: int
    launches: int
    rounds: int
    links: Mapping[Cell, float]
    computing: tuple[float, ...]
    median_rate: float

    @property
    def pair_launches(self) -> int:
        """Number of launches that measure each pair of hosts once."""
        return self.hosts * (self.hosts - 1) // 2

    def of(self, state: str) -> list[Judgement]:
        """Return the judgements of one kind."""
        return [judgement for judgement in self.judgements if judgement.state == state]


def search(
    count: int,
    measure: Measure,
    *,
    ratio: float = RATIO,
    alpha: float = ALPHA,
    copies: bool = False,
    seed: int | None = None,
) -> SlowSearch:
    """Find hosts and links among ``count`` hosts that take at least ``ratio`` times as long as the others.

    ``measure`` makes one launch; with ``copies``, devices take part and copy to and from their host. The
    first launch measures everything with all hosts at once. If it yields more suspects than can be tried, or
    links vary too much, the hosts share a bottleneck, and a launch measures each link alone; then all hosts
    at once again, as noise may hide a slow uplink. If groups of hosts are then far from each other, links
    between them are neither suspects nor controls. Suspects are tried in further launches, at most LOOKS,
    each alone beside controls. If nothing is slower by the ratio, at most the share ``alpha`` of searches
    raises a false alarm: the trials are independent of the earlier launches, and each look at each suspect
    gets the same part of alpha (Bonferroni).

    Raises UsageError with fewer than three hosts, which cannot be told apart, and CheckError
    if most links carry nothing: then there is nothing to compare with.
    """
    if count < FEWEST:
        raise UsageError(
            f"find-slow compares hosts with one another, and {count} {'is' if count == 1 else 'are'} too few",
            remedy=f"choose {FEWEST} hosts or more; `hvlab bench --hosts pairs` measures two",
        )
    draw = random.Random(seed)  # noqa: S311 - an order of measuring
    launches = _Launches(measure)
    shown = _at_once(count, launches, draw, ratio=ratio, copies=copies)
    if (len(shown.suspects) > MOST or shown.crowded) and count <= MOST_ALONE:
        shown = _analyse_each(shown, count, launches, draw, ratio=ratio)
    between = set(suspects.crossing(shown.groups))
    judgements = _judgements(shown.suspects, between, count, launches, draw=draw, ratio=ratio, alpha=alpha)
    middle = {cell: math.exp(statistics.fmean(each)) for cell, each in shown.values.items()}
    return SlowSearch(
        hosts=count,
        judgements=tuple(judgements[suspect] for suspect in shown.suspects if suspect in judgements),
        untried=max(shown.crowded, len(shown.suspects)) - len(judgements),
        groups=shown.groups,
        sharing=shown.sharing,
        together=shown.together,
        launches=launches.count,
        rounds=launches.rounds,
        links={cell: middle[cell] if max(each) > 0 else math.inf for cell, each in shown.rates.items()},
        computing=tuple(middle[host, host] for host in range(count)),
        median_rate=statistics.median(rate for each in shown.rates.values() for rate in each),
    )


@dataclass
class _Launches:
    """Makes launches with ``measure``, and counts them and their ``rounds``."""

    measure: Measure
    count: int = 0
    rounds: int = 0

    def launch(self, planned: Sequence[ProbeStep]) -> Sequence[Rates]:
        """Make one launch; return the readings of each step."""
        self.count += 1
        self.rounds += steps.rounds(planned)
        return self.measure(planned)


@dataclass(frozen=True)
class _Overview:
    """The outcome of the launches before the trials: the ``rates`` of each link, and the suspects.

    ``values`` are those of :func:`hvlab.searches.slow.suspects.relative`; ``crowded`` counts the pairs that
    do not stand out because links vary so much. ``together``, ``groups`` and ``sharing``: see
    :class:`SlowSearch`.
    """

    rates: Mapping[Cell, Sequence[float]]
    values: Mapping[Cell, Sequence[float]]
    suspects: Sequence[Suspect]
    crowded: int = 0
    together: int = 0
    groups: Groups = ()
    sharing: Groups = ()


def _at_once(
    count: int, launches: _Launches, draw: random.Random, *, ratio: float, copies: bool
) -> _Overview:
    """Analyse a launch with all hosts at once. Raises CheckError if most links carry nothing."""
    planned = steps.plan_all_hosts(count, draw, copies=copies)
    readings = launches.launch(planned)
    read = _group_by_link(planned, readings)
    rates = [rate for each in read.values() for rate in each]
    if statistics.median(rates) <= 0:
        raise CheckError(
            f"most links carry nothing: no data arrived in {rates.count(0)} of {len(rates)} transfers",
            remedy=_NO_DATA,
        )
    values = suspects.relative(planned, readings)
    pointed_at = suspects.suspects(values, count, ratio=ratio)
    crowded = suspects.count_crowded(suspects.sizes(values, count, ratio=ratio)["pair"], ratio=ratio)
    slow = {cell: steps.slowness(max(each)) for cell, each in read.items()}
    sharing = suspects.sharing_groups(slow, count, ratio=ratio)
    uplinks = suspects.uplinks(slow, count, ratio=ratio)
    return _Overview(read, values, [*uplinks, *pointed_at], crowded, sharing=sharing)


def _analyse_each(
    before: _Overview, count: int, launches: _Launches, draw: random.Random, *, ratio: float
) -> _Overview:
    """Analyse a launch that measures each link alone, and all at once again, after a shared bottleneck."""
    each = steps.plan_each_link(count, draw)
    all_hosts = [step for step in steps.plan_all_hosts(count, draw) if step.moves]
    readings = launches.launch([*each, *all_hosts])
    alone, together = readings[: len(each)], readings[len(each) :]
    values = {**before.values, **suspects.relative_alone(alone)}
    pairs = suspects.sizes(values, count, ratio=ratio)["pair"]
    far = suspects.far_groups(pairs, count, least=suspects.SHARE * math.log(ratio))
    again = _group_by_link(all_hosts, together)
    slow = {cell: steps.slowness(max(*known, *again[cell])) for cell, known in before.rates.items()}
    uplinks = [] if far else suspects.uplinks(slow, count, ratio=ratio)
    others = suspects.suspects(values, count, ratio=ratio, between=set(suspects.crossing(far)))
    return _Overview(
        _group_by_link(each, alone),
        values,
        [*uplinks, *others],
        together=max(before.crowded, sum(suspect.kind not in suspects.WORK for suspect in before.suspects)),
        groups=far,
        sharing=() if far else suspects.sharing_groups(slow, count, ratio=ratio),
    )


def _judgements(
    suspected: Sequence[Suspect],
    between: set[Cell],
    count: int,
    launches: _Launches,
    *,
    draw: random.Random,
    ratio: float,
    alpha: float,
) -> dict[Suspect, Judgement]:
    """Judge the first MOST suspects by the trials; one that is fine leaves its further looks to the next.

    A pair that a slow end may explain gets no judgement.
    """
    judgements: dict[Suspect, Judgement] = {}
    outcomes: dict[Suspect, list[TrialOutcome]] = {suspect: [] for suspect in suspected}
    level = alpha / (LOOKS * max(1, len(suspected[:MOST])))
    for _ in range(LOOKS):
        fine = sum(judgement.state == "fine" for judgement in judgements.values())
        tried = suspected[: MOST + fine]
        avoided = [*tried, *(Suspect("pair", cell, 0.0) for cell in sorted(between))]
        pending = [suspect for suspect in tried if _is_open(suspect, tried, judgements)]
        if not pending:
            break
        planned, chosen = trials.plan(pending, avoided, count, draw)
        for suspect, more in trials.outcomes(chosen, launches.launch(planned)).items():
            outcomes[suspect] += more
            judgements[suspect] = judge(suspect, outcomes[suspect], ratio=ratio, level=level)
    return judgements


def _group_by_link(planned: Sequence[ProbeStep], readings: Sequence[Rates]) -> dict[Cell, list[float]]:
    read: dict[Cell, list[float]] = {}
    for step, rates in zip(planned, readings, strict=True):
        for cell, rate in rates.items():
            if step.moves:
                read.setdefault(cell, []).append(rate)
    return read


def _is_open(suspect: Suspect, tried: Sequence[Suspect], judgements: Mapping[Suspect, Judgement]) -> bool:
    """Whether a suspect needs a trial: it is undecided, and nothing else explains it.

    A slow end disturbs everything its host sends and receives. So a pair waits until the suspected ends of
    both its hosts are cleared; copies wait until their host's computing is.
    """
    if suspect in judgements and judgements[suspect].state != "open":
        return False
    before = {"pair": ("up", "down"), "copy": ("host",)}.get(suspect.kind, ())
    others = [each for each in tried if each.kind in before and each.host in suspect.cell]
    return all(each in judgements and judgements[each].state == "fine" for each in others)
