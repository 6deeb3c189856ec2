"""Speed-up, efficiency, where the time is lost, and the host that loses it."""

import numpy as np
import pytest

from hvlab.analysis.scaling import check_hosts, curves, slowdowns
from hvlab.results.configurations import gather
from hvlab.statistics.interval import Interval
from tests.unit.test_compare import launch

HOSTS = ("n1", "n2", "n3")
BATCH = 64


def train(
    hosts=1, slots=1, *, step=0.1, repeats=3, noise=(0.0, 0.01, 0.02, 0.03, 0.04), names=HOSTS, **changes
):
    """The records of a training: the step time of each repeat, and the throughput that goes with it."""
    params = {"batch": BATCH, "scaling": "weak", "compression": "none"} | changes.pop("params", {})
    work = BATCH * (hosts * slots if params["scaling"] == "weak" else 1)
    steps = [step * (1 + noise[repeat]) for repeat in range(repeats)]
    return [
        record
        for repeat, seconds in enumerate(steps, start=1)
        for record in launch(
            repeat, workload="mnist", hosts=names[:hosts], slots=slots, params=params,
            step_time=seconds, throughput=work / seconds, **changes,
        )
    ]  # fmt: skip


def found(*records):
    configurations = gather([record for each in records for record in each])
    return curves(configurations), configurations


def test_speedup_and_efficiency_in_weak_scaling():
    ((curve,), _) = found(train(1, 1), train(1, 2, step=0.125), train(3, 1, step=0.2))
    assert (curve.workload, curve.backend, curve.scaling) == ("mnist", "mpi", "weak")
    assert [(point.ranks, len(point.configuration.hosts)) for point in curve.points] == [
        (1, 1),
        (2, 1),
        (3, 3),
    ]
    assert [point.speedup.mid for point in curve.points] == pytest.approx([1, 2 * 0.8, 3 * 0.5])
    assert [point.efficiency.mid for point in curve.points] == pytest.approx([1, 0.8, 0.5])
    assert curve.points[0].speedup == Interval(1.0, 1.0, 1.0)
    second = curve.points[1]
    # Three repeats each: the range of all quotients, 2 % either way.
    assert (second.speedup.low, second.speedup.high) == pytest.approx((1.6 / 1.02, 1.6 * 1.02))


def test_strong_scaling_is_a_curve_of_its_own_over_the_same_base():
    strong = {"scaling": "strong"}
    (made, configurations) = found(train(1, 1), train(2, 1, step=0.11), train(2, 1, step=0.06, params=strong))
    assert [curve.scaling for curve in made] == ["weak", "strong"]
    assert made[1].base.get("scaling") == "weak"
    assert made[1].points[0].speedup.mid == pytest.approx(0.1 / 0.06)
    (lost,) = slowdowns(made[1], configurations)
    assert lost.between.mid == pytest.approx(2 * 0.06 / 0.1)


@pytest.mark.parametrize(
    ("alone", "backend"),
    [
        ([train(1, 1), train(1, 1, backend="serial", step=0.09)], "mpi"),
        ([train(1, 1, backend="serial", step=0.09), train(1, 1, backend="gloo")], "serial"),
        ([train(1, 1, params={"compression": "fp16"})], "mpi"),
    ],
    ids=["own", "serial", "other_compression"],
)
def test_the_base_is_the_nearest_single_rank(alone, backend):
    (made, _) = found(*alone, train(2, 1, step=0.12))
    curve = next(curve for curve in made if any(point.ranks == 2 for point in curve.points))
    assert curve.base.backend == backend
    step = 0.09 if backend == "serial" else 0.1
    assert curve.points[-1].speedup.mid == pytest.approx(2 * step / 0.12)


@pytest.mark.parametrize(
    "alone",
    [
        train(1, 1, backend="gloo"),
        train(1, 1, params={"batch": 32}),
        train(1, 1, error="no memory"),
    ],
    ids=["other_backend", "other_batch", "failed"],
)
def test_without_a_base_there_is_no_speedup(alone):
    (made, configurations) = found(alone, train(2, 1))
    curve = next(curve for curve in made if any(point.ranks == 2 for point in curve.points))
    assert curve.base is None
    assert curve.points[-1].speedup is None
    assert curve.points[-1].efficiency is None
    assert slowdowns(curve, configurations) == []


def test_the_base_is_on_the_first_host_where_each_was_measured():
    each = [train(1, 1, names=(host,), step=step) for host, step in zip(HOSTS, (0.1, 0.2, 0.3), strict=True)]
    ((curve,), _) = found(*reversed(each), train(2, 1, step=0.1))
    assert curve.base.hosts == ("n1",)
    assert curve.points[-1].speedup.mid == pytest.approx(2)


def test_failed_cases_are_points_without_figures():
    ((curve,), _) = found(train(1, 1), train(2, 1, error="rank 1 died"), train(3, 1, repeats=2), [
        record for record in train(3, 1, error="killed") if record.repeat == 3
    ])  # fmt: skip
    assert [point.speedup is None for point in curve.points] == [False, True, False]


