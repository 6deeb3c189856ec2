"""A run against several: what their hours explain is no difference; the rest is one. Draws are seeded."""

import numpy as np
import pytest

from hvlab.statistics.between import RunMedians, changes, compare_to_runs

OWN = 0.01


def drawn(draw, *, hour, cells, runs=5):
    """Logarithms of runs that differ by their hour; the last row is the run that is checked."""
    return hour * draw.normal(size=(runs + 1, 1)) + OWN * draw.normal(size=(runs + 1, cells))


def verdicts(logs, **options):
    cells = [RunMedians(each[-1], dict(enumerate(each[:-1]))) for each in np.exp(logs).T.tolist()]
    return compare_to_runs(cells, **options)


def kinds(logs, **options):
    return [one.kind for one in verdicts(logs, **options)]


@pytest.mark.parametrize("hour", [0.0, 0.05])
@pytest.mark.parametrize("cells", [1, 24])
def test_the_hour_alone_is_seldom_a_difference(hour, cells):
    draw = np.random.default_rng(1)
    false = sum(set(kinds(drawn(draw, hour=hour, cells=cells))) != {"unclear"} for _ in range(200))
    assert false <= 0.015 * 200


@pytest.mark.parametrize(("slower", "least"), [(4, 0.95), (24, 0.95)])
def test_a_quarter_slower_is_recognised_in_some_cells_and_in_all(slower, least):
    draw = np.random.default_rng(2)
    recognised = 0
    for _ in range(100):
        logs = drawn(draw, hour=0.02, cells=24)
        logs[-1, :slower] += np.log(1.25)
        recognised += kinds(logs)[:slower].count("slower")
    assert recognised >= least * 100 * slower


@pytest.mark.parametrize(("changed", "cells"), [(12, 24), (4, 24), (1, 4), (2, 4)])
@pytest.mark.parametrize("ratio", [1.25, 0.8])
def test_what_did_not_change_is_seldom_taken_for_changed(changed, cells, ratio):
    draw = np.random.default_rng(5)
    false = 0
    for _ in range(100):
        logs = drawn(draw, hour=0.02, cells=cells)
        logs[-1, :changed] += np.log(ratio)
        told = kinds(logs)
        wrong = "faster" if ratio > 1 else "slower"
        false += wrong in told or set(told[changed:]) != {"unclear"}
    assert false <= 3


def test_a_shift_against_the_common_one_leaves_what_is_common():
    # Cell 0 shifts by -10 % of its own, but in all it is slower, as all are.
    logs = drawn(np.random.default_rng(3), hour=0.0, cells=20)
    logs[-1] += 0.3
    logs[-1, 0] -= 0.1
    found = verdicts(logs)
    assert [one.kind for one in found] == ["slower"] * 20
    assert found[0].reason.endswith("as all have")


def test_a_common_shift_has_to_matter():
    # All shift by a sure 1 %; cell 0, which is noisy, lies 5 % off by chance.
    logs = np.tile(np.array([[0.0], [0.001], [-0.001], [0.0005], [-0.0005], [0.01]]), 20)
    logs[:, 0] += [0.01, -0.01, 0.005, -0.005, 0.0, 0.04]
    assert set(kinds(logs)) == {"unclear"}


def test_the_interval_of_the_ratio_has_to_exclude_one():
    # Cell 0 moves against the others, which moved by the hour: together it is where runs lie anyway.
    draw = np.random.default_rng(6)
    logs = np.array([[0.1], [-0.1], [0.05], [-0.05], [0.0], [0.0]]) + 0.002 * draw.normal(size=(6, 20))
    logs[-1, 0] += 0.05
    (first, *_) = verdicts(logs)
    assert first.ratio.low < 1 < first.ratio.high
    assert first.kind == "unclear"


def test_the_common_change_and_a_cells_own_are_kept_apart():
    logs = drawn(np.random.default_rng(3), hour=0.0, cells=20)
    logs[-1] += 0.3
    logs[-1, 0] -= 0.5
    moved = changes(logs[:-1], logs[-1])
    assert moved.common == pytest.approx(0.3, abs=0.02)
    assert moved.own[0] == pytest.approx(-0.5, abs=0.04)
    assert np.argmin(moved.own_chances) == 0
    assert kinds(logs) == ["faster"] + ["slower"] * 19


def test_more_is_better_for_a_throughput():
    before = {run: 100 + run for run in range(5)}
    assert [compare_to_runs([RunMedians(200.0, before, better)])[0].kind for better in ("low", "high")] == [
        "slower",
        "faster",
    ]


def test_a_difference_has_to_matter():
    before = {run: 100 + run / 1000 for run in range(5)}
    assert [compare_to_runs([RunMedians(103.0, before)], matters=m)[0].kind for m in (0.02, 0.05)] == [
        "slower", "unclear",
    ]  # fmt: skip


@pytest.mark.parametrize(("runs", "kind"), [(0, "too_few"), (1, "too_few"), (4, "too_few"), (5, "slower")])
def test_it_takes_five_runs(runs, kind):
    (verdict,) = compare_to_runs([RunMedians(700.0, {run: 100.0 + run for run in range(runs)})])
    assert (verdict.kind, verdict.needed) == (kind, 5 if kind == "too_few" else 0)
    assert (verdict.ratio is None) == (runs < 2)


def test_a_cell_that_some_runs_lack_spoils_no_other():
    logs = np.exp(drawn(np.random.default_rng(4), hour=0.01, cells=3, runs=6))
    cells = [RunMedians(each[-1], dict(enumerate(each[:-1]))) for each in logs.T.tolist()]
    cells[1] = RunMedians(9.0, dict.fromkeys(range(4), 1.0))
    cells[2] = RunMedians(cells[2].new, {run: value for run, value in cells[2].before.items() if run})
    assert [one.kind for one in compare_to_runs(cells)] == ["unclear", "too_few", "unclear"]


def test_figures_without_a_logarithm_and_none_at_all():
    (verdict,) = compare_to_runs([RunMedians(0.0, dict.fromkeys(range(5), 1.0))])
    assert (verdict.kind, verdict.ratio) == ("unclear", None)
    assert compare_to_runs([]) == []
