"""What the elements of a collective hold: every fault must show."""

import itertools

import numpy
import pytest

from tests.unit.programs import program

RANKS = [1, 2, 3, 5, 8, 16, 64]
LARGEST = {"int8": 127, "uint8": 255, "float16": 2048, "bfloat16": 256, "float32": 2**24}


@pytest.fixture
def patterns(monkeypatch):
    return program(monkeypatch, "patterns")


def tables(patterns, ranks, dtype="float32"):
    base = patterns.base_for(ranks, dtype)
    return [patterns.table(rank, ranks, base) for rank in range(ranks)]


@pytest.mark.parametrize("dtype", LARGEST)
def test_sums_stay_whole_in_every_type(patterns, dtype):
    for ranks in RANKS:
        found = tables(patterns, ranks, dtype)
        assert min(map(min, found)) >= 0, ranks
        assert 0 < max(patterns.sum_tables(found)) <= LARGEST[dtype], ranks


def test_no_two_ranks_hold_the_same(patterns):
    for ranks in RANKS:
        assert all(a != b for a, b in itertools.combinations(tables(patterns, ranks), 2)), ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_a_rank_left_out_or_counted_twice_shows_in_the_sum(patterns, ranks):
    found = tables(patterns, ranks)
    whole = patterns.sum_tables(found)
    for rank in range(ranks):
        others = found[:rank] + found[rank + 1 :]
        assert patterns.sum_tables([*others, [0] * len(whole)]) != whole
        assert all(patterns.sum_tables([*others, other]) != whole for other in others)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_piece_that_was_shifted_shows(patterns, ranks):
    whole = patterns.sum_tables(tables(patterns, ranks))
    for shift in (1, 4, 64, 1024):
        assert [whole[(i + shift) % len(whole)] for i in range(len(whole))] != whole, shift


def by_definition(vectors):
    """Adasum of whole tensors, by the recursion of the paper."""
    if len(vectors) == 1:
        return vectors[0]
    half = len(vectors) // 2
    a, b = by_definition(vectors[:half]), by_definition(vectors[half:])
    common = a @ b
    return (1 - common / (2 * (a @ a))) * a + (1 - common / (2 * (b @ b))) * b


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [6, 100, 1000])
def test_adasum_of_tables_is_that_of_whole_tensors(patterns, ranks, count):
    found = tables(patterns, ranks)
    length = len(found[0])
    whole = by_definition([numpy.resize(numpy.array(table, float), count) for table in found])
    wanted = patterns.adasum(found, count)
    assert [wanted[i % length] for i in range(count)] == pytest.approx(whole.tolist(), rel=1e-12)


def test_adasum_adds_what_is_at_right_angles_and_averages_what_is_the_same(patterns):
    assert patterns.adasum([[1, 0], [0, 2]], 2) == [1, 2]
    assert patterns.adasum([[1, 2], [1, 2]], 2) == [1, 2]
    assert patterns.adasum([[0, 0], [1, 2]], 2) == [1, 2]


def test_averages(patterns):
    assert patterns.average_tables([[1, 2], [2, 4]]) == [1.5, 3]
