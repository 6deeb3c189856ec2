"""Costs of an allreduce: the published formulas, and that more never costs less."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from hvlab.analysis.model.costs import ALGORITHMS, Cost, crossing

costs = some.builds(
    Cost,
    some.sampled_from(sorted(ALGORITHMS)),
    some.floats(0, 1e-3),
    some.floats(0, 1e-6),
    some.floats(0, 1e-2),
)
ranks = some.integers(1, 2048)
sizes = some.integers(0, 2**34)


def test_the_shapes_on_eight_ranks_are_the_published_ones():
    found = {name: (shape.messages, shape.volume) for name, of in ALGORITHMS.items() for shape in [of(8)]}
    assert found == {"ring": (14, 14 / 8), "tree": (3, 3), "halving": (6, 14 / 8)}


def test_a_tree_of_any_number_has_the_rounds_of_the_next_power_of_two():
    for count in (3, 5, 6, 7, 1023):
        assert ALGORITHMS["tree"](count).messages == math.ceil(math.log2(count))


def test_a_ring_of_known_terms():
    terms = Cost("ring", 10e-6, 1e-9, 1e-3).terms(4, 1_000_000, operations=3)
    assert terms.start_s == pytest.approx(3e-3)
    assert terms.latency_s == pytest.approx(3 * 6 * 10e-6)
    assert terms.bandwidth_s == pytest.approx(1.5e-3)
    assert terms.seconds == pytest.approx(3e-3 + 180e-6 + 1.5e-3)


@given(costs, ranks, ranks, sizes, sizes)
def test_more_ranks_or_bytes_never_cost_less(cost, one, other, small, large):
    few, many = sorted((one, other))
    short, long = sorted((small, large))
    assert cost.seconds(few, short) <= cost.seconds(many, short) * (1 + 1e-12)
    assert cost.seconds(many, short) <= cost.seconds(many, long) * (1 + 1e-12)


@given(costs, sizes)
def test_one_rank_sends_nothing(cost, size):
    assert cost.seconds(1, size) == cost.constant_s


@given(some.floats(1e-6, 1e-3), some.floats(1e-6, 1e-3), some.floats(1e-11, 1e-8), some.floats(1e-11, 1e-8))
def test_at_the_crossing_both_take_as_long(alpha, other_alpha, beta, other_beta):
    # Bandwidths that floating point tells apart.
    assume(beta == other_beta or abs(beta - other_beta) > 1e-9 * beta)
    one = Cost("ring", alpha, beta)
    other = Cost("ring", other_alpha, other_beta)
    size = crossing(one, other, 4)
    if (alpha < other_alpha) == (beta < other_beta) or alpha == other_alpha or beta == other_beta:
        assert size is None
    else:
        assert size is not None
        assert one.seconds(4, size) == pytest.approx(other.seconds(4, size))
