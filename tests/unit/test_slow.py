"""`hvlab find-slow`: the search, on labs that exist only here."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_find_slow import NOISES, UNLIKE, SimulatedLab, named
from hvlab.base.errors import CheckError, UsageError
from hvlab.searches.slow import advice, steps, trials
from hvlab.searches.slow import suspects as suspects_module
from hvlab.searches.slow.search import LOOKS, search
from hvlab.searches.slow.steps import ProbeStep, slowness
from hvlab.searches.slow.suspects import Suspect, far_groups, relative, suspects, uplinks
from hvlab.searches.slow.trials import TrialOutcome, judge

DATA = Path(__file__).resolve().parents[1] / "data"
UP, DOWN, HOST, PAIR = (
    ("up", (2, 2)),
    ("down", (3, 3)),
    ("host", (1, 1)),
    ("pair", (0, 3)),
)


def seeded(seed):
    return random.Random(seed)  # noqa: S311 - an order, and noise


class Links:
    """Measures steps where each thing in ``slow`` takes that many times as long, with noise of 3 %.

    Links in ``shared`` are slow while others send; hosts in racks of ``rack`` share an uplink of one link.
    The last ``far`` hosts are behind an uplink of half a link.
    """

    def __init__(self, count, slow=(), *, noise=0.03, shared=(), rack=0, far=0):
        self.count, self.slow, self.noise, self.shared = count, dict(slow), noise, set(shared)
        self.draw = seeded(1)
        self.launches, self.rack, self.near = [], rack, count - far

    def __call__(self, planned):
        self.launches.append(planned)
        return [{cell: self.rate(cell, step) for cell in step.cells(self.count)} for step in planned]

    def rate(self, cell, step):
        one, other = cell
        names = (
            [("copy" if other == steps.DEVICES else "host", cell)]
            if other in (one, steps.DEVICES)
            else [("up", (one, one)), ("down", (other, other)), ("pair", cell)]
        )
        slowest = max(self.slow.get(name, 1.0) for name in names)
        if cell in self.shared and not step.transfers:
            slowest = 4.0
        if other == steps.DEVICES:
            return 1e6 / slowest * math.exp(self.draw.gauss(0, self.noise))
        if self.rack and one // self.rack != other // self.rack:
            leaving = [a for a, b in step.cells(self.count) if a // self.rack != b // self.rack]
            slowest = max(slowest, sum(a // self.rack == one // self.rack for a in leaving))
        if (one < self.near) != (other < self.near):
            crossing = [
                a < self.near for a, b in step.cells(self.count) if (a < self.near) != (b < self.near)
            ]
            slowest = max(slowest, 2.0 * crossing.count(one < self.near))
        return 1e6 / slowest * math.exp(self.draw.gauss(0, self.noise))


def found(result):
    return {(each.suspect.kind, each.suspect.cell) for each in result.of("slow")}


def test_the_first_launch_holds_every_link_in_groups_of_all_hosts():
    planned = steps.plan_all_hosts(5, seeded(0))
    cells = Counter(cell for step in planned for cell in step.cells(5))
    assert {cell: n for cell, n in cells.items() if cell[0] != cell[1]} == dict.fromkeys(
        itertools.permutations(range(5), 2), steps.SWEEPS
    )
    for step in planned:
        assert len(step.cells(5)) == 5  # each host sends to one, and receives from one
    assert steps.rounds(planned) == 4 * steps.SWEEPS


@pytest.mark.parametrize("count", [3, 4, 16])
@pytest.mark.parametrize("fault", [UP, DOWN, HOST, PAIR], ids=lambda fault: fault[0])
def test_what_is_slow_is_found_and_nothing_else(count, fault):
    kind, (one, other) = fault
    fault = (kind, (one % count, other % count if kind != "pair" else 2))
    result = search(count, Links(count, {fault: 2.0}), seed=1)
    assert found(result) == {fault}
    assert 2 <= result.launches <= 1 + LOOKS
    slow = result.of("slow")[0]
    assert slow.slower.low < 2.05
    assert slow.slower.high > 1.95


def test_what_differs_by_chance_is_measured_once_for_all_links(monkeypatch):
    """Once for each link, it made a search among 100 hosts 50 times as long, and one among 256 endless."""
    measured = []
    deviation = suspects_module._deviation
    monkeypatch.setattr(suspects_module, "_deviation", lambda each: measured.append(1) or deviation(each))
    search(16, Links(16), seed=1)
    assert len(measured) < 16


@pytest.mark.parametrize("seed", range(3))
def test_one_wrong_reading_hides_no_slow_pair(seed):
    lab = Links(4, {PAIR: 4.0})
    spoilt = []

    def measure(planned):
        readings = lab(planned)
        for step, rates in zip(planned, readings, strict=True):
            if not spoilt and not step.transfers and PAIR[1] in rates:
                rates[PAIR[1]] = 1e6
                spoilt.append(step)
        return readings

    assert found(search(4, measure, seed=seed)) == {PAIR}


def test_several_at_once():
    slow = {("up", (4, 4)): 4.0, ("down", (4, 4)): 3.0, ("pair", (7, 2)): 2.0, ("host", (9, 9)): 2.0}
    assert found(search(12, Links(12, slow), seed=1)) == set(slow)


def test_healthy_hosts_take_one_launch():
    result = search(16, Links(16), seed=1)
    assert (result.judgements, result.launches, result.rounds, result.pair_launches) == (
        (),
        1,
        15 * steps.SWEEPS,
        120,
    )


def test_less_than_the_ratio_is_not_slow():
    assert not found(search(8, Links(8, {UP: 1.1, HOST: 1.1}), seed=1))


def test_what_is_slow_only_beside_others_is_no_slow_link():
    """Two pairs that disturb each other while all send: each is fine when it is alone."""
    result = search(8, Links(8, shared={(0, 6), (6, 1)}), seed=1)
    assert result.launches == 2
    assert not result.of("slow")
    assert len(result.of("fine")) == 2


@pytest.mark.parametrize("slow", [{}, {UP: 2.0}, {PAIR: 2.0}], ids=["nothing", "up", "pair"])
def test_an_uplink_that_racks_share_hides_nothing(slow):
    result = search(16, Links(16, slow, rack=4), seed=1)
    assert result.together > 8
    # That of the links alone, each of which is said to take that many times as long.
    assert result.median_rate == pytest.approx(1e6, rel=0.02)
    assert found(result) == set(slow)
    assert "(0, 1, 2, 3 | 4," in advice.explain_shared_links(result, [str(host) for host in range(16)])


@pytest.mark.parametrize("seed", range(3))
def test_the_slow_uplink_of_one_rack_is_named_and_the_hosts_behind_it(seed):
    fault = ("out", (4, 5, 6, 7))
    lab = SimulatedLab(16, NOISES["quiet"], [fault], 2.0, np.random.default_rng(seed))
    result = search(16, lab, seed=seed)
    assert named(result) == [fault]
    row = advice.as_json(result, [f"n{host}" for host in range(16)], {})["slow"][0]
    assert row["hosts"] == ["n4", "n5", "n6", "n7"]
    assert row["times_as_long"]["median"] == pytest.approx(2, rel=0.2)
    title = advice.describe(result.of("slow")[0], [f"n{host}" for host in range(16)]).title
    assert title == "n4, n5, n6, n7 share a slow uplink, sending to the others at once"


@pytest.mark.parametrize("launch", json.loads((DATA / "slow_uplinks.json").read_text()))
def test_an_uplink_among_links_that_vary(launch):
    """Gloo between 16 namespaces of two busy cores: links that are alike differ by up to three times."""
    slow = {
        (one, other): slowness(rate)
        for one, row in enumerate(launch["mbyte_s"])
        for other, rate in enumerate(row)
        if one != other
    }
    groups = {(each.kind, each.members) for each in uplinks(slow, 16, ratio=1.2)}
    assert ("out", tuple(launch["behind"])) in groups


def test_two_hosts_that_send_slowly_are_no_uplink():
    links = Links(16, {("up", (3, 3)): 2.0, ("up", (9, 9)): 2.0})
    assert found(search(16, links, seed=1)) == {("up", (3, 3)), ("up", (9, 9))}


def test_two_hosts_cannot_be_told_apart():
    with pytest.raises(UsageError, match="2 are too few"):
        search(2, Links(2))


def test_a_link_that_carries_nothing():
    result = search(4, Links(4, {PAIR: math.inf}), seed=1)
    assert found(result) == {PAIR}
    names = ["n1", "n2", "n3", "n4"]
    place = advice.describe(result.of("slow")[0], names)
    assert place.observed.startswith("nothing arrived, beside ")
    assert "times" not in place.observed.split(";")[0]
    assert "firewall" in place.remedy
    content = advice.as_json(result, names, {})
    assert content["slow"][0]["times_as_long"] is None
    assert content["links_times_median"][0][3] is None


def test_a_host_that_nothing_reaches():
    result = search(4, Links(4, {("down", (2, 2)): math.inf}), seed=1)
    assert found(result) == {("down", (2, 2))}


def test_where_most_links_carry_nothing_none_is_slow_beside_the_others():
    dead = {("down", (place, place)): math.inf for place in range(4)}
    with pytest.raises(CheckError, match="no data arrived in 36 of 36 transfers") as caught:
        search(4, Links(4, dead), seed=1)
    assert "lab_interface" in caught.value.remedy


@pytest.mark.parametrize(
    "slow",
    [{}, {("up", (2, 2)): 4.0}, {("down", (14, 14)): 4.0}, {("pair", (13, 15)): 2.0}],
    ids=["nothing", "up", "down", "pair"],
)
def test_a_host_behind_a_narrow_uplink_is_not_slow(slow):
    """Racks of 12 and 4: most links of the four cross, but the uplink is slow and not the hosts."""
    result = search(16, Links(16, slow, far=4), seed=1)
    assert result.groups == (tuple(range(12)), tuple(range(12, 16)))
    assert found(result) == set(slow)
    assert not result.untried
    names = [f"n{place}" for place in range(16)]
    assert "n11 | n12, n13, n14, n15\n  observed: a link between them takes " in advice.describe_far_groups(
        result, names
    )
    content = advice.as_json(result, names, {})
    assert content["far_groups"] == [names[:12], names[12:]]
    assert content["far_groups_times"] == pytest.approx(2, rel=0.05)


def test_a_host_that_is_near_to_all_joins_no_groups():
    far = {1.0: [(a, b) for a in range(4) for b in range(4, 8) if a != 0]}
    pairs = dict.fromkeys(itertools.permutations(range(8), 2), 0.0)
    pairs |= {cell: size for size, cells in far.items() for a, b in cells for cell in ((a, b), (b, a))}
    groups = far_groups(pairs, 8, least=0.1)
    assert {frozenset(group) - {0} for group in groups} == {frozenset({1, 2, 3}), frozenset({4, 5, 6, 7})}
    assert not far_groups(dict.fromkeys(pairs, 0.0), 8, least=0.1)


def test_suspects_that_were_not_tried_are_counted():
    """A pair waits for its slow end; eight suspects are tried at a time, and the rest is left."""
    waits = search(8, Links(8, {UP: 3.0, ("pair", (2, 5)): 30.0}), seed=1)
    assert (found(waits), waits.untried) == ({UP}, 1)
    assert "fix what is slow" in advice.explain_untried(waits)
    many = {(place, (place + 3 + place % 5) % 30) for place in range(26)}
    left = search(30, Links(30, shared=many), seed=1)
    assert (found(left), left.untried, left.launches) == (set(), 2, 4)
    assert "for fewer hosts" in advice.explain_untried(left)
    assert advice.conclude(left) == "nothing is known to be slow"
    assert advice.conclude(search(4, Links(4), seed=1)) == "nothing is slow"
    hidden = search(28, Links(28, far=7), seed=1)
    assert (found(hidden), hidden.launches) == ({("out", (21, 21)), ("in", (21, 21))}, 2)
    assert hidden.untried > 8
    far = search(16, Links(16, far=4), seed=1)
    assert advice.conclude(far) == "within these groups, nothing is slow"


def test_what_the_trials_do_not_confirm_is_told_by_kind():
    fine = [
        judge(Suspect(kind, cell, 1.0), [TrialOutcome(0.0, (0.0,) * 3)] * 6, ratio=1.2, level=1e-3)
        for kind, cell in (UP, HOST)
    ]
    result = replace(search(4, Links(4), seed=1), judgements=tuple(fine))
    assert advice.list_unconfirmed(result, ["n1", "n2", "n3", "n4"]) == [
        "slow in the first launch, but not when measured again: n2 computes slowly",
        "slow only while all hosts were at work, not alone: n3 sends slowly, to every host",
    ]


def test_simulated_pairs_differ_as_hosts_do():
    lab = SimulatedLab(16, NOISES["quiet"], [], 2.0, np.random.default_rng(1))
    assert np.log(lab.pairs).std() == pytest.approx(UNLIKE, rel=0.2)
    assert NOISES["far-rack"].groups(8) == {(0, 1, 2, 3), (4, 5, 6, 7)}


def test_what_an_end_explains_is_not_the_pairs():
    """Both ends are slow: their pair is as slow as the slower of them, and no suspect."""
    given = Links(6, {UP: 4.0, DOWN: 4.0}, noise=0.01)
    planned = steps.plan_all_hosts(6, seeded(0))
    pointed_at = suspects(relative(planned, given(planned)), 6, ratio=1.2)
    assert {(each.kind, each.cell) for each in pointed_at} == {UP, DOWN}


def test_trials_are_alone_and_their_controls_clean():
    given = [Suspect("up", (0, 0), 1.0), Suspect("down", (1, 1), 1.0), Suspect("host", (2, 2), 1.0)]
    planned, chosen = trials.plan(given, given, 8, seeded(0))
    assert {len(step.transfers) for step in planned} == {0, 1}
    assert len(chosen) == 3 * trials.TRIALS
    for trial in chosen:
        (own,) = trial.own[1]
        assert own in planned[trial.own[0]].cells(8)
        assert len({cell for _, cell in (trial.own, *trial.controls)}) == 1 + trials.CONTROLS
        for step, (cell,) in trial.controls:
            assert cell in planned[step].cells(8)
            assert not any(suspect.holds(cell) for suspect in given)
            assert trial.suspect.kind == "host" or set(cell) & set(own)
        assert trial.suspect.kind == "host" or sum(suspect.holds(own) for suspect in given) == 1


@pytest.mark.parametrize(("wins", "chance"), [(8, 4**-8), (7, 25 * 4**-8), (0, 1.0)])
def test_the_chance_is_that_of_the_slowest_of_four(wins, chance):
    outcomes = [TrialOutcome(1.0, (0.0, 0.0, 0.0))] * wins + [TrialOutcome(0.1, (0.0,) * 3)] * (8 - wins)
    judgement = judge(Suspect("up", (0, 0), 1.0), outcomes, ratio=1.2, level=1e-3)
    assert judgement.wins == wins
    assert judgement.chance == pytest.approx(chance)
    assert judgement.state == ("slow" if wins >= 7 else "fine")


def test_the_words_say_where_what_and_beside_what():
    result = search(4, Links(4, {UP: 2.0, HOST: 2.0}), seed=1)
    names = ["n1", "n2", "n3", "n4"]
    shares = {0: [0.5], 1: [0.25], 2: [0.5], 3: [0.5]}
    places = {each.suspect.kind: advice.describe(each, names, shares) for each in result.of("slow")}
    assert places["up"].title == "n3 sends slowly, to every host"
    assert "kB/s beside" in places["up"].observed
    assert places["host"].title == "n2 computes slowly"
    assert "50% of the processor time" in places["host"].observed
    assert "steal" in places["host"].remedy
    content = advice.as_json(result, names, shares)
    assert {row["host"] for row in content["slow"]} == {"n2", "n3"}
    assert content["links_times_median"][2][0] == pytest.approx(2, rel=0.2)
    assert content["links_times_median"][0][0] is None


def test_slow_copies_are_told_unless_the_host_is_slow():
    for fault in (("copy", (1, steps.DEVICES)), HOST):
        result = search(4, Links(4, {fault: 3.0, ("copy", (1, steps.DEVICES)): 3.0}), copies=True, seed=1)
        assert found(result) == {fault}
    title = advice.describe(result.of("slow")[0], ["n1", "n2", "n3", "n4"]).title
    assert title == "n2 computes slowly"


def test_a_step_travels_as_json():
    assert ProbeStep(3).content() == {"shift": 3}
    assert ProbeStep(transfers=((1, 2),)).content() == {"transfers": ((1, 2),)}
    assert ProbeStep(copies=True).content() == {"copies": True}
    assert not ProbeStep().moves
