"""Predictions: known trainings are found again, bounds hold, and checks leave out what they say."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from hvlab.model.costs import Cost
from hvlab.model.fit import Fit, fits
from hvlab.model.predict import RANKS, predict, predictions
from hvlab.model.prediction import NoPrediction, Prediction
from hvlab.model.step import BACKWARD
from hvlab.model.training import trainings
from hvlab.results.configurations import Configuration, Repeats
from tests.unit.synthetic import RING, fitted, phrase, swept, trained

BYTES = 4e6
TREE = Cost("allreduce", "tree", 20e-6, 1e-9, 1e-3)


def training_of(configurations, **wanted):
    wanted = {"topology": "across", "scaling": "weak"} | wanted
    found = [one for one in trainings(configurations) if all(getattr(one, k) == v for k, v in wanted.items())]
    assert len(found) == 1
    return found[0]


def steps(cost, ranks=(1, 2, 4), *, compute=0.1, local=0.0, exposed=1.0, overhead=0.0, growth=1.0, **options):
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


def keys(found):
    return {warning.key for warning in found.warnings}


@pytest.mark.parametrize("cost", [RING, TREE])
@pytest.mark.parametrize("exposed", [1.0, 0.6, 0.0])
def test_what_is_hidden_is_found_again(cost, exposed):
    found = predicted(steps(cost, exposed=exposed), cost)
    assert found.hidden == pytest.approx(1 - exposed, abs=1e-6)
    assert found.overhead_s == pytest.approx(0, abs=1e-9)
    for step in found.steps:
        communication = cost.seconds(step.ranks, BYTES)
        waited = max(exposed * communication, communication - BACKWARD * 0.1)
        assert step.step_s == pytest.approx(0.1 + waited)
        assert step.communication_s == pytest.approx(communication)
        assert step.exposed_s == pytest.approx(waited)
        assert step.speedup == pytest.approx(step.ranks * 0.1 / step.step_s)
        assert step.efficiency == pytest.approx(0.1 / step.step_s)


def test_predictions_go_to_1024_ranks():
    assert [step.ranks for step in predicted(steps(RING)).steps] == [2**power for power in range(1, 11)]


def test_strong_scaling_shares_the_work():
    found = predicted(steps(RING, exposed=0.5, scaling="strong", batch=4096), scaling="strong")
    assert found.hidden == pytest.approx(0.5)
    for step in found.steps:
        communication = RING.seconds(step.ranks, BYTES)
        waited = max(0.5 * communication, communication - BACKWARD * 0.1 / step.ranks)
        assert step.step_s == pytest.approx(0.1 / step.ranks + waited)
        assert step.speedup == pytest.approx(0.1 / step.step_s)
    assert found.steps[-1].speedup < found.steps[4].speedup


def test_strong_scaling_ends_at_a_sample_a_rank():
    found = predicted(steps(RING, scaling="strong", batch=64), scaling="strong")
    assert found.steps[-1].ranks == 64
    assert "batch_limit" in keys(found)


def test_a_scaling_not_measured_takes_what_is_hidden_from_the_other():
    configurations = steps(RING, exposed=0.5)
    found = [one for one in predictions(configurations, [fitted(RING)]) if one.training.topology == "across"]
    weak, strong = found
    assert isinstance(strong, Prediction)
    assert (weak.training.scaling, strong.training.scaling) == ("weak", "strong")
    assert strong.hidden == pytest.approx(0.5)
    assert strong.check is None
    borrowed = [warning for warning in strong.warnings if warning.key == "hidden_borrowed"]
    assert phrase(borrowed[0]) == "how much communication is hidden was measured with weak scaling"


def test_what_a_rank_does_besides_compute_stays():
    found = predicted(steps(RING, local=0.02))
    assert found.basis.compute_s == pytest.approx(0.1)
    assert found.basis.local_s == pytest.approx(0.02)
    assert found.steps[0].own_s == pytest.approx(0.12)
    assert found.hidden == pytest.approx(0, abs=1e-6)


def test_without_a_compute_time_the_step_at_one_rank_stands_for_it():
    configurations = dict([trained(1, 0.1), trained(2, 0.1 + RING.seconds(2, BYTES))])
    found = predicted(configurations)
    assert (found.basis.compute_s, found.basis.local_s) == (0.1, 0)
    assert found.hidden == pytest.approx(0, abs=1e-6)


def test_compute_that_grows_with_ranks_is_seen():
    found = predicted(steps(RING, growth=1.3))
    assert found.basis.growth == pytest.approx(1.3)
    assert found.steps[0].own_s == pytest.approx(0.13)
    assert found.steps[0].efficiency < 1 / 1.3


def test_the_slowest_host_is_what_all_wait_for():
    hosts = {"n1": 0.1, "n2": 0.15}
    configurations = dict([trained(1, 0.1, hosts={"n1": 0.1}), trained(2, 0.16, hosts=hosts)])
    found = predicted(configurations)
    assert found.basis.growth == pytest.approx(1.5)
    assert found.training.steps[0].mean_compute_s == pytest.approx(0.125)


def test_compute_beyond_the_step_itself_is_not_believed():
    found = predicted(dict([trained(1, 0.1, compute=0.1), trained(2, 0.11, compute=0.4)]))
    assert found.basis.growth == pytest.approx(1.1)


def test_what_neither_compute_nor_allreduce_explain_is_overhead():
    found = predicted(steps(RING, overhead=0.03))
    assert found.hidden == 0
    assert found.overhead_s == pytest.approx(0.03)
    assert found.steps[1].step_s == pytest.approx(0.1 + 0.03 + RING.seconds(4, BYTES))
    assert "overhead" in keys(found)


def test_a_large_step_is_several_operations():
    configurations = {
        replace(configuration, params=(*configuration.params, ("fusion_threshold", 10**6))): measured
        for configuration, measured in steps(RING).items()
    }
    found = predicted(configurations)
    assert found.basis.operations == 4
    expected = RING.seconds(2, BYTES, operations=4)
    assert found.steps[0].communication_s == pytest.approx(expected)


def test_the_largest_step_is_really_left_out():
    configurations = steps(RING, ranks=(1, 2, 4), exposed=0.5)
    last = max(configurations, key=lambda configuration: configuration.ranks)
    honest = predicted(configurations)
    bent = {configuration: value for configuration, value in configurations.items() if configuration != last}
    bent |= dict([trained(4, 9.0, compute=0.1, sent=BYTES)])
    found = predicted(bent)
    for one in (honest, found):
        assert one.check is not None
        assert one.check.ranks == 4
        assert one.check.predicted_s == pytest.approx(0.1 + 0.5 * RING.seconds(4, BYTES))
    assert honest.check.error == pytest.approx(0)
    assert found.check.measured_s == 9
    assert found.check.error == pytest.approx(honest.check.predicted_s / 9 - 1)
    assert "poor_check" in keys(found)


def test_the_sweep_under_a_check_has_fewer_ranks_too():
    configurations = steps(RING, ranks=(1, 2, 4))
    honest = fitted(RING, ranks=(2, 3, 4))
    bent = replace(
        honest.sweep,
        points=tuple(
            replace(point, seconds=point.seconds * (50 if point.ranks == 4 else 1))
            for point in honest.sweep.points
        ),
    )
    checks = [
        predict(training_of(configurations), one).check for one in (honest, replace(honest, sweep=bent))
    ]
    assert checks[0] == checks[1]
    assert checks[0].sweep_ranks == 3


def test_where_no_smaller_sweep_is_the_check_says_so():
    found = predict(training_of(steps(RING, ranks=(1, 2))), fitted(RING, ranks=(2,)))
    assert isinstance(found, Prediction)
    assert (found.check.ranks, found.check.sweep_ranks) == (2, 2)
    assert "check_seen" in [warning.key for warning in found.warnings]


def test_the_band_holds_at_least_the_error_of_the_check():
    configurations = steps(RING, ranks=(1, 2)) | dict([trained(4, 0.3, compute=0.1, sent=BYTES)])
    found = predicted(configurations)
    slack = found.check.slack
    assert slack > 1.5
    for step in found.steps:
        assert step.high_s >= step.step_s * slack * (1 - 1e-9)
        assert step.low_s <= step.step_s / slack * (1 + 1e-9)


def test_the_band_holds_what_the_repeats_and_the_sweep_leave_open():
    quiet = predicted(steps(RING))
    noisy = predicted(steps(RING, noise=0.1))
    assert width(noisy) > 5 * width(quiet)
    unsure = predict(training_of(steps(RING)), fitted(RING, ranks=(2, 3), noise=0.05))
    assert isinstance(unsure, Prediction)
    assert width(unsure) > 5 * width(quiet)


def width(found):
    return found.steps[-1].high_s / found.steps[-1].low_s - 1


def test_nothing_known_of_several_ranks_leaves_everything_open():
    found = predicted(steps(RING, ranks=(1,)))
    assert found.hidden == 0
    assert "hidden_unknown" in keys(found)
    assert found.check is None
    step = found.steps[2]
    assert step.step_s == pytest.approx(0.1 + RING.seconds(8, BYTES))
    assert step.low_s < 0.1 + 0.1 * RING.seconds(8, BYTES)


def test_a_step_beyond_the_largest_size_is_noted():
    big = predicted(dict([trained(1, 0.1, sent=1e9), trained(2, 2.0, sent=1e9)]))
    assert "beyond_size" in keys(big)


def test_a_prediction_is_no_measurement():
    found = predicted(steps(RING))
    assert not isinstance(found, Configuration | Repeats)
    assert not any(isinstance(step, Configuration | Repeats) for step in found.steps)


@pytest.mark.parametrize(
    ("configurations", "why"),
    [
        (dict([trained(2, 0.1)]), "no_base"),
        (dict([trained(1, 0.1, sent=None), trained(2, 0.1, sent=None)]), "no_bytes"),
        (dict([trained(1, 0.1, backend="gloo")]), "no_fit"),
        (dict([trained(1, 0.1, device="cuda")]), "no_fit"),
    ],
)
def test_what_cannot_be_predicted_says_why(configurations, why):
    found = predictions(configurations, fits(swept(RING)))
    assert {one.reason.key for one in found if isinstance(one, NoPrediction)} == {why}
    assert len(found) == 4
    assert all(phrase(one.reason) for one in found)


def test_nothing_is_predicted_from_nothing():
    assert predictions({}, []) == []
    failed = Repeats(errors={1: "died"})
    assert predictions({next(iter(steps(RING))): failed}, []) == []


def test_serial_stands_in_for_a_missing_step_at_one_rank():
    configurations = dict([trained(1, 0.1, backend="serial"), trained(2, 0.11)])
    found = predicted(configurations)
    assert found.training.serial_base
    assert found.training.base.seconds == 0.1
    assert "serial_base" in keys(found)
    other = dict([trained(1, 0.1, backend="serial", batch=32), trained(2, 0.11)])
    assert training_of(other).base is None


def test_inside_a_host_predictions_end_where_hosts_do():
    configurations = dict([trained(1, 0.1), trained(2, 0.11, inside=True)])
    across, inside = (
        predictions(configurations, fits(swept(RING)) + fits(swept(RING, inside=True)))[number]
        for number in (2, 0)
    )
    assert [one.training.topology for one in (across, inside)] == ["across", "inside"]
    assert [one.steps[-1].ranks for one in (across, inside)] == [1024, 16]
    assert [one.fit.sweep.topology for one in (across, inside)] == ["across", "inside"]


def test_a_compressed_training_takes_the_sweep_of_its_type():
    wide = swept(RING)
    narrow = swept(replace(RING, beta_s_per_byte=5e-9))
    narrow = {
        replace(
            configuration, params=tuple(sorted({**dict(configuration.params), "dtype": "float16"}.items()))
        ): measured
        for configuration, measured in narrow.items()
    }
    known = fits(wide | narrow)
    for compression, slope in (("none", 1e-9), ("fp16", 5e-9)):
        configurations = dict(
            [trained(1, 0.1, compression=compression), trained(2, 0.2, compression=compression)]
        )
        found = next(one for one in predictions(configurations, known) if one.training.topology == "across")
        assert isinstance(found, Prediction)
        assert found.fit.beta_s_per_byte == pytest.approx(slope, rel=1e-3)


@settings(max_examples=30)
@given(some.floats(1e-3, 10), some.floats(0, 1), some.floats(0, 0.1), some.sampled_from(["weak", "strong"]))
def test_bounds_hold_whatever_was_measured(compute, exposed, overhead, scaling):
    configurations = steps(
        RING, compute=compute, exposed=exposed, overhead=overhead, scaling=scaling, batch=4096
    )
    found = predict(training_of(configurations, scaling=scaling), KNOWN)
    assert isinstance(found, Prediction)
    assert 0 <= found.hidden <= 1
    for before, step in zip(found.steps, found.steps[1:], strict=False):
        assert step.low_s <= step.step_s <= step.high_s
        assert step.speedup_low <= step.speedup <= step.speedup_high <= step.ranks * 1.01
        assert step.efficiency <= before.efficiency * (1 + 1e-9)
        assert step.exposed_s >= step.communication_s - BACKWARD * step.own_s - 1e-12


KNOWN = fitted(RING, ranks=(2, 4, 8), noise=0.02)


def test_everything_of_a_lab_comes_through():
    configurations = swept(RING, ranks=(2, 3), noise=0.03) | swept(RING, ranks=(2,), inside=True)
    configurations |= steps(RING, ranks=(1, 2, 3), exposed=0.7, noise=0.02)
    found = predictions(configurations, fits(configurations, virtual=True), virtual=True)
    assert [isinstance(one, Prediction) for one in found] == [True] * 4
    assert all("virtual" in keys(one) for one in found if isinstance(one, Prediction))
    measured = found[2]
    assert isinstance(measured, Prediction)
    assert abs(measured.check.error) < 0.1
    assert isinstance(measured.fit, Fit)
    assert all(phrase(warning) for warning in (*measured.warnings, *measured.fit.warnings))
