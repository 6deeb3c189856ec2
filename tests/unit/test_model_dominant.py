"""Explanations: the term that dominates is named with its share, and so is why one is faster."""

import math
from dataclasses import replace

import pytest

from hvlab.analysis.model import Explanation
from hvlab.analysis.model.costs import Cost
from hvlab.analysis.model.dominant import (
    backends,
    collective,
    explain,
    flop_per_byte,
    models,
    rivals,
    startup,
    step,
)
from hvlab.analysis.model.fit import fits
from hvlab.analysis.model.training import trainings
from hvlab.results.configurations import Repeats
from tests.unit.synthetic import RING, SIZES, fitted, phrase, swept, trained

FIT = fitted(RING, ranks=(2, 4, 8))
SHARES = ("compute", "waiting", "start", "latency", "bandwidth", "communication", "other")


def largest(configurations, scaling="weak"):
    found = [one for one in trainings(configurations) if (one.topology, one.scaling) == ("across", scaling)]
    return found[0], found[0].steps[-1]


@pytest.mark.parametrize(
    ("ranks", "size", "term"), [(2, 1024, "start"), (1024, 1024, "latency"), (2, 2**26, "bandwidth")]
)
def test_what_dominates_a_collective(ranks, size, term):
    found = collective(FIT, ranks, size)
    assert found.key == f"collective.{term}"
    shares = [found.numbers[name] for name in ("start", "latency", "bandwidth")]
    assert sum(shares) == pytest.approx(1)
    assert max(shares) == found.numbers[term]
    assert found.numbers["seconds_ms"] == pytest.approx(RING.seconds(ranks, size) * 1e3)


@pytest.mark.parametrize(
    ("cost", "compute", "size", "extra", "term"),
    [
        (RING, 0.1, 4e6, 0.0, "compute"),
        (RING, 1e-3, 5e7, 0.0, "bandwidth"),
        (RING, 1e-4, 1.0, 0.0, "start"),
        (replace(RING, alpha_s=5e-3), 1e-3, 1e5, 0.0, "latency"),
        (RING, 0.1, 4e6, 0.8, "other"),
    ],
)
def test_what_dominates_a_step(cost, compute, size, extra, term):
    terms = cost.terms(2, size)
    seconds = compute + terms.seconds + extra
    configurations = dict([trained(1, compute, compute=compute, sent=size)])
    configurations |= dict([trained(2, seconds, compute=compute, sent=size)])
    found = step(*largest(configurations), fitted(cost, ranks=(2, 4, 8)))
    assert found is not None
    assert found.key == f"step.{term}"
    assert sum(found.numbers[name] for name in SHARES) == pytest.approx(1)
    assert found.numbers["compute"] == pytest.approx(compute / seconds)
    assert found.numbers["start"] == pytest.approx(terms.start_s / seconds)
    assert found.numbers["latency"] == pytest.approx(terms.latency_s / seconds)
    assert found.numbers["bandwidth"] == pytest.approx(terms.bandwidth_s / seconds)
    assert found.numbers["other"] == pytest.approx(extra / seconds, abs=1e-9)


def test_what_is_hidden_counts_for_nothing():
    exposed = 0.25 * RING.seconds(2, 4e6)
    configurations = dict([trained(1, 0.1, compute=0.1), trained(2, 0.1 + exposed, compute=0.1)])
    found = step(*largest(configurations), FIT)
    assert found is not None
    terms = RING.terms(2, 4e6)
    assert found.numbers["bandwidth"] == pytest.approx(0.25 * terms.bandwidth_s / (0.1 + exposed))
    assert found.numbers["other"] == pytest.approx(0, abs=1e-9)


def test_waiting_is_what_the_slowest_host_takes_more():
    hosts = {"n1": 0.02, "n2": 0.1}
    configurations = dict([trained(1, 0.02, hosts={"n1": 0.02}), trained(2, 0.11, hosts=hosts)])
    found = step(*largest(configurations), FIT)
    assert found is not None
    assert found.numbers["waiting"] == pytest.approx(0.04 / 0.11)
    assert found.numbers["compute"] == pytest.approx(0.06 / 0.11)