def test_collectives_have_no_curve():
    assert found(launch(1, time=100.0, params={"size_bytes": 1024}))[0] == []


def test_curves_are_apart_by_backend_and_parameters():
    (made, _) = found(train(1, 1), train(1, 1, backend="gloo"), train(1, 1, params={"batch": 32}))
    assert [(curve.backend, dict(curve.params)["batch"]) for curve in made] == [
        ("mpi", 64), ("mpi", 32), ("gloo", 64),
    ]  # fmt: skip


def test_the_slow_down_is_split_by_where_the_ranks_were():
    ((curve,), configurations) = found(
        train(1, 1),
        train(1, 2, step=0.15),
        train(2, 1, step=0.12),
        train(3, 1, step=0.13),
        train(2, 2, step=0.2),
    )
    two, three = slowdowns(curve, configurations)
    assert (two.ranks, three.ranks) == (2, 3)
    assert two.inside.mid == pytest.approx(1.5)
    assert two.between.mid == pytest.approx(1.2)
    assert three.inside is None
    assert three.between.mid == pytest.approx(1.3)
    assert two.inside.low < 1.5 < two.inside.high


# Slow hosts


def noisy(seed, *, count=8, hosts=3, noise=0.02, slow=1.0):
    """Times of hosts in launches, the second host ``slow`` times slower."""
    times = np.exp(noise * np.random.default_rng(seed).normal(size=(count, hosts)))
    times[:, 1] *= slow
    return times.tolist()


def computing(times, **changes):
    return [
        record
        for repeat, row in enumerate(times, start=1)
        for record in launch(
            repeat, workload="mnist", hosts=HOSTS, step_time=max(row),
            by_host={"host_compute_time": dict(zip(HOSTS, row, strict=True))}, **changes,
        )
    ]  # fmt: skip


def alone(times, **changes):
    return [
        record
        for repeat, row in enumerate(times, start=1)
        for host, time in zip(HOSTS, row, strict=True)
        for record in launch(repeat, workload="mnist", hosts=(host,), step_time=time, **changes)
    ]


def in_pairs(times):
    return [
        record
        for repeat, row in enumerate(times, start=1)
        for host, time in zip(("n1", "n2", "n3"), row, strict=True)
        for size, factor in ((1024, 1.0), (4096, 3.0))
        for record in launch(
            repeat, hosts=("n0", host), time=100 * factor * time, params={"size_bytes": size}
        )
    ]


@pytest.mark.parametrize(
    ("make", "source"),
    [(computing, "compute"), (alone, "each"), (in_pairs, "pairs")],
    ids=["compute", "each", "pairs"],
)
def test_the_slow_host_is_named_from_each_kind_of_data(make, source):
    (check,) = check_hosts(gather(make(noisy(1, slow=1.3))))
    assert (check.source, check.hosts) == (source, HOSTS)
    (slow,) = check.stragglers
    assert (slow.host, slow.launches) == ("n2", 8)
    assert slow.slower.low < 1.3 < slow.slower.high
    assert check.decided


@pytest.mark.parametrize("make", [computing, alone, in_pairs])
def test_hosts_alike_are_not_named(make):
    for seed in range(5):
        (check,) = check_hosts(gather(make(noisy(seed, noise=0.1))))
        assert check.stragglers == ()
        assert check.slowest.slower.mid >= 1


def test_too_few_launches_are_said():
    (check,) = check_hosts(gather(computing(noisy(1, count=3, slow=2.0))))
    assert check.stragglers == ()
    assert not check.decided
    assert (check.launches, check.needed) == (3, 6)
    assert (check.slowest.host, check.slowest.slower.mid > 1.8) == ("n2", True)


def test_launches_of_several_workloads_count_together():
    records = [
        *computing(noisy(1, count=3, slow=1.3)),
        *computing([[10 * time for time in row] for row in noisy(2, count=3, slow=1.3)], backend="gloo"),
    ]
    (check,) = check_hosts(gather(records))
    assert (check.stragglers[0].host, check.launches) == ("n2", 6)


def test_each_kind_of_data_is_judged_by_itself():
    configurations = gather([*computing(noisy(1, count=12, slow=1.3)), *alone(noisy(2, count=12))])
    checks = {check.source: [slow.host for slow in check.stragglers] for check in check_hosts(configurations)}
    assert checks == {"compute": ["n2"], "each": []}


def test_runs_with_all_kinds_of_data_name_a_host_in_at_most_one_percent():
    named = 0
    for seed in range(500):
        configurations = gather(
            [
                *computing(noisy(3 * seed, count=10, noise=0.2)),
                *alone(noisy(3 * seed + 1, count=10, noise=0.2), backend="gloo"),
                *in_pairs(noisy(3 * seed + 2, count=10, noise=0.2)),
            ]
        )
        checks = check_hosts(configurations)
        assert len(checks) == 3
        named += any(check.stragglers for check in checks)
    assert named <= 0.01 * 500


def test_one_host_has_no_fellows():
    assert check_hosts(gather(train(1, 1))) == []
    assert check_hosts(gather(train(2, 1))) == []
    assert check_hosts({}) == []
