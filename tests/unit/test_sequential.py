"""Verdicts at several looks, and how many repeats would decide."""

import numpy as np
import pytest

from benchmarks.bench_looks import looked_at, simulate
from hvlab.statistics.interval import Interval
from hvlab.statistics.looks import LOOKS
from hvlab.statistics.sequential import compare_in_looks, is_answered, repeats_to_decide
from hvlab.statistics.verdict import Pair, Verdict, compare_all


def pair(apart, repeats, *, sigma=0.03, seed=1):
    draw = np.random.default_rng(seed)
    sides = np.exp(sigma * draw.normal(size=(2, repeats)))
    return Pair(
        {number + 1: float(value) for number, value in enumerate(sides[0])},
        {number + 1: float(value * apart) for number, value in enumerate(sides[1])},
    )


def test_the_looks_spend_one_percent_together():
    assert sum(look.alpha for look in LOOKS) == pytest.approx(0.01)


def test_a_look_judges_by_its_repeats_and_its_part_of_alpha():
    many = pair(1.02, 16)
    for look in LOOKS:
        observed = Pair(
            {n: v for n, v in many.a.items() if n <= look.repeats},
            {n: v for n, v in many.b.items() if n <= look.repeats},
        )
        (judged,) = compare_in_looks([observed])
        (alone,) = compare_all([observed], alpha=look.alpha)
        assert judged == alone


def test_a_verdict_stays_whatever_comes():
    early = pair(1.3, 6)
    assert compare_in_looks([early])[0].kind == "faster"
    # Ten more repeats that show the opposite do not take it back: they would not have been measured.
    later = pair(0.8, 16)
    both = Pair({**later.a, **early.a}, {**later.b, **early.b})
    (kept,) = compare_in_looks([both])
    assert kept.kind == "faster"
    assert kept.reason == "decided after 6 repeats each, but all repeats together do not show it"


def test_a_verdict_that_stays_has_the_ratio_of_all_repeats():
    early, later = pair(1.3, 6), pair(1.15, 16, seed=2)
    both = Pair({**later.a, **early.a}, {**later.b, **early.b})
    (kept,) = compare_in_looks([both])
    assert kept.ratio == compare_all([both])[0].ratio != compare_in_looks([early])[0].ratio
    assert kept.reason == "decided after 6 repeats each"


def test_five_repeats_are_too_few_for_a_look():
    (judged,) = compare_in_looks([pair(2, 5)])
    assert (judged.kind, judged.needed) == ("too_few", 6)


def test_what_was_not_repeated_keeps_its_verdict():
    narrow, wide = pair(1.0, 6, sigma=0.001), pair(1.05, 10, sigma=0.05)
    first, second = compare_in_looks([narrow, wide])
    assert first.kind == "same"
    assert first.reason.startswith("6 repeats")
    assert second.reason.startswith("10 repeats")


@pytest.mark.parametrize(
    ("kind", "low", "high", "end"),
    [
        ("faster", 0.5, 0.6, True),
        ("same", 0.99, 1.01, True),
        ("unclear", 0.96, 1.04, True),
        ("unclear", 0.93, 1.01, False),
        ("too_few", 0.5, 2.0, False),
        ("too_few", 0.99, 1.01, False),
    ],
)
def test_when_a_question_is_answered(kind, low, high, end):
    assert is_answered(Verdict(kind, Interval(low, 1.0, high), "")) is end


def test_repeats_end_early_where_the_difference_is_large():
    draw = np.random.default_rng(3)
    a, b = 0.01 * draw.normal(size=(2, 16, 4))
    b[:, 0] += 0.5
    verdicts, repeats = looked_at(a, b, [None] * 4)
    assert verdicts[0].kind == "faster"
    assert repeats == 6


def test_few_of_simulated_runs_are_false_and_most_differences_are_told():
    shares = simulate("log-normal", 10, runs=40, sigma=0.03, ratio=1.1, seed=5)
    assert shares["recognised"] >= 0.85
    assert shares["false"] <= 0.05


def test_repeats_to_decide_grow_with_noise_and_with_the_family():
    few = repeats_to_decide(pair(1.1, 5), family=1)
    assert few is not None
    assert 6 <= few <= 8
    noise = pair(1.1, 5, sigma=0.09)
    noisy, family = repeats_to_decide(noise), repeats_to_decide(noise, family=40)
    assert noisy is not None
    assert noisy >= 2 * few
    assert family is not None
    assert family > noisy


def test_repeats_to_decide_are_more_than_were_measured():
    assert repeats_to_decide(pair(1.1, 16)) == 17


def test_no_number_of_repeats_tells_a_difference_that_hardly_is_there():
    same = pair(1.0, 16, sigma=0.5).a
    assert repeats_to_decide(Pair(same, same)) is None
    assert repeats_to_decide(Pair({1: 1.0}, {1: 2.0})) is None