def test_without_a_fit_it_is_all_communication():
    configurations = dict([trained(1, 0.1, compute=0.1), trained(2, 0.5, compute=0.1)])
    found = step(*largest(configurations), None)
    assert found is not None
    assert (found.key, found.numbers["communication"]) == ("step.communication", pytest.approx(0.8))


def test_without_a_step_at_one_rank_nothing_is_said():
    assert step(*largest(dict([trained(2, 0.5)])), FIT) is None


@pytest.mark.parametrize(("seconds", "word"), [(30.0, "dominates"), (3.0, "matters"), (0.5, "small")])
def test_start_up_against_training(seconds, word):
    configurations = dict([trained(1, 0.1), trained(2, 0.1, startup=seconds)])
    found = startup(largest(configurations)[0])
    assert found is not None
    assert found.key == f"startup.{word}"
    assert found.numbers["share"] == pytest.approx(seconds / (seconds + 10))


def test_start_up_that_was_not_measured_is_not_told():
    assert startup(largest(dict([trained(1, 0.1), trained(2, 0.1)]))[0]) is None


def one_against_other(alpha, beta, *, noise=0.02, start=1e-4):
    one = Cost("ring", 50e-6, 1e-9, start)
    other = Cost("ring", 50e-6 * alpha, 1e-9 * beta, start * alpha)
    configurations = swept(one, backend="mpi", noise=noise, seed=1) | swept(
        other, backend="gloo", noise=noise, seed=2
    )
    found = backends(fits(configurations))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("alpha", "beta", "key", "faster"),
    [
        (2, 2, "both", "mpi"),
        (0.5, 0.5, "both", "gloo"),
        (2, 1, "latency", "mpi"),
        (1, 0.5, "bandwidth", "gloo"),
        (2, 0.5, "crossing", "mpi"),
        (0.5, 2, "crossing", "gloo"),
        (1, 1, "alike", None),
    ],
)
def test_why_one_backend_is_faster(alpha, beta, key, faster):
    found = one_against_other(alpha, beta)
    assert found.key == f"faster.{key}"
    assert phrase(found)
    assert faster in (None, found.names["faster"])
    if key in ("both", "latency", "crossing"):
        assert found.numbers["fixed_ratio"] == pytest.approx(2, rel=0.15)
        assert found.numbers["fixed_low"] <= 2 <= found.numbers["fixed_high"]
        assert found.numbers["small_ratio"] == pytest.approx(2, rel=0.15)
    if key in ("both", "bandwidth", "crossing"):
        assert found.numbers["bandwidth_ratio"] == pytest.approx(2, rel=0.15)
        assert found.numbers["bandwidth_low"] <= 2 <= found.numbers["bandwidth_high"]
    if key == "crossing":
        expected = (4e-4 / 1.5 / 0.5e-9) if faster == "mpi" else (2e-4 / 1.5 / 1e-9)
        assert found.numbers["crossing_bytes"] == pytest.approx(expected, rel=0.2)
        assert found.numbers["large_ratio"] < 1


def test_two_that_are_alike_are_hardly_ever_told_apart():
    alarms = [
        rivals(fitted(RING, noise=0.1, seed=seed), fitted(RING, noise=0.1, seed=seed + 1)).key
        for seed in range(0, 24, 2)
    ]
    assert alarms.count("faster.alike") == len(alarms)


def test_backends_without_a_common_number_of_ranks_are_not_compared():
    assert rivals(fitted(RING, ranks=(2, 3)), fitted(RING, ranks=(4, 8))) is None
    assert backends([FIT]) == []


