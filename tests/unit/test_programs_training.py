"""A training's schedule, clock and checks, with a task that learns nothing; how coarse 8 bits are."""

import math
from types import SimpleNamespace

import pytest

from tests.unit.programs import program

LOSSES = (4.0, 2.0, 1.0)


class Several:
    """Ranks that all see the same, unless ``others`` says what rank 1 gives under a name."""

    hvd = None

    def __init__(self, size, **others):
        self.rank, self.size, self.others = 0, size, others

    def gather(self, data, name):
        return [data, *[self.others.get(name, data)] * (self.size - 1)]

    def total(self, values, name):
        return [value + other for value, other in zip(values, self.others.get(name, values), strict=True)]

    def barrier(self):
        pass


def task(world, *, learns=True, losses=LOSSES):
    """Return two epochs of three steps over 8 samples each, of which this rank has 4."""
    shares = [4] * world.size

    def batches(epoch):
        made.used[0] += 100 // world.size
        made.expected[0] += 100
        return [(loss, None) for loss in losses]

    made = SimpleNamespace(
        world=world,
        options=SimpleNamespace(batch=4),
        epochs=2,
        steps=3,
        shares=shares,
        share=4,
        batch=sum(shares),
        rate=0.1,
        learns=learns,
        data={"name": "digits"},
        used=[0, 0],
        expected=[0, 0],
        batches=batches,
        accuracy=lambda: 50.0,
    )
    return made


@pytest.fixture
def training(monkeypatch):
    return program(monkeypatch, "training")


@pytest.fixture
def run(training):
    """Return what makes a run of a task, and trains it."""

    class Run(training.Run):
        def __init__(self, task, weights=(b"w",)):
            super().__init__(task)
            self.own, self.rates = weights, []

        def step(self, inputs, targets):
            return inputs

        def set_rate(self, rate):
            self.rates.append(rate)

        def weights(self):
            return self.own

    def made(task, **more):
        found = Run(task, **more)
        found.train()
        return found

    return made


def test_every_step_is_told(run):
    told = run(task(Several(2))).results()
    assert len(told["steps"]["mean_s"]) == len(told["steps"]["max_s"]) == 6
    assert told["steps"]["samples"] == [8] * 6
    assert told["batch"] == {"per_rank": 4, "global": 8}
    assert [epoch["loss"] for epoch in told["epochs"]] == [pytest.approx(7 / 3)] * 2
    assert told["accuracy"] == 50.0
    assert sum(told["steps"]["mean_s"]) <= told["times"]["training_s"]


def test_the_slowest_rank_is_told_beside_the_mean(run):
    made = run(task(Several(2)))
    made.times = [1.0] * 6
    made.world.others["times"] = [3.0] * 6
    assert made.results()["steps"]["mean_s"] == [2.0] * 6
    assert made.results()["steps"]["max_s"] == [3.0] * 6


def test_the_rate_rises_to_its_peak_and_falls_to_nothing(training, run):
    made = run(task(Several(2)))
    assert made.rates[0] == pytest.approx(0.1)
    assert made.rates[1:] == [pytest.approx(0.2 * (1 - step / 6)) for step in range(1, 6)]
    assert made.rate_at(training.WARM_UP / 2) == pytest.approx((0.1 + 0.2) / 2 * 0.95)


def test_where_nothing_is_learnt_the_rate_stays(run):
    assert run(task(Several(2), learns=False)).rates == []


def test_one_training_passes(run):
    assert run(task(Several(2))).checks() == []


@pytest.mark.parametrize(
    ("others", "losses", "told"),
    [
        ({"weights": "other"}, LOSSES, "weights: those of the ranks [1] are not those of rank 0"),
        ({}, (1.0, math.nan, 1.0), "loss: not finite in epoch 1"),
        ({"samples": [20, 100, 0]}, LOSSES, "samples: 44.0 were used, or others, not 48 once an epoch"),
        ({"samples": [24, 101, 0]}, LOSSES, "samples: 48 were used, or others, not 48 once an epoch"),
    ],
)
def test_what_was_not_one_training_is_found_out(run, others, losses, told):
    found = run(task(Several(2, **others), losses=losses)).checks()
    assert [text.replace(".0", "") for text in found] == [told.replace(".0", "")]


def test_a_hash_stands_for_all_weights(training):
    assert training.fingerprint([b"a", b"b"]) == training.fingerprint([b"ab"])
    assert training.fingerprint([b"a"]) != training.fingerprint([b"b"])


def test_one_ranks_trouble_is_everyones(training):
    checks = []
    assert training.make_ready(lambda: 1, Several(2, trouble="no such file"), checks) is None
    assert checks == ["no such file"]


@pytest.mark.parametrize("error", [ValueError("too few"), OSError("too few")])
def test_trouble_is_told_once(training, error):
    def broken():
        raise error

    checks = []
    assert training.make_ready(broken, Several(3), checks) is None
    assert checks == ["too few"]


def test_what_is_ready_is_given(training):
    checks = []
    assert training.make_ready(lambda: 7, Several(2), checks) == 7
    assert checks == []


def test_compute_alone_is_the_median_of_each_host(training, monkeypatch):
    steps = iter([9.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    monkeypatch.setattr(training.ranks_of, "time_operation", lambda step, world, device: next(steps))
    world = Several(2, compute=[10.0, 10.0, 10.0, 10.0, 10.0])
    result = {"device": "cpu", "world": {"placement": [(0, 0, "a", 2), (1, 0, "b", 2)]}}
    alone = training.compute_alone(lambda: None, world, result)
    assert alone == {"by_host_s": {"a": 3.0, "b": 10.0}}


@pytest.mark.parametrize("ranks", [1, 2, 3, 64, 127])
def test_the_sum_over_all_ranks_fits_into_8_bits(monkeypatch, ranks):
    side = program(monkeypatch, "exchange").EightBit(ranks)
    assert side.levels >= 1
    # Each number goes from 0 to twice the levels.
    assert 2 * side.levels * ranks <= 255


def test_more_ranks_than_levels_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="at most 127 ranks, not of 128"):
        program(monkeypatch, "exchange").EightBit(128)
