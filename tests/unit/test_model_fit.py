"""Fits: known costs are found again, what is left out is left out, and thin data carry no fit."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest

from hvlab.analysis.model.costs import ALGORITHMS, Cost
from hvlab.analysis.model.fit import Fit, NoFit, fit, fits
from hvlab.analysis.model.problem import LinearProblem, expected_maximum
from hvlab.analysis.model.training import Sweep, SweepPoint, sweeps
from tests.unit.synthetic import RING, SIZES, SWEPT, configuration, fitted, measured, phrase, sweep, swept


def keys(found):
    return {warning.key for warning in found.warnings}


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
@pytest.mark.parametrize("start", [0.0, 1e-3])
def test_without_noise_the_very_cost_is_found(algorithm, start):
    cost = Cost(algorithm, 20e-6, 1e-9, start)
    found = fitted(cost, ranks=(2, 4, 8))
    assert found.algorithm == algorithm
    assert found.cost.alpha_s == pytest.approx(20e-6, rel=1e-6)
    assert found.cost.beta_s_per_byte == pytest.approx(1e-9, rel=1e-6)
    assert found.cost.constant_s == pytest.approx(start, rel=1e-6, abs=1e-9)
    assert found.error.worst < 1e-6
    assert found.votes[algorithm] == max(found.votes.values())


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("ranks", [(2, 3, 4), (2, 4, 8)])
def test_with_noise_it_is_found_within_its_error(algorithm, ranks):
    cost = Cost(algorithm, 50e-6, 1e-9, 100e-6)
    for seed in range(5):
        found = fitted(cost, ranks=ranks, noise=0.03, seed=seed)
        assert found.algorithm == algorithm
        assert found.error.median < 0.06
        assert found.cost.beta_s_per_byte == pytest.approx(1e-9, rel=0.05)
        assert found.cost.alpha_s == pytest.approx(50e-6, rel=0.25)


def test_the_draws_hold_the_truth():
    held = []
    for seed in range(20):
        found = fitted(RING, ranks=(2, 4, 8), noise=0.05, seed=seed)
        for size in (SIZES[0], SIZES[-1]):
            low, high = np.percentile([one.seconds(8, size) for one in found.draws], (2.5, 97.5))
            held.append(low < RING.seconds(8, size) < high)
    assert sum(held) >= 0.9 * len(held)
    assert high / low < 1.3


def test_noise_does_not_make_it_too_fast():
    found = [fit(sweep(RING, ranks=(2, 4, 8), noise=0.2, seed=seed), draws=0) for seed in range(40)]
    assert statistics.fmean(one.cost.beta_s_per_byte for one in found) == pytest.approx(1e-9, rel=0.03)


def test_what_the_sizes_of_a_launch_share_makes_fits_less_sure():
    """Nine sizes that are all slower in the same launches tell as much of the noise as one."""

    def at_64(shared):
        configurations = swept(RING, ranks=(2, 4, 8))
        for number, measured_there in enumerate(configurations.values()):
            hours = (0.9, 1.0, 1.1) if shared else [(0.9, 1.0, 1.1)[(turn + number) % 3] for turn in range(3)]
            for values in measured_there.values.values():
                values.update({repeat: values[repeat] * hours[repeat - 1] for repeat in values})
        (found,) = fits(configurations)
        assert isinstance(found, Fit)
        times = sorted(one.seconds(64, SIZES[-1]) for one in found.draws if one.algorithm == "ring")
        return times[-len(times) // 20] / times[len(times) // 20]

    assert at_64(shared=True) - 1 > 1.5 * (at_64(shared=False) - 1)


def test_halving_and_doubling_is_recognised_from_three_numbers_of_ranks_and_not_from_two():
    cost = Cost("halving", 200e-6, 1e-9, 1e-3)
    found = [fitted(cost, ranks=(2, 4, 8), noise=0.02, seed=seed) for seed in range(12)]
    assert sum(one.algorithm == "halving" for one in found) >= 10
    for seed in range(12):
        assert "algorithm" not in fitted(cost, ranks=(2, 3), noise=0.02, seed=seed).identifiable


def test_a_latency_that_does_not_show_is_not_identifiable():
    hidden = fitted(Cost("ring", 1e-9, 1e-9, 1e-3), ranks=(2, 4, 8), noise=0.03)
    assert {"bandwidth", "start"} <= hidden.identifiable
    assert "alpha" not in hidden.identifiable
    assert "no_alpha" in keys(hidden)
    shown = fitted(Cost("ring", 1e-3, 1e-9, 1e-3), ranks=(2, 4, 8), noise=0.03)
    assert "alpha" in shown.identifiable
    assert not {"alpha", "start"} & fitted(RING, ranks=(2,)).identifiable


@pytest.mark.parametrize(
    ("count", "expected"), [(1, 0), (2, 1 / math.sqrt(math.pi)), (4, 1.02938), (100, 2.50759)]
)
def test_the_expected_maximum_is_that_of_the_tables(count, expected):
    """Harter: Expected Values of Normal Order Statistics, Biometrika 48 (1961), table 1."""
    assert expected_maximum([count])[0] == pytest.approx(expected, abs=2e-5)


def test_ring_and_halving_take_turns_where_nothing_tells_them_apart():
    found = fitted(RING, ranks=(2, 3), noise=0.03)
    assert found.votes["ring"] == pytest.approx(0.5, abs=0.1)
    assert found.votes["halving"] == pytest.approx(0.5, abs=0.1)
    assert "algorithm_unsure" in keys(found)
    far = [one.seconds(1024, 1e6) for one in found.draws]
    assert max(far) / min(far) > 2


@pytest.mark.parametrize("ranks", [(2, 3, 4), (2, 4, 16)])
def test_the_largest_number_of_ranks_is_really_left_out(ranks):
    honest = sweep(RING, ranks=ranks)
    bent = replace(
        honest,
        points=tuple(
            replace(point, seconds=point.seconds * (3 if point.ranks == ranks[-1] else 1))
            for point in honest.points
        ),
    )
    for one in (fit(honest), fit(bent)):
        assert isinstance(one, Fit)
        assert one.left_out is not None
        assert (one.left_out.kind, one.left_out.value) == ("ranks", ranks[-1])
        assert {checked.point.ranks for checked in one.left_out.points} == {ranks[-1]}
        assert len(one.left_out.points) == len(SIZES)
    found = fit(bent)
    assert isinstance(found, Fit)
    assert found.left_out is not None
    rest = LinearProblem(bent.below(ranks[-1]))
    cost = rest.solve(found.algorithm, rest.everything)
    for checked in found.left_out.points:
        assert checked.predicted_s == pytest.approx(
            cost.seconds(checked.point.ranks, checked.point.size_bytes)
        )
    assert found.left_out.error > 0.3
    assert all(checked.error < 0 for checked in found.left_out.points if checked.point.size_bytes > 1e6)
    assert "poor_check" in keys(found)


def test_of_one_number_of_ranks_the_largest_size_is_left_out():
    points = tuple(
        SweepPoint(2, size, RING.seconds(2, size) * (2 if size == SIZES[-1] else 1)) for size in SIZES
    )
    found = fit(replace(sweep(RING, ranks=(2,)), points=points))
    assert isinstance(found, Fit)
    assert found.left_out is not None
    assert (found.left_out.kind, found.left_out.value) == ("size", SIZES[-1])
    assert found.left_out.points[0].predicted_s == pytest.approx(RING.seconds(2, SIZES[-1]))
    assert found.left_out.error == pytest.approx(0.5)


def test_of_one_number_of_ranks_the_start_is_a_cycle_and_the_draws_hold_all_of_it():
    found = fitted(RING, ranks=(2,), noise=0.001)
    assert found.cost.constant_s == pytest.approx(1e-3)
    assert {"start_or_latency", "algorithm_unsure"} <= keys(found)
    starts = [one.constant_s for one in found.draws]
    assert min(starts) < 0.1e-3
    assert max(starts) > 0.9e-3
    assert set(found.votes) == {one.algorithm for one in found.draws}


def test_a_shorter_cycle_bounds_the_start():
    found = fitted(RING, ranks=(2,), params=SWEPT | {"cycle_time": 0.5})
    assert found.cost.constant_s == pytest.approx(0.5e-3)
    assert found.cost.alpha_s == pytest.approx((1.04e-3 - 0.5e-3) / 2, rel=1e-3)


def test_one_rank_tells_the_start():
    single = SweepPoint(1, SIZES[0], RING.constant_s)
    copied = SweepPoint(1, SIZES[-1], 50e-3)
    alone = sweep(RING, ranks=(2,))
    found = fit(replace(alone, points=(single, copied, *alone.points)))
    assert isinstance(found, Fit)
    assert found.cost.constant_s == pytest.approx(RING.constant_s)
    assert found.cost.alpha_s == pytest.approx(RING.alpha_s)
    assert "start_or_latency" not in keys(found)
    assert found.sweep.ranks == (2,)


@pytest.mark.parametrize(
    ("ranks", "sizes", "why"),
    [
        ((1,), SIZES, "one_rank"),
        ((2, 3), (1024,), "one_size"),
        ((1, 2), (1024,), "one_size"),
        ((2,), (1024, 4096), "few_points"),
        ((), SIZES, "nothing_measured"),
    ],
)
def test_thin_data_carry_no_fit(ranks, sizes, why):
    found = fit(sweep(RING, ranks=ranks, sizes=sizes))
    assert isinstance(found, NoFit)
    assert found.reason.key == why
    assert phrase(found.reason)


@pytest.mark.parametrize("cycle", ["{}", "nan", -1, True])
def test_a_cycle_time_that_is_none_carries_no_fit(cycle):
    found = fit(sweep(RING, params={"cycle_time": cycle}))
    assert isinstance(found, NoFit)
    assert phrase(found.reason) == f"its cycle_time is {cycle}"


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"ranks": (2, 3)}, {"few_counts"}),
        ({"ranks": (2, 4, 8), "sizes": (1024, 2048, 4096)}, {"narrow_sizes"}),
        ({"ranks": (2,), "sizes": (1024, 2**20, 2**24)}, {"few_counts"}),
        ({"ranks": (2, 4, 8, 16)}, set()),
    ],
)
def test_warnings_say_what_the_data_lack(options, warned):
    found = fitted(RING, **options)
    assert warned <= keys(found)
    assert {"few_counts", "narrow_sizes"} & keys(found) <= warned
    assert all(phrase(warning) for warning in found.warnings)


def test_the_warning_of_a_small_lab_is_told_in_words():
    found = fit(sweep(RING, ranks=(2, 3)), virtual=True)
    assert isinstance(found, Fit)
    assert {
        "numbers of ranks above one: 2 measured for the allreduce, 3 needed for a prediction; measure"
        " 2, 4 and 8, for instance (--hosts or --slots)",
        "virtual hosts share the cores of one machine",
    } <= {phrase(warning) for warning in found.warnings}


def test_sizes_too_small_show_no_bandwidth():
    flat = [SweepPoint(ranks, size, 1e-3 + 1e-5 * ranks) for ranks in (2, 3, 4) for size in (64, 32, 16)]
    found = fit(replace(sweep(RING), points=tuple(flat)))
    assert isinstance(found, Fit)
    assert found.cost.beta_s_per_byte < 1e-10
    assert "narrow_sizes" in keys(found)


def test_the_fit_is_the_same_each_time():
    assert fitted(RING, noise=0.1) == fitted(RING, noise=0.1)


def test_sweeps_hold_what_was_measured_alike():
    configurations = swept(RING, ranks=(1, 2, 3)) | swept(RING, ranks=(2,), inside=True)
    configurations |= swept(RING, ranks=(2, 3), backend="gloo") | swept(RING, ranks=(2,), dtype_2="x")
    mixture = configuration("allreduce", hosts=2, slots=2, **SWEPT, size_bytes=1024)
    configurations[mixture] = measured(time=[5.0])
    found = {(one.backend, one.topology, len(one.params)): one for one in sweeps(configurations)}
    assert found["mpi", "across", 3].ranks == (2, 3)
    assert found["mpi", "inside", 3].ranks == (2,)
    assert found["gloo", "across", 3].ranks == (2, 3)
    assert found["mpi", "across", 4].ranks == (2,)
    assert found["mpi", "across", 3].sizes == SIZES
    assert [point.seconds for point in found["mpi", "both", 3].points] == [pytest.approx(5e-6)]
    assert found["mpi", "both", 3].slots == 2
    other = configuration("broadcast", hosts=2, slots=1, **SWEPT, size_bytes=1024)
    assert sweeps({other: measured(time=[5.0])}) == []


def test_the_median_of_the_repeats_counts():
    one = configuration("allreduce", hosts=2, **SWEPT, size_bytes=1024)
    found = sweeps({one: measured(time_median=[1000.0, 1100.0, 9000.0], time=[1.0, 1.0, 1.0])})
    assert found[0].points == (SweepPoint(2, 1024, pytest.approx(1.1e-3)),)
    assert len(found[0].points[0].launches) == 3


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0, -1.0])
def test_figures_that_are_none_do_not_count(bad):
    one = configuration("allreduce", hosts=2, **SWEPT, size_bytes=1024)
    assert sweeps({one: measured(time=[bad])}) == []


def test_failed_configurations_are_told_where_there_is_nothing_else():
    broken = measured()
    broken.errors = {1: "ran over its 300 s"}
    configurations = {configuration("allreduce", "gloo", hosts=hosts, **SWEPT): broken for hosts in (2, 3)}
    configurations |= swept(RING) | {configuration("allreduce", "mpi", hosts=2, **SWEPT): broken}
    refused = [one for one in fits(configurations) if isinstance(one, NoFit)]
    assert [(one.sweep.backend, one.sweep.topology) for one in refused] == [("gloo", "across")]
    assert phrase(refused[0].reason) == "no case of this sweep has figures (2 failed)"


def test_nothing_at_all_is_no_fit_at_all():
    assert fits({}) == []


def test_the_figures_of_one_machine_give_a_plausible_bandwidth():
    points = ((1024, 1.1e-3), (4 * 2**20, 1.75e-3), (64 * 2**20, 43e-3))
    measured_there = Sweep("mpi", "mpirun", "inside", (), tuple(SweepPoint(2, *one) for one in points))
    found = fit(measured_there)
    assert isinstance(found, Fit)
    assert found.cost.constant_s == pytest.approx(1e-3, rel=0.2)
    # Between what the middle and the largest size show by themselves: the cache makes two regimes of one.
    slopes = [size / (time - found.cost.constant_s) / 1e9 for size, time in points[1:]]
    assert min(slopes) < 1e-9 / found.cost.beta_s_per_byte < max(slopes)
    assert found.error.worst > 0.2
    assert {"few_counts", "start_or_latency"} <= keys(found)
