"""Predictions: known trainings are found again, and what is not supported is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from benchmarks import bench_model
from hvlab.analysis.model.costs import Cost
from hvlab.analysis.model.fit import fits
from hvlab.analysis.model.predict import RANKS, check, predict, predictions
from hvlab.analysis.model.prediction import NoPrediction, Prediction, PredictionCheck
from hvlab.analysis.model.problem import expected_maximum
from hvlab.analysis.model.step import BACKWARD, basis
from hvlab.analysis.model.training import trainings
from hvlab.results.configurations import Configuration, Repeats
from tests.unit.synthetic import RING, SIZES, SWEPT, configuration, fitted, measured, phrase, swept, trained

BYTES = 4e6
TREE = Cost("tree", 20e-6, 1e-9, 1e-3)


def training_of(configurations, **wanted):
    wanted = {"topology": "across", "scaling": "weak"} | wanted
    found = [one for one in trainings(configurations) if all(getattr(one, k) == v for k, v in wanted.items())]
    assert len(found) == 1
    return found[0]


def steps(
    cost, ranks=(1, 2, 4, 8), *, compute=0.1, local=0.0, exposed=1.0, overhead=0.0, growth=1.0, **options
):
    """Configurations of a training that follows the model to the letter."""
    configurations = {}
    for number in ranks:
        work = compute * (growth if number > 1 else 1)
        waited = exposed * cost.seconds(number, BYTES) + overhead if number > 1 else 0
        own = (work + local) / (number if options.get("scaling") == "strong" else 1)
        part = own * work / (work + local)
        configurations |= dict([trained(number, own + waited, compute=part, sent=BYTES, **options)])
    return configurations


def predicted(configurations, cost=RING, *, ranks=RANKS, **wanted):
    found = predict(training_of(configurations, **wanted), fitted(cost, ranks=(2, 4, 8)), ranks=ranks)
    assert isinstance(found, Prediction)
    return found


def checked(configurations, fit):
    training = training_of(configurations)
    return check(training, training.base, fit)


def keys(found):
    return {warning.key for warning in found.warnings}


@pytest.mark.parametrize("cost", [RING, TREE])
@pytest.mark.parametrize("exposed", [1.0, 0.6, 0.0])
def test_what_is_hidden_is_found_again(cost, exposed):
    found = predicted(steps(cost, exposed=exposed), cost)
    assert found.hidden == pytest.approx(1 - exposed, abs=1e-6)
    assert found.overhead_s == pytest.approx(0, abs=1e-9)
    for step in found.steps:
        waited = exposed * cost.seconds(step.ranks, BYTES)
        assert step.seconds.mid == pytest.approx(0.1 + waited)
        assert step.speedup.mid == pytest.approx(step.ranks * 0.1 / step.seconds.mid)
        assert step.efficiency.mid == pytest.approx(0.1 / step.seconds.mid)


def test_predictions_begin_beyond_what_was_measured_and_end_at_64_times_of_it():
    found = predicted(steps(RING))
    assert [step.ranks for step in found.steps] == [16, 32, 64, 128, 256, 512]
    assert found.limit.key == "too_far"
    assert found.measured == tuple(
        (ranks, pytest.approx(0.1 / (0.1 + RING.seconds(ranks, BYTES)))) for ranks in (2, 4, 8)
    )


def test_strong_scaling_shares_the_work():
    configurations = steps(RING, exposed=0.5, compute=10, scaling="strong", batch=4096)
    found = predicted(configurations, scaling="strong")
    assert found.hidden == pytest.approx(0.5)
    for step in found.steps:
        assert step.seconds.mid == pytest.approx(10 / step.ranks + 0.5 * RING.seconds(step.ranks, BYTES))
        assert step.speedup.mid == pytest.approx(10 / step.seconds.mid)
    assert found.steps[-1].efficiency.mid < found.steps[0].efficiency.mid
    assert (found.steps[-1].ranks, found.limit.key) == (64, "too_far")


def test_strong_scaling_ends_at_a_sample_a_rank():
    found = predicted(steps(RING, compute=10, scaling="strong", batch=64), scaling="strong")
    assert found.steps[-1].ranks == 64
    assert found.limit.key == "batch_limit"


def test_what_a_rank_does_besides_compute_stays():
    found = predicted(steps(RING, local=0.02))
    assert found.basis.compute_s == pytest.approx(0.1)
    assert found.basis.local_s == pytest.approx(0.02)
    assert found.basis.own_time(np.array([16])) == pytest.approx(0.12)
    assert found.hidden == pytest.approx(0, abs=1e-6)


def test_compute_that_grows_with_ranks_is_seen():
    found = predicted(steps(RING, growth=1.3))
    assert found.basis.growth == pytest.approx(1.3)
    assert found.basis.own_time(np.array([16])) == pytest.approx(0.13)
    assert found.steps[0].efficiency.mid < 1 / 1.3


def test_without_a_compute_time_the_step_at_one_rank_stands_for_it():
    training = training_of(dict([trained(1, 0.1), trained(2, 0.1 + RING.seconds(2, BYTES))]))
    own = basis(training, training.base, BYTES)
    assert (own.compute_s, own.local_s) == (0.1, 0)


def test_the_slowest_host_is_what_all_wait_for():
    hosts = {"n1": 0.1, "n2": 0.15}
    training = training_of(dict([trained(1, 0.1, hosts={"n1": 0.1}), trained(2, 0.16, hosts=hosts)]))
    assert basis(training, training.base, BYTES).growth == pytest.approx(1.5)
    assert training.steps[0].mean_compute_s == pytest.approx(0.125)


def test_compute_beyond_the_step_itself_is_not_believed():
    training = training_of(dict([trained(1, 0.1, compute=0.1), trained(2, 0.11, compute=0.4)]))
    assert basis(training, training.base, BYTES).growth == pytest.approx(1.1)


def test_what_neither_compute_nor_allreduce_explain_is_overhead():
    found = predicted(steps(RING, overhead=0.03))
    assert found.hidden == pytest.approx(0, abs=1e-6)
    assert found.overhead_s == pytest.approx(0.03)
    assert found.steps[1].seconds.mid == pytest.approx(0.1 + 0.03 + RING.seconds(32, BYTES))
    assert "overhead" in keys(found)


def test_a_large_step_is_several_operations():
    configurations = {
        replace(configuration, params=(*configuration.params, ("fusion_threshold", 10**6))): measured
        for configuration, measured in steps(RING).items()
    }
    found = predicted(configurations)
    assert found.basis.operations == 4
    expected = RING.terms(16, BYTES, operations=4).seconds
    assert found.basis.communication([RING], np.array([16]))[0] == pytest.approx(expected)


def test_the_largest_step_is_really_left_out():
    configurations = steps(RING, exposed=0.5)
    bent = configurations | dict([trained(8, 0.11, compute=0.1, sent=BYTES)])
    checks = [checked(one, fitted(RING, ranks=(2, 4, 8))) for one in (configurations, bent)]
    for one in checks:
        assert one.ranks == 8
        assert one.predicted_s == pytest.approx(0.1 + 0.5 * RING.seconds(8, BYTES))
    assert checks[0].error == pytest.approx(0)
    assert checks[1].error == pytest.approx(checks[0].predicted_s / 0.11 - 1)


def test_the_sweep_under_a_check_has_fewer_ranks_too():
    honest = fitted(RING, ranks=(2, 4, 8))
    bent = replace(
        honest.sweep,
        points=tuple(
            replace(point, seconds=point.seconds * (50 if point.ranks == 8 else 1))
            for point in honest.sweep.points
        ),
    )
    checks = [checked(steps(RING), one) for one in (honest, replace(honest, sweep=bent))]
    assert checks[0] == checks[1]


def test_the_signed_error_of_the_step_left_out_shifts_the_band():
    """A step that is longer than its prediction makes longer predictions, and a wider band on that side."""
    honest = steps(RING, overhead=0.05)
    step = 0.15 + RING.seconds(8, BYTES)
    longer, shorter = (
        honest | dict([trained(8, step * factor, compute=0.1, sent=BYTES)]) for factor in (1.25, 0.8)
    )
    shifts = [checked(one, KNOWN).shift for one in (shorter, honest, longer)]
    assert shifts[0] < -0.1 < shifts[1] < 0.1 < shifts[2]
    for before, after in zip(predicted(honest).steps, predicted(longer).steps, strict=False):
        assert after.seconds.mid > 1.25 * before.seconds.mid
        assert after.seconds.high > before.seconds.high * 1.25
        assert math.log(after.seconds.high / after.seconds.mid) > math.log(
            before.seconds.high / before.seconds.mid
        )


def test_an_error_that_noise_explains_shifts_little():
    quiet = PredictionCheck(8, 1.0, 1.05, noise=0.01, step_ranks=4)
    noisy = replace(quiet, noise=0.2)
    assert quiet.shift == pytest.approx(math.log(1.05), rel=0.05)
    assert noisy.shift < 0.1 * math.log(1.05)
    assert quiet.shift_at(16) == pytest.approx(quiet.shift)
    assert quiet.shift_at(64) == pytest.approx(3 * quiet.shift)


def test_the_slowest_of_several_ranks_is_waited_for():
    """Jitter of one rank makes the expected maximum over all ranks part of the step."""
    configurations = steps(TREE, exposed=0.5)
    jitter = 0.01
    for place, figures in configurations.items():
        figures.values["step_time_sd"] = {1: jitter}
        waited = jitter * float(expected_maximum([place.ranks])[0])
        times = figures.values["step_time"]
        figures.values["step_time"] = {repeat: seconds + waited for repeat, seconds in times.items()}
    found = predicted(configurations, TREE)
    assert "no_jitter" not in keys(found)
    assert "no_jitter" in keys(predicted(steps(TREE)))
    for step in found.steps:
        waited = jitter * float(expected_maximum([step.ranks])[0])
        assert step.seconds.mid == pytest.approx(
            0.1 + waited + 0.5 * TREE.seconds(step.ranks, BYTES), rel=0.02
        )


def test_several_ranks_on_several_hosts_have_two_levels():
    cost = Cost("ring", 20e-6, 1e-9, 1e-3, inner_s_per_byte=0.5e-9, slots=4)
    configurations = {}
    for size in SIZES:
        for hosts in (2, 3, 4):
            time = cost.seconds(4 * hosts, size) * 1e6
            made = configuration("allreduce", hosts=hosts, slots=4, **SWEPT, size_bytes=size)
            configurations[made] = measured(time=[time] * 3)
    for ranks in (1, 8, 12, 16):
        waited = cost.seconds(ranks, BYTES) if ranks > 1 else 0
        place, figures = trained(ranks, 0.1 + waited, compute=0.1, sent=BYTES)
        hosts = tuple(f"n{number}" for number in range(max(1, ranks // 4)))
        configurations[replace(place, hosts=hosts, slots=min(4, ranks))] = figures
    (found,) = predictions(configurations, fits(configurations))
    assert isinstance(found, Prediction)
    assert (found.training.topology, found.training.slots) == ("both", 4)
    assert found.fit.cost.inner_s_per_byte == pytest.approx(0.5e-9, rel=1e-3)
    assert [step.ranks for step in found.steps] == [32, 64, 128, 256, 512, 1024]
    for step in found.steps:
        assert step.seconds.mid == pytest.approx(0.1 + cost.seconds(step.ranks, BYTES), rel=1e-3)


def test_the_band_holds_what_the_repeats_and_the_sweep_leave_open():
    quiet = predicted(steps(RING))
    noisy = predicted(steps(RING, noise=0.3))
    assert width(noisy) > 1.5 * width(quiet)
    unsure = predict(training_of(steps(RING)), fitted(RING, ranks=(2, 3, 4), noise=0.1))
    assert isinstance(unsure, Prediction)
    assert width(unsure) > 1.1 * width(quiet)


def width(found):
    return found.steps[-1].seconds.high / found.steps[-1].seconds.low - 1


def test_a_prediction_is_no_measurement():
    found = predicted(steps(RING))
    assert not isinstance(found, Configuration | Repeats)
    assert not any(isinstance(step, Configuration | Repeats) for step in found.steps)


LAB = steps(RING, exposed=0.5)
LATE = {**dict(LAB), **dict([trained(8, 0.3, compute=0.1, sent=BYTES)])}
SWEEP = {"ranks": (2, 4, 8)}


@pytest.mark.parametrize(
    ("configurations", "sweep", "why"),
    [
        ({one: LAB[one] for one in LAB if one.ranks > 1}, SWEEP, "no_base"),
        (dict([trained(n, 0.1, sent=None) for n in (1, 2, 4, 8)]), SWEEP, "no_bytes"),
        (steps(RING, ranks=(1, 2, 4)), SWEEP, "few_steps"),
        (LAB, {"ranks": (2, 4)}, "few_counts"),
        (dict([trained(n, 0.1, backend="gloo") for n in (1, 2, 4, 8)]), SWEEP, "no_fit"),
        (dict([trained(n, 0.1, device="cuda") for n in (1, 2, 4, 8)]), SWEEP, "no_fit"),
        (dict([trained(n, 0.1, sent=1e9) for n in (1, 2, 4, 8)]), SWEEP, "size_outside"),
        (LAB, SWEEP | {"sizes": SIZES[:5]}, "size_outside"),
        (LAB, SWEEP | {"noise": 1.0}, "poor_fit"),
        (LATE, SWEEP, "check_missed"),
        (
            dict([trained(n, 0.1 if n > 2 else 0.13, sent=BYTES) for n in (1, 2, 4, 8)]),
            SWEEP,
            "below_measured",
        ),
        (steps(RING, compute=1e-4, scaling="strong", batch=8), SWEEP, "batch_limit"),
    ],
)
def test_what_is_not_supported_is_refused_and_the_reason_says_what_to_measure(configurations, sweep, why):
    (found,) = predictions(configurations, fits(swept(RING, **sweep)))
    assert isinstance(found, NoPrediction)
    assert found.reason.key == why
    assert "measure" in phrase(found.reason) or why in ("poor_fit", "batch_limit")


def test_predictions_end_where_backward_is_too_short():
    slow = replace(RING, alpha_s=200e-6)
    found = predicted(steps(slow, compute=0.05, exposed=0.3), slow)
    assert found.limit.key == "hidden_limit"
    assert all((1 - 0.3) * slow.seconds(step.ranks, BYTES) < 1.1 * BACKWARD * 0.05 for step in found.steps)


def test_predictions_end_where_the_band_says_nothing():
    """Small messages tell ring and halving apart by latency only; in noise they do not."""
    noisy = fitted(replace(RING, alpha_s=1e-3), ranks=(2, 3, 4), noise=0.1)
    configurations = steps(replace(RING, alpha_s=1e-3), compute=2e-3, ranks=(1, 2, 3, 4))
    found = predict(training_of(configurations), noisy)
    why = found.limit if isinstance(found, Prediction) else found.reason
    assert why.key == "too_wide"


def test_nothing_is_predicted_from_nothing():
    assert predictions({}, []) == []
    failed = Repeats(errors={1: "died"})
    assert predictions({next(iter(steps(RING))): failed}, []) == []


def test_serial_stands_in_for_a_missing_step_at_one_rank():
    several = {one: figures for one, figures in steps(RING).items() if one.ranks > 1}
    found = predicted(several | dict([trained(1, 0.1, backend="serial")]))
    assert found.training.serial_base
    assert found.training.base.seconds == 0.1
    assert "serial_base" in keys(found)
    other = several | dict([trained(1, 0.1, backend="serial", batch=32)])
    assert training_of(other).base is None


def test_inside_a_host_predictions_end_where_hosts_do():
    configurations = dict(
        [trained(n, 0.1 + (n > 1) * RING.seconds(n, BYTES), compute=0.1, inside=True) for n in (1, 2, 4, 8)]
    )
    (found,) = predictions(configurations, fits(swept(RING, ranks=(2, 4, 8), inside=True)))
    assert isinstance(found, Prediction)
    assert found.training.topology == found.fit.sweep.topology == "inside"
    assert (found.steps[-1].ranks, found.limit.key) == (16, "host_limit")


def test_a_compressed_training_takes_the_sweep_of_its_type():
    wide = swept(RING, ranks=(2, 4, 8))
    narrow = swept(replace(RING, beta_s_per_byte=1.2e-9), ranks=(2, 4, 8))
    narrow = {
        replace(
            configuration, params=tuple(sorted({**dict(configuration.params), "dtype": "float16"}.items()))
        ): measured
        for configuration, measured in narrow.items()
    }
    known = fits(wide | narrow)
    for compression, slope in (("none", 1e-9), ("fp16", 1.2e-9)):
        (found,) = predictions(steps(RING, compression=compression), known)
        assert isinstance(found, Prediction)
        assert found.fit.cost.beta_s_per_byte == pytest.approx(slope, rel=1e-3)


@settings(max_examples=12)
@given(some.floats(1e-3, 10), some.floats(0, 1), some.floats(0, 0.1), some.sampled_from(["weak", "strong"]))
def test_bounds_hold_whatever_was_measured(compute, exposed, overhead, scaling):
    configurations = steps(
        RING, compute=compute, exposed=exposed, overhead=overhead, scaling=scaling, batch=4096
    )
    found = predict(training_of(configurations, scaling=scaling), KNOWN)
    if isinstance(found, NoPrediction):
        assert phrase(found.reason)
        return
    assert 0 <= found.hidden <= 1
    assert found.steps
    for step in found.steps:
        assert 0 < step.seconds.low <= step.seconds.mid <= step.seconds.high <= 4 * step.seconds.low
        assert step.speedup.low <= step.speedup.mid <= step.speedup.high


KNOWN = fitted(RING, ranks=(2, 4, 8), noise=0.02)


@pytest.mark.parametrize("scenario", ["ring", "tree", "two-levels", "jitter"])
def test_bands_hold_the_truth_of_simulated_labs(scenario):
    rows = bench_model.simulate(scenario, (2, 4, 8), 0.05, runs=8, seed=3)
    given = sum(row["given"] for row in rows)
    assert given > 0.7 * 8 * len(rows)
    assert sum(row["held"] for row in rows) >= 0.9 * given
    assert rows[0]["width"] < 1.5


def test_ranks_that_share_the_cores_of_one_machine_are_not_predicted():
    rows = bench_model.simulate("shared-cores", (2, 3, 4), 0.05, runs=4, seed=3)
    assert [row["given"] for row in rows] == [0] * len(rows)