def test_sweeps_most_alike_are_compared():
    configurations = swept(RING, backend="mpi") | swept(RING, backend="gloo")
    other = {
        replace(
            configuration, params=tuple(sorted({**dict(configuration.params), "dtype": "float16"}.items()))
        ): measured
        for configuration, measured in swept(replace(RING, beta_s_per_byte=9e-9), ranks=(2, 3, 4, 8)).items()
    }
    assert backends(fits(configurations | other))[0].key == "faster.alike"


def scaled(workload, flops, last, **options):
    return dict(
        [
            trained(number, seconds, workload=workload, flops=flops, compute=0.1, **options)
            for number, seconds in ((1, 0.1), (2, 0.11), (4, last))
        ]
    )


def test_more_compute_for_each_byte_scales_better():
    configurations = scaled("mnist", 1e6, 0.4) | scaled("rnn", 1e8, 0.2) | scaled("synthetic", 1e10, 0.12)
    found = models([one for one in trainings(configurations) if one.topology == "across"])
    ratios = {one.names["workload"]: one.numbers for one in found if one.key == "ratio.model"}
    assert ratios["rnn"]["flop_per_byte"] == pytest.approx(64 * 1e8 / 4e6)
    assert ratios["rnn"]["efficiency"] == pytest.approx(0.5)
    assert {numbers["ranks"] for numbers in ratios.values()} == {4}
    assert found[-1].key == "ratio.agrees"
    assert found[-1].numbers == {"agreeing": 3, "pairs": 3, "ranks": 4}


def test_where_it_does_not_it_is_said():
    configurations = scaled("mnist", 1e10, 0.4) | scaled("rnn", 1e8, 0.2) | scaled("synthetic", 1e6, 0.12)
    assert (
        models([one for one in trainings(configurations) if one.topology == "across"])[-1].key
        == "ratio.disagrees"
    )


def test_other_backends_and_compressions_are_not_mixed():
    configurations = scaled("mnist", 1e6, 0.4) | scaled("rnn", 1e8, 0.2, compression="fp16")
    assert {one.key for one in models(trainings(configurations))} == {"ratio.model"}


def test_efficiency_of_strong_scaling_counts_the_ranks():
    configurations = dict([trained(n, 0.1 / n * 1.25, scaling="strong") for n in (2, 4)])
    configurations |= dict([trained(1, 0.1, scaling="strong")])
    training, last = largest(configurations, "strong")
    assert training.efficiency(last) == pytest.approx(0.8)


def test_no_ratio_without_its_parts():
    training, _ = largest(dict([trained(1, 0.1, flops=0.0), trained(2, 0.1, flops=0.0)]))
    assert flop_per_byte(training) is None
    assert models([training]) == []


def test_everything_is_explained_and_every_word_fits():
    configurations = swept(RING, noise=0.02) | swept(
        replace(RING, beta_s_per_byte=3e-9), backend="gloo", noise=0.02
    )
    configurations |= scaled("mnist", 1e6, 0.4, startup=2.0) | scaled("rnn", 1e8, 0.2, startup=2.0)
    found = explain(configurations, fits(configurations))
    assert {one.key.split(".")[0] for one in found} == {"collective", "step", "startup", "faster", "ratio"}
    said = [
        phrase(one) for one in found if one.key.startswith(("faster.", "ratio.")) and one.key != "ratio.model"
    ]
    assert all(said)
    numbers = [value for one in found for value in one.numbers.values()]
    assert all(math.isfinite(value) for value in numbers)


def test_nothing_is_explained_by_nothing():
    assert explain({}, []) == []
    assert explain({next(iter(swept(RING))): Repeats(errors={1: "died"})}, []) == []


def test_a_statement_in_words():
    statement = Explanation("algorithm_unsure", {"share": 0.5}, {"algorithm": "ring"})
    assert phrase(statement) == "the algorithm is not identifiable: ring is the likeliest, at only 50%"


def test_the_smallest_and_the_largest_size_of_each_fit_are_explained():
    found = explain(swept(RING), fits(swept(RING)))
    assert [one.numbers["size_bytes"] for one in found] == [SIZES[0], SIZES[-1]]
