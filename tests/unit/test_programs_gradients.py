"""How coarse 8 bit gradients are; what they lose is tested on the nodes, where torch is."""

import pytest

from tests.unit.programs import program


@pytest.mark.parametrize("ranks", [1, 2, 3, 64, 127])
def test_the_sum_over_all_ranks_fits_into_8_bits(monkeypatch, ranks):
    side = program(monkeypatch, "exchange").EightBit(ranks)
    assert side.levels >= 1
    # Each number goes from 0 to twice the levels.
    assert 2 * side.levels * ranks <= 255


def test_more_ranks_than_levels_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="at most 127 ranks, not of 128"):
        program(monkeypatch, "exchange").EightBit(128)
